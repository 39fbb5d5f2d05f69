"""The configurations on the page about proxies are the files, and work where nginx or HAProxy is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest
from gevent import socket
from gevent.event import Event

from muxws_green import ConnectionLost, HandshakeRefused, IdleHeartbeat, Reconnect, SameOrigin, Server, Stream, connect
from tests.docs.pages import page
from tests.shared import ROOT

SHOWN = dict(
    re.findall(r"^`examples/proxies/([\w.]+)`:\n\n```\w+\n(.*?)^```$", page("proxies"), re.MULTILINE | re.DOTALL)
)
FILES = ROOT / "examples" / "proxies"


def test_the_page_shows_the_files() -> None:
    assert {path.name: path.read_text() for path in FILES.iterdir()} == SHOWN


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def command(program: str, configuration: Path, folder: Path) -> list[str]:
    if program == "nginx":
        # Where a packaged one writes is not ours to write to.
        places = "".join(f"{name}_temp_path {folder};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        configuration.write_text(
            configuration.read_text().replace("http {", f"http {{ access_log off; {places}", 1)
            + f"\ndaemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;\n"
        )
        return ["nginx", "-p", str(folder), "-c", str(configuration), "-e", str(folder / "error.log")]
    return ["haproxy", "-db", "-f", str(configuration)]


def echo(payload: object, stream: Stream) -> None:
    stream.reply(payload)


@pytest.fixture(params=[("nginx", "nginx.conf"), ("haproxy", "haproxy.cfg")], ids=["nginx", "haproxy"])
def behind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a proxy, with a 3 second idle timeout in place of 60, and a server behind it."""
    program, name = request.param
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    server = Server(("127.0.0.1", 0), echo, log=None, heartbeat=None, allowed_origins=SameOrigin())
    server.start()
    port = free_port()
    text = (FILES / name).read_text()
    for old, new in (("8080", str(port)), ("8000", str(server.server_port)), ("60s", "3s")):
        assert old in text
        text = text.replace(old, new)
    configuration = tmp_path / name
    configuration.write_text(text)
    os.chmod(tmp_path, 0o755)
    output = tmp_path / "output"
    with output.open("wb") as stream:
        proxy = subprocess.Popen(command(program, configuration, tmp_path), stdout=stream, stderr=stream)
    try:
        with gevent.Timeout(30, TimeoutError(f"{program} does not listen")):
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert proxy.poll() is None, output.read_text()
                gevent.sleep(0.01)
        yield f"ws://127.0.0.1:{port}/ws"
    finally:
        proxy.kill()
        proxy.wait(30)
        server.stop()


pytestmark = [pytest.mark.slow, pytest.mark.watchdog(60)]


@pytest.mark.host
def test_calls_and_big_payloads_go_through(behind: str) -> None:
    origin = behind.replace("ws://", "http://").removesuffix("/ws")
    with connect(behind, headers={"Origin": origin}) as peer:
        assert peer.request("x", timeout=10.0) == "x"
        assert peer.request("x" * 1_000_000, timeout=30.0) == "x" * 1_000_000


@pytest.mark.host
def test_a_refusal_comes_through(behind: str) -> None:
    with pytest.raises(HandshakeRefused) as refused:
        connect(behind, headers={"Origin": "https://evil.example"})
    assert refused.value.status == 403


@pytest.mark.host
def test_pings_keep_it_open_and_silence_does_not(behind: str) -> None:
    origin = behind.replace("ws://", "http://").removesuffix("/ws")
    with connect(behind, headers={"Origin": origin}, heartbeat=IdleHeartbeat(0.5, 10.0)) as kept:
        silent = connect(behind, headers={"Origin": origin}, heartbeat=None, reconnect=Reconnect(max_attempts=0))
        cut = Event()
        silent.on_close(lambda reason: cut.set())
        assert cut.wait(20), "the proxy does not cut an idle connection"
        with pytest.raises(ConnectionLost):
            silent.request("y")
        silent.close()
        assert kept.close_cause is None
        assert kept.request("z", timeout=10.0) == "z"
