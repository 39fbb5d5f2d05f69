"""Document A, "The first dial is not retried"."""

from __future__ import annotations

import inspect

import pytest

from muxws_green import (
    CloseReason,
    CodecMismatch,
    HandshakeRefused,
    Peer,
    Reconnect,
    Server,
    StreamRefused,
    StreamReset,
    StreamTimeout,
    WSGIApp,
    accept,
    connect,
)
from muxws_green.api.accepting import _AcceptOptions
from tests.seeds.fixtures import EXACT, supervisor_of
from tests.seeds.scripted import Wire, drops_hello, never_acknowledges, polite, resets_hello

seed = pytest.mark.seed


@seed("A: dialer-only")
@seed("A: accept() has no reconnect parameter")
def test_only_dialers_have_a_supervisor(clock, green_server, dial) -> None:
    server = green_server(lambda payload, stream: None)
    peer = dial(server.url)
    assert peer.supervisor is not None
    assert peer.is_dialer
    assert server.peer.supervisor is None
    assert not server.peer.is_dialer
    assert not server.peer.reconnect_now()
    for accepting in (accept, WSGIApp, Server, _AcceptOptions):
        assert "reconnect" not in inspect.signature(accepting).parameters
    with pytest.raises(TypeError, match="reconnect"):
        WSGIApp(lambda payload, stream: None, reconnect=Reconnect())  # type: ignore[call-arg]


@seed("A: dialer-only")
def test_an_acceptor_does_not_dial_when_it_is_left(clock, green_server, dial) -> None:
    server = green_server(lambda payload, stream: None)
    peer = dial(server.url)
    acceptor = server.peer
    told: list[CloseReason] = []
    acceptor.on_close(told.append)
    peer.close()
    clock.advance(300.0)
    assert acceptor.is_closed
    assert [reason.will_retry for reason in told] == [False]


@seed("A: without that argument the defaults below apply")
def test_the_default_schedule(clock, raw_server) -> None:
    server = raw_server(polite)
    with clock.held():
        peer = connect(server.url, hello=1, clock=clock)
    server.refuse()
    server.last.reset()
    waited = []
    for _ in range(9):
        clock.settle()
        waited.append(supervisor_of(peer).next_delay or 0.0)
        assert peer.reconnect_now()
    expected = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    for delay, middle in zip(waited, expected, strict=True):
        assert middle * 0.7 <= delay <= middle * 1.3
    # All nine exactly in the middle would be no jitter.
    assert waited != expected
    peer.close()


@seed("A: without that argument the defaults below apply")
def test_the_argument_configures_it(clock, raw_server, dial) -> None:
    server = raw_server(polite)
    peer = dial(server.url, hello=1, reconnect=Reconnect(initial_delay=3.0, factor=3.0, max_delay=20.0, jitter=0.0))
    server.refuse()
    server.last.reset()
    waited = []
    for _ in range(4):
        clock.settle()
        waited.append(peer.supervisor.next_delay)
        peer.reconnect_now()
    assert waited == [3.0, 9.0, 20.0, 20.0]


#: Everything that could be thought to make a first dial be repeated.
EAGER = [
    {},
    {"reconnect": Reconnect(max_attempts=None)},
    {"reconnect": Reconnect(max_attempts=100)},
    {"reconnect": Reconnect(initial_delay=0.001)},
    {"retry_if": lambda error: True},
]


@seed("A: raises when the first attempt fails")
@seed("A: No option changes this")
@pytest.mark.parametrize("options", EAGER)
@pytest.mark.parametrize("script, error", [(resets_hello, StreamRefused), (drops_hello, StreamReset)])
def test_a_first_hello_that_fails_is_not_repeated(clock, raw_server, options, script, error) -> None:
    server = raw_server(script)
    with pytest.raises(error):
        connect(server.url, hello=1, clock=clock, **options)
    clock.advance(300.0)
    assert len(server.wires) == 1


@seed("A: raises when the first attempt fails")
@seed("A: No option changes this")
@pytest.mark.parametrize("options", EAGER)
def test_a_first_dial_that_fails_is_not_repeated(clock, raw_server, options) -> None:
    server = raw_server(polite)
    server.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(server.url, clock=clock, **options)
    server.open()
    clock.advance(300.0)
    assert server.wires == []


@seed("A: No option changes this")
def test_no_option_of_connect_is_about_the_first_dial() -> None:
    parameters = inspect.signature(connect).parameters
    assert not [name for name in parameters if "first" in name or "retr" in name.replace("retry_if", "")]
    with pytest.raises(TypeError, match="first_dial"):
        connect("ws://127.0.0.1:9/", first_dial="retry")  # type: ignore[call-arg]


@seed("A: Reconnection applies only to connections that were established and then lost")
def test_only_what_was_established_is_dialled_again(clock, raw_server, dial) -> None:
    failing = raw_server(drops_hello)
    with pytest.raises(StreamReset):
        dial(failing.url, hello=1)
    server = raw_server(polite)
    dial(server.url, hello=1)
    server.last.reset()
    clock.advance(60.0)
    assert len(failing.wires) == 1
    assert len(server.wires) == 2


@seed("A: never returns a peer that is retrying in the background")
@pytest.mark.parametrize("hello", [None, {"client": 7}])
def test_what_connect_returns_is_established(clock, raw_server, dial, hello) -> None:
    server = raw_server(polite if hello else Wire.serve)
    peer = dial(server.url, hello=hello)
    assert isinstance(peer, Peer)
    assert peer.is_open
    assert supervisor_of(peer).state == "established"
    assert supervisor_of(peer).attempt == 0
    assert peer.request("at once", timeout=1.0) == "at once"


@seed("A: never returns a peer that is retrying in the background")
def test_connect_waits_for_the_acknowledgement(clock, raw_server, dial) -> None:
    def late(wire: Wire) -> None:
        hello = wire.read()
        clock.sleep(3.0)
        wire.write("data", stream=hello["stream"], end=True)
        wire.serve()

    server = raw_server(late)
    peer = connect(server.url, hello=1, clock=clock)
    assert clock.now() == 3.0
    assert peer.is_open
    peer.close()


@seed("A: write the loop in the application")
def test_the_loop_of_the_application(clock, raw_server) -> None:
    server = raw_server(polite)
    server.refuse()
    clock.call_later(2.5, server.open)
    tries = 0
    peer: Peer | None = None
    while peer is None:
        tries += 1
        try:
            peer = connect(server.url, hello=1, reconnect=EXACT, clock=clock)
        except OSError:
            clock.sleep(1.0)
    assert tries == 4
    assert server.dials == [3.0]
    assert peer.is_open
    peer.close()


def refuses_codec(wire: Wire) -> None:
    wire.connection.answer("HTTP/1.1 400 Bad Request\nContent-Length: 0")


def selects_nothing(wire: Wire) -> None:
    wire.connection.upgrade(protocol=None)


@seed("A: raises the underlying failure without wrapping it")
@seed("A: CodecMismatch for a refused handshake")
@pytest.mark.parametrize("script", [refuses_codec, selects_nothing])
def test_a_refused_handshake_is_a_codec_mismatch(clock, raw_server, script) -> None:
    server = raw_server(script, upgrade=False)
    with pytest.raises(CodecMismatch) as info:
        connect(server.url, clock=clock)
    assert type(info.value) is CodecMismatch


@seed("A: raises the underlying failure without wrapping it")
@seed("A: CodecMismatch for a refused handshake")
@pytest.mark.parametrize("timeout", [0.5, 10.0])
def test_a_hello_that_nobody_acknowledges_is_a_stream_timeout(clock, raw_server, timeout) -> None:
    server = raw_server(never_acknowledges)
    with pytest.raises(StreamTimeout) as info:
        connect(server.url, hello=1, hello_timeout=timeout, clock=clock)
    assert type(info.value) is StreamTimeout
    assert str(timeout) in str(info.value)
    assert clock.now() == timeout
    clock.settle()
    # Nobody is left with a socket that nobody holds; a close frame says so.
    assert server.last.close_code == 1000


@seed("A: raises the underlying failure without wrapping it")
@seed("A: CodecMismatch for a refused handshake")
def test_a_hello_that_is_reset_is_that_reset(clock, raw_server) -> None:
    server = raw_server(resets_hello)
    with pytest.raises(StreamReset) as info:
        connect(server.url, hello=1, clock=clock)
    assert info.value.code == 4
    assert info.value.reason == "unknown client"
    assert info.value.stream_id == 1


@seed("A: raises the underlying failure without wrapping it")
@seed("A: CodecMismatch for a refused handshake")
def test_any_other_failure_is_the_transports(clock, raw_server) -> None:
    server = raw_server(lambda wire: wire.connection.answer("HTTP/1.1 503 Away\nContent-Length: 0"), upgrade=False)
    with pytest.raises(HandshakeRefused) as info:
        connect(server.url, clock=clock)
    assert info.value.status == 503
    server.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(server.url, clock=clock)


@seed("A: raises the underlying failure without wrapping it")
def test_a_server_that_says_nothing_is_a_timeout(clock, raw_server) -> None:
    server = raw_server(lambda wire: wire.connection.read_request(), upgrade=False)
    with pytest.raises(TimeoutError) as info:
        connect(server.url, clock=clock, open_timeout=4.0)
    assert type(info.value) is TimeoutError
    assert clock.now() == 4.0
