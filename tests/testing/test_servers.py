"""The server for tests: running from the start, wherever it listens, and gone at the end."""

from __future__ import annotations

import gevent
import pytest

from muxws_green import WSGIApp, connect
from muxws_green.testing import LocalServer
from tests.transports.raw import client_context, server_context


def echo(payload, stream) -> None:
    stream.reply(payload)


@pytest.fixture(autouse=True)
def _bounded():
    with gevent.Timeout(20, ref=False):
        yield


@pytest.mark.leaks
@pytest.mark.parametrize("kind", ["tcp", "ipv6", "tls", "unix"])
def test_it_runs_where_its_url_says(kind, tmp_path):
    options = {
        "tcp": {},
        "ipv6": {"listen": ("::1", 0)},
        "tls": {"ssl_context": server_context()},
        "unix": {"listen": str(tmp_path / "s")},
    }[kind]
    context = client_context() if kind == "tls" else None
    with LocalServer(echo, **options) as server, connect(server.url, ssl_context=context) as peer:
        assert peer.request("x") == "x"
        assert len(server.peers) == 1
        scheme = {"tls": "wss://localhost:", "unix": "ws+unix:///", "ipv6": "ws://[::1]:"}
        assert server.url.startswith(scheme.get(kind, "ws://127.0.0.1:"))


def test_options_of_applications_and_of_servers_pass(capsys):
    with (
        LocalServer(echo, max_peers=1, log="default") as server,
        connect(server.url),
        pytest.raises(OSError, match="503"),
    ):
        connect(server.url)
    assert "503" in capsys.readouterr().err
    with LocalServer(WSGIApp(echo)) as server, connect(server.url) as peer:
        assert peer.request(1) == 1
    assert capsys.readouterr().err == ""


@pytest.mark.leaks
def test_leaving_cuts_off_who_is_connected():
    with LocalServer(echo) as server:
        peer = connect(server.url)
    assert server.closed
    with pytest.raises(OSError, match="refused"):
        connect(server.url)
    peer.close()
