"""How to make one object of every class that declares an interface, for `tests/test_contracts.py`.

A new class that says `@implementer` needs one function here; the test fails until it has one. A function that needs to
tidy up yields the object in place of returning it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import isgeneratorfunction
from typing import Any, TypeVar

import gevent.socket

from muxws_green.codecs.envelopes import FrameEnvelopes
from muxws_green.codecs.fast import FastJsonCodec
from muxws_green.codecs.json import JsonCodec
from muxws_green.codecs.msgpack import MsgpackCodec
from muxws_green.errors import ConnectionClosed
from muxws_green.interfaces import ITimerHandle
from muxws_green.protocol.backoff import Reconnect
from muxws_green.protocol.liveness import CountingBeat, CountingHeartbeat, IdleBeat, IdleHeartbeat
from muxws_green.protocol.origin import OriginCheck, SameOrigin
from muxws_green.runtime import clock
from muxws_green.runtime.clock import GeventClock
from muxws_green.runtime.inbound import Inbound
from muxws_green.runtime.link import Link
from muxws_green.runtime.options import Options
from muxws_green.runtime.peer import Peer
from muxws_green.runtime.registry import PeerRegistry
from muxws_green.runtime.stream import Stream
from muxws_green.testing.clock import FakeClock, FakeTimer
from muxws_green.testing.stillness import Watch
from muxws_green.transports.dialer import Dialer
from muxws_green.transports.memory import MemoryTransport, memory_pair
from muxws_green.transports.socket import SocketTransport

Factory = TypeVar("Factory", bound=Callable[[], object])

#: class -> a context manager that gives one object of it.
FACTORIES: dict[type, Callable[[], AbstractContextManager[object]]] = {}


def makes(cls: type) -> Callable[[Factory], Factory]:
    """Enter a function as the factory of `cls`."""

    def enter(function: Factory) -> Factory:
        make: Any = function
        FACTORIES[cls] = contextmanager(make) if isgeneratorfunction(make) else lambda: nullcontext(make())
        return function

    return enter


@makes(JsonCodec)
def json_codec() -> JsonCodec:
    return JsonCodec()


@makes(FastJsonCodec)
def fast_json_codec() -> FastJsonCodec:
    return FastJsonCodec()


@makes(MsgpackCodec)
def msgpack_codec() -> MsgpackCodec:
    return MsgpackCodec()


@makes(FrameEnvelopes)
def frame_envelopes() -> FrameEnvelopes:
    return FrameEnvelopes(JsonCodec())


@makes(SameOrigin)
def same_origin() -> SameOrigin:
    return SameOrigin()


@makes(OriginCheck)
def origin_check() -> OriginCheck:
    return OriginCheck(lambda origin, host, forwarded_host: True)


@makes(Reconnect)
def reconnect() -> Reconnect:
    return Reconnect()


@makes(IdleHeartbeat)
def idle_heartbeat() -> IdleHeartbeat:
    return IdleHeartbeat()


@makes(CountingHeartbeat)
def counting_heartbeat() -> CountingHeartbeat:
    return CountingHeartbeat()


@makes(IdleBeat)
def idle_beat() -> IdleBeat:
    return IdleHeartbeat().start(0.0, lambda: "nonce")


@makes(CountingBeat)
def counting_beat() -> CountingBeat:
    return CountingHeartbeat().start(0.0, lambda: "nonce")


@makes(GeventClock)
def gevent_clock() -> GeventClock:
    return GeventClock()


@makes(clock.Timer)
def gevent_timer() -> Iterator[clock.Timer]:
    timer = GeventClock().call_later(60.0, int)
    yield timer
    timer.cancel()


@makes(clock._Nothing)
def watch_of_real_time() -> ITimerHandle:
    return GeventClock().watch(int)


@makes(FakeClock)
def fake_clock() -> Iterator[FakeClock]:
    with FakeClock() as fake:
        yield fake


@makes(FakeTimer)
def fake_timer() -> Iterator[FakeTimer]:
    with FakeClock() as fake:
        yield fake.call_later(1.0, int)


@makes(Watch)
def watch_of_fake_time() -> Iterator[Watch]:
    with FakeClock() as fake:
        yield fake.watch(int)


@makes(Dialer)
def dialer() -> Dialer:
    return Dialer("ws://127.0.0.1:1/", subprotocols=["muxws.v1.json"], clock=GeventClock(), max_message_bytes=131_072)


@makes(SocketTransport)
def socket_transport() -> Iterator[SocketTransport]:
    here, there = gevent.socket.socketpair()
    with there:
        transport = SocketTransport(here, client=True, max_message_bytes=131_072)
        yield transport
        transport.abort()


@makes(MemoryTransport)
def memory_transport() -> MemoryTransport:
    return memory_pair()[0]


@makes(Peer)
def peer() -> Peer:
    return Peer(Options(JsonCodec()), dialer=False)


@makes(PeerRegistry)
def peer_registry() -> PeerRegistry:
    return PeerRegistry()


@contextmanager
def _attached() -> Iterator[tuple[Peer, Link]]:
    acceptor = Peer(Options(JsonCodec()), dialer=False)
    link = acceptor._attach(memory_pair()[0])
    yield acceptor, link
    link.terminate(ConnectionClosed())
    link.serve()


@makes(Inbound)
def sink() -> Iterator[Inbound]:
    with _attached() as (_, link):
        yield Inbound(link)


@makes(Stream)
def open_stream() -> Iterator[Stream]:
    with _attached() as (acceptor, _):
        yield acceptor.open("payload")
