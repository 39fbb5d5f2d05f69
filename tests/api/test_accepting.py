"""How a server comes by peers: `WSGIApp`, `serve` and `Server`, from the options to the last peer."""

from __future__ import annotations

import gc
import inspect
import io
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest
from gevent.pywsgi import WSGIServer

from muxws_green import (
    CodecNotRegistered,
    ConnectionClosed,
    HandshakeRefused,
    OriginRefused,
    Peer,
    ProtocolError,
    Reconnect,
    Server,
    UpgradeRefused,
    WSGIApp,
    accept,
    connect,
    serve,
    settings,
)
from muxws_green.codecs import MsgpackCodec
from muxws_green.interfaces import ITimerHandle
from muxws_green.runtime.clock import GeventClock
from muxws_green.transports.acceptor import Upgraded
from muxws_green.transports.hosts.pywsgi import PywsgiHost
from tests.cases.green import until
from tests.hosts.client import exchange, head
from tests.transports.raw import PATIENCE, server_context

pytestmark = pytest.mark.leaks


def echo(payload: Any, stream: Any) -> None:
    stream.reply(payload)


def count_of(*kinds: type) -> int:
    """How many objects of these classes there are."""
    gc.collect()
    return sum(isinstance(known, kinds) for known in gc.get_objects())


class Site:
    """Servers of one test, and peers that are closed with them."""

    def __init__(self) -> None:
        self.errors = io.StringIO()
        self._servers: list[Any] = []
        self._peers: list[Peer] = []
        self._sockets: list[Any] = []

    def start(self, make: Callable[..., Any], target: Any, **options: Any) -> Any:
        server = make(("127.0.0.1", 0), target, log=None, error_log=self.errors, **options)
        server.start()
        self._servers.append(server)
        return server

    def dial(self, server: Any, **options: Any) -> Peer:
        url = f"ws://127.0.0.1:{server.server_port}/"
        self._peers.append(connect(url, heartbeat=None, reconnect=Reconnect(max_attempts=0), **options))
        return self._peers[-1]

    def ask(self, server: Any, data: bytes) -> Any:
        sock = gevent.socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE)
        self._sockets.append(sock)
        return exchange(sock, data)

    def end(self) -> None:
        for sock in self._sockets:
            sock.close()
        gevent.joinall([gevent.spawn(peer.close, drain=0.0) for peer in self._peers], timeout=PATIENCE)
        for server in self._servers:
            server.stop(timeout=0)


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.end()


# A handler is enough


def test_a_server_of_a_handler(site: Site) -> None:
    peers: list[Peer] = []
    server = site.start(Server, echo, max_concurrent_streams=2, on_connect=peers.append, codec=MsgpackCodec())
    peer = site.dial(server, codec=MsgpackCodec())
    assert peer.request(b"bytes", timeout=PATIENCE) == b"bytes"
    assert server.peers == peers
    assert peers[0]._options.max_concurrent_streams == 2
    server.drain(1.0)
    assert peers[0].is_closed


def test_a_server_of_an_application(site: Site) -> None:
    server = site.start(Server, WSGIApp(echo))
    assert site.dial(server).request(1, timeout=PATIENCE) == 1


def test_options_of_peers_beside_an_application_are_nobodys() -> None:
    with pytest.raises(TypeError, match="max_concurrent_streams"):
        Server(("127.0.0.1", 0), WSGIApp(echo), max_concurrent_streams=2)


def test_the_body_of_one_line(site: Site) -> None:
    def application(environ: dict[str, Any], start_response: Any) -> Any:
        return serve(environ, start_response, handler=echo, allowed_origins=["http://good.example"])

    server = site.start(WSGIServer, application)
    assert site.dial(server, headers={"Origin": "http://good.example"}).request(1, timeout=PATIENCE) == 1
    assert site.ask(server, head()).status == 403
    assert site.ask(server, head({"Upgrade": None})).status == 426
    assert site.errors.getvalue() == ""


def test_a_refusal_without_start_response_is_the_callers() -> None:
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "SERVER_PROTOCOL": "HTTP/1.1", "HTTP_HOST": "localhost"}
    with pytest.raises(UpgradeRefused) as refused:
        serve(environ, handler=echo)
    assert refused.value.status == 426


# Options


@pytest.mark.parametrize(
    "options",
    [
        {"keyfile": "key.pem"},
        {"certfile": "server.pem", "ssl_context": server_context()},
        {"keyfile": "key.pem", "ssl_context": server_context()},
    ],
)
def test_tls_is_told_once_and_wholly(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="certfile"):
        Server(("127.0.0.1", 0), echo, **options)


def test_a_misspelt_option_makes_no_tls_server() -> None:
    for options in ({"cert_file": "server.pem"}, {"handler_class": object}, {"heart_beat": None}):
        for target in (echo, WSGIApp(echo)):
            with pytest.raises(TypeError, match=next(iter(options))):
                Server(("127.0.0.1", 0), target, **options)


@pytest.mark.parametrize(
    "kind,options",
    [
        (CodecNotRegistered, {"codec": "nobody's"}),
        (ValueError, {"max_concurrent_streams": 0}),
        (ValueError, {"max_payload_bytes": True}),
        (ValueError, {"send_buffer_bytes": -1}),
        (ValueError, {"receive_pause_timeout": float("nan")}),
        (ValueError, {"ping_timeout": 0}),
        (ValueError, {"ping_interval": float("nan")}),
        (ValueError, {"max_peers": 0}),
        (ValueError, {"allowed_origins": ["good.example"]}),
        (TypeError, {"allowed_origins": "http://good.example"}),
        (TypeError, {"error_serializer": "no function"}),
        (TypeError, {"no_such_option": 1}),
        (ProtocolError, {"max_frame_bytes": 1}),
    ],
)
@pytest.mark.parametrize(
    "make", [lambda **options: WSGIApp(echo, **options), lambda **options: Server(("", 0), echo, **options)]
)
def test_options_are_judged_before_anything_is_opened(
    make: Any, kind: type[Exception], options: dict[str, Any]
) -> None:
    with pytest.raises(kind):
        make(**options)


@pytest.mark.parametrize("handler", [None, 1, "echo"])
def test_a_handler_can_be_called(handler: Any) -> None:
    with pytest.raises(TypeError, match="handler"):
        WSGIApp(handler)


def test_the_setting_of_the_codec_may_come_later(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "codec", "json")
    server = site.start(WSGIServer, WSGIApp(echo))
    assert site.dial(server, codec="json").request(1, timeout=PATIENCE) == 1
    monkeypatch.setattr(settings, "codec", "msgpack")
    with pytest.raises(CodecNotRegistered):
        server.application({"REQUEST_METHOD": "GET", "PATH_INFO": "/"}, lambda *arguments: None)
    monkeypatch.setattr(settings, "codec", "json")
    assert site.dial(server, codec="json").request(2, timeout=PATIENCE) == 2


# Who is refused, and who is let in


def test_what_it_took_to_accept_does_not_live_for_as_long_as_the_connection(site: Site) -> None:
    def application(environ: dict[str, Any], start_response: Any) -> Any:
        peer = accept(environ, start_response)
        peer.on_stream(echo)
        return peer.serve()

    servers = [site.start(make, app) for make in (WSGIServer, Server) for app in (application, WSGIApp(echo))]
    before = count_of(Upgraded, PywsgiHost)
    peers = [site.dial(server) for server in servers]
    assert [peer.request(1, timeout=PATIENCE) for peer in peers] == [1] * 4
    assert count_of(Upgraded, PywsgiHost) <= before


def test_there_may_be_so_many_peers_and_no_more(site: Site) -> None:
    app = WSGIApp(echo, max_peers=2)
    for make in (WSGIServer, Server):
        server = site.start(make, app)
        peers = [site.dial(server), site.dial(server)]
        assert len(app.peers) == 2
        for _ in range(3):
            with pytest.raises(HandshakeRefused) as refused:
                site.dial(server)
            assert refused.value.status == 503
            assert ("retry-after", "1") in [(name.lower(), value) for name, value in refused.value.headers]
        # In whatever way a place is freed.
        peers[0].close(drain=0.0)
        assert peers[1]._link is not None
        peers[1]._link.transport.abort()
        until(lambda: not app.peers)
        assert site.dial(server).request(1, timeout=PATIENCE) == 1
        site.dial(server).close(drain=0.0)
        for peer in app.peers:
            peer.close(drain=0.0)
        until(lambda: not app.peers)


def test_the_value_of_a_refused_origin_reaches_whoever_accepts(site: Site) -> None:
    refused: list[OriginRefused] = []

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        try:
            accept(environ, start_response, allowed_origins=["http://good.example"])
        except OriginRefused as error:
            refused.append(error)
        start_response("403 Forbidden", [("Content-Length", "0")])
        return []

    server = site.start(WSGIServer, application)
    for origin, expected in (("http://evil.example", "http://evil.example"), (None, None), ("null", "null")):
        assert site.ask(server, head({"Origin": origin})).status == 403
        assert (refused[-1].origin, refused[-1].status) == (expected, 403)


def test_whoever_registers_does_so_before_the_first_frame(site: Site) -> None:
    def on_connect(peer: Peer) -> None:
        peer.tags["user"] = "ann"
        peer.on_stream(lambda payload, stream: stream.reply(peer.tags["user"]))

    for make in (WSGIServer, Server):
        server = site.start(make, WSGIApp(None, on_connect=on_connect))
        assert site.dial(server).request(timeout=PATIENCE) == "ann"


@pytest.mark.parametrize("make", [WSGIServer, Server])
def test_an_on_connect_that_raises_ends_the_connection_and_frees_its_place(
    site: Site, make: Any, expected_hub_errors: list[Any]
) -> None:
    told: list[Any] = []

    def on_connect(peer: Peer) -> None:
        peer.on_close(told.append)
        raise LookupError("no such user")

    app = WSGIApp(echo, on_connect=on_connect, max_peers=1)
    server = site.start(make, app)
    for _ in range(3):
        peer = site.dial(server)
        with gevent.Timeout(PATIENCE):
            gevent.wait([peer])
        assert isinstance(peer.close_cause, ConnectionClosed)
        assert peer.close_cause.code == 1011
        until(lambda: not app.peers)
    until(lambda: len(told) == 3)
    assert {reason.code for reason in told} == {1011}
    assert [type(each.error) for each in expected_hub_errors] == [LookupError] * 3


def test_an_on_connect_that_closes_and_then_raises(site: Site, expected_hub_errors: list[Any]) -> None:
    def on_connect(peer: Peer) -> None:
        peer.close(drain=0.0)
        raise LookupError("no such user")

    app = WSGIApp(echo, on_connect=on_connect)
    peer = site.dial(site.start(Server, app))
    with gevent.Timeout(PATIENCE):
        gevent.wait([peer])
    assert peer.close_cause is not None
    assert peer.close_cause.code == 1000
    until(lambda: not app.peers)


def test_an_upgraded_connection_of_which_no_peer_can_be_made_is_closed(
    site: Site, expected_hub_errors: list[Any]
) -> None:
    class NoClock(GeventClock):
        def watch(self, held: Callable[[], int | None]) -> ITimerHandle:
            raise RuntimeError("not today")

    peer = site.dial(site.start(WSGIServer, WSGIApp(echo, clock=NoClock())))
    with gevent.Timeout(PATIENCE):
        gevent.wait([peer])
    assert peer.close_cause is not None
    assert peer.close_cause.code == 1011
    assert [type(each.error) for each in expected_hub_errors] == [RuntimeError]


def test_the_default_of_an_option_has_a_name_in_signatures() -> None:
    assert "heartbeat: 'IHeartbeatPolicy | Default | None' = DEFAULT" in str(inspect.signature(connect))
