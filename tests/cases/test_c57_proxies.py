"""C57: the environment names a proxy, and connections do not go there unless that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from gevent import socket

from muxws_green import Reconnect, connect
from tests.cases.green import SERVERS, green
from tests.transports.raw import PATIENCE, client_context, server_context

pytestmark = pytest.mark.case("C57")

#: Nobody listens there.
NOWHERE = "http://127.0.0.1:1"

VARIABLES = [f"{kind}_proxy" for kind in ("http", "https", "ws", "wss", "all", "socks")]


@pytest.fixture(autouse=True)
def proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, NOWHERE)
        monkeypatch.setenv(name.upper(), NOWHERE)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("proxy", [None, False])
def test_a_connection_is_direct(host: str, proxy: bool | None) -> None:
    with green() as site:
        url = f"ws://{host}:{site.server.server_port}/"
        with connect(url, heartbeat=None, proxy=proxy) as peer:
            assert peer.request("direct", timeout=PATIENCE) == "direct"


def test_so_is_one_with_tls() -> None:
    with green(kind="server", ssl_context=server_context()) as site:
        url = f"wss://localhost:{site.server.server_port}/"
        with connect(url, heartbeat=None, ssl_context=client_context()) as peer:
            assert peer.request("direct", timeout=PATIENCE) == "direct"


@pytest.mark.parametrize("kind", SERVERS)
def test_and_one_to_a_unix_socket(kind: str, tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    with green(kind=kind, listener=listener):
        # There even where a proxy is asked for.
        for proxy in (None, True):
            with connect(f"ws+unix://{tmp_path / 's'}:/", heartbeat=None, proxy=proxy) as peer:
                assert peer.request("direct", timeout=PATIENCE) == "direct"


def test_whoever_asks_for_it_gets_it() -> None:
    """Otherwise the tests above would show nothing."""
    with green() as site:
        for proxy in (True, NOWHERE):
            with pytest.raises(ConnectionRefusedError):
                connect(
                    site.url.replace("127.0.0.1", "there.example"), proxy=proxy, reconnect=Reconnect(max_attempts=0)
                )
