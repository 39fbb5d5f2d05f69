"""Each server of `servers/`, run for real: what its docstring says that it does, it does."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest

from muxws_green import CloseReason, HandshakeRefused, Peer, Reconnect, RemoteError, connect
from tests.servers.process import SERVERS, ServerProcess, running_server
from tests.transports.raw import PATIENCE, authority, client_context

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(60)]


@pytest.fixture
def dial() -> Iterator[Callable[..., Peer]]:
    """`connect`, without a heartbeat or a second dial; what it has returned is closed in the end."""
    peers: list[Peer] = []

    def dial(url: str, **options: Any) -> Peer:
        with gevent.Timeout(PATIENCE):
            peers.append(connect(url, heartbeat=None, reconnect=Reconnect(max_attempts=0), **options))
        return peers[-1]

    yield dial
    gevent.joinall([gevent.spawn(peer.close, drain=0.0) for peer in peers], timeout=PATIENCE)


def websocket_url(server: ServerProcess, path: str = "/ws") -> str:
    return f"ws://127.0.0.1:{server.port}{path}"


def sent_away(server: ServerProcess, peers: list[Peer]) -> None:
    """SIGTERM ends it early, long before its ten seconds have passed, and with a close frame for each peer."""
    told: list[CloseReason] = []
    for peer in peers:
        peer.on_close(told.append)
    server.terminate()
    assert server.wait() < 5.0
    with gevent.Timeout(PATIENCE):
        gevent.wait(peers)
        while len(told) < len(peers):
            gevent.sleep(0.001)
    assert {reason.code for reason in told} == {1001}


def test_every_server_says_how_to_run_it() -> None:
    files = sorted(SERVERS.glob("*.py"))
    assert len(files) >= 6
    for path in files:
        command = path.read_text().split("\n")[2].strip()
        assert command.startswith((f"python servers/{path.name}", "gunicorn -c servers/gunicorn_conf.py"))


@pytest.mark.parametrize("kind", ["tcp", "unix", "tls"])
def test_pywsgi_echo(kind: str, tmp_path: Path, dial: Callable[..., Peer]) -> None:
    arguments = {"tcp": [], "unix": ["--unix", str(tmp_path / "s")], "tls": ["--certificate", str(tmp_path / "pem")]}
    if kind == "tls":
        authority().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "pem"))
    if kind == "unix":
        # Of a process that did not tidy up.
        (tmp_path / "s").touch()
    with running_server("servers/pywsgi_echo.py", "--port", "0", *arguments[kind]) as server:
        options = {"ssl_context": client_context()} if kind == "tls" else {}
        url = server.url.replace("127.0.0.1", "localhost")
        peers = [dial(url, **options) for _ in range(5)]
        assert [peer.request(number, timeout=PATIENCE) for number, peer in enumerate(peers)] == list(range(5))
        stream = peers[0].open("a")
        stream.send("b", end=True)
        assert list(stream) == ["a", "b"]
        sent_away(server, peers)


def test_a_stream_that_runs_may_finish(dial: Callable[..., Peer]) -> None:
    with running_server("servers/pywsgi_echo.py", "--port", "0") as server:
        stream = dial(server.url).open("a")
        assert stream.receive(timeout=PATIENCE) == "a"
        server.terminate()
        stream.send("b", end=True)
        assert list(stream) == ["b"]
        assert server.wait() < 5.0


def test_gunicorn(dial: Callable[..., Peer]) -> None:
    command = ("-m", "gunicorn", "-c", "servers/gunicorn_conf.py")
    with running_server(*command, "--log-level", "warning", "--no-control-socket", PORT="0") as server:
        heard: dict[str, list[Any]] = {"ann": [], "bob": [], "eve": []}
        peers = {}
        for name, room in (("ann", "kitchen"), ("bob", "kitchen"), ("eve", "cellar")):
            peers[name] = dial(
                websocket_url(server, f"/ws?room={room}"),
                on_stream=lambda payload, stream, name=name: heard[name].append(payload["text"]),
            )
        assert peers["ann"].request("hello", timeout=PATIENCE) == {"told": 2, "skipped": 0}
        with gevent.Timeout(PATIENCE):
            while not (heard["ann"] and heard["bob"]):
                gevent.sleep(0.001)
        assert heard == {"ann": ["hello"], "bob": ["hello"], "eve": []}
        assert server.http("GET /").body == b"3 are here\n"
        with pytest.raises(HandshakeRefused) as refused:
            dial(websocket_url(server))
        assert refused.value.status == 404
        assert server.http("GET /ws?room=kitchen").status == 426
        sent_away(server, list(peers.values()))


def test_flask_login_app(dial: Callable[..., Peer]) -> None:
    command = ("servers/flask_login_app.py", "--port", "0", "--user", "ann:secret", "--user", "bob:hidden")
    with running_server(*command) as server:
        url, origin = websocket_url(server), f"http://127.0.0.1:{server.port}"

        def cookie_of(user: str, password: str) -> str:
            answer = server.http("POST /login", f"user={user}&password={password}")
            assert answer.status == 302
            return answer.cookie("session")

        assert b"<form" in server.http("GET /").body
        assert server.http("POST /login", "user=ann&password=wrong").status == 401
        assert server.http("POST /login", "user=nobody&password=").status == 401
        ann, bob = cookie_of("ann", "secret"), cookie_of("bob", "hidden")
        assert server.http("GET /", Cookie=ann).body == b"You are ann."

        for headers, status in (
            ({"Origin": origin}, 401),
            ({"Origin": origin, "Cookie": "session=forged"}, 401),
            ({"Origin": "http://evil.example", "Cookie": ann}, 403),
            ({"Cookie": ann}, 403),
        ):
            with pytest.raises(HandshakeRefused) as refused:
                dial(url, headers=headers)
            assert refused.value.status == status

        news: list[Any] = []
        first = dial(
            url, headers={"Origin": origin, "Cookie": ann}, on_stream=lambda payload, stream: news.append(payload)
        )
        assert first.request({"who": "am I"}, timeout=PATIENCE) == "ann"
        second = dial(url, headers={"Origin": origin, "Cookie": bob})
        assert second.request({"who": "is here"}, timeout=PATIENCE) == ["ann", "bob"]
        with pytest.raises(RemoteError, match="ask who"):
            second.request({"who": "was that"}, timeout=PATIENCE)
        with gevent.Timeout(PATIENCE):
            while {"user": "bob", "what": "came"} not in news:
                gevent.sleep(0.001)
            # Logging out ends bob's connection, and not ann's.
            assert server.http("POST /logout", Cookie=bob).status == 302
            gevent.wait([second])
            while {"user": "bob", "what": "went"} not in news:
                gevent.sleep(0.001)
        assert first.request({"who": "is here"}, timeout=PATIENCE) == ["ann"]
        sent_away(server, [first])


def test_django_app(tmp_path: Path, dial: Callable[..., Peer]) -> None:
    command = ("servers/django_app.py", "--port", "0", "--database", str(tmp_path / "db"))
    with running_server(*command, "--staff", "ann:secret", "--user", "bob:hidden") as server:
        url, origin = websocket_url(server), f"http://127.0.0.1:{server.port}"

        def log_in(user: str, password: str) -> Any:
            form = server.http("GET /login")
            (token,) = re.findall(rb'value="(\w+)"', form.body)
            fields = f"user={user}&password={password}&csrfmiddlewaretoken={token.decode()}"
            return server.http("POST /login", fields, Cookie=form.cookie("csrftoken"))

        assert server.http("GET /").body == b"you are AnonymousUser"
        assert server.http("POST /login", "user=ann&password=secret").status == 403
        assert log_in("ann", "wrong").status == 401
        sessions = {}
        for user, password in (("ann", "secret"), ("bob", "hidden")):
            answer = log_in(user, password)
            assert answer.status == 200
            sessions[user] = answer.cookie("sessionid")
        assert server.http("GET /", Cookie=sessions["bob"]).body == b"you are bob"

        for headers, status in (
            ({"Origin": origin}, 401),
            ({"Origin": origin, "Cookie": sessions["bob"]}, 403),
            ({"Origin": "http://evil.example", "Cookie": sessions["ann"]}, 403),
        ):
            with pytest.raises(HandshakeRefused) as refused:
                dial(url, headers=headers)
            assert refused.value.status == status

        peers = [dial(url, headers={"Origin": origin, "Cookie": sessions["ann"]}) for _ in range(10)]
        asked = [gevent.spawn(peer.request, {"staff": bool(n % 2)}) for n, peer in enumerate(peers)]
        with gevent.Timeout(PATIENCE):
            answers = [each.get() for each in asked]
        assert answers == [["bob"], ["ann"]] * 5
        # No peer holds a connection of the database.
        opened = [os.readlink(entry) for entry in Path(f"/proc/{server.process.pid}/fd").iterdir()]
        assert str(tmp_path / "db") not in opened
        sent_away(server, peers)
