"""C74: a proxy that cuts idle connections does not cut ours: both ends speak before it would."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator

import gevent
import pytest
from gevent import socket as gevent_socket
from gevent.pool import Pool
from gevent.server import StreamServer

from muxws_green import CloseReason, IdleHeartbeat, WSGIApp, connect
from tests.seeds.scripted import polite

pytestmark = pytest.mark.case("C74")


class IdleCuttingRelay:
    """Passes bytes both ways, and cuts a connection on which nothing passes for so long."""

    def __init__(self, clock, port: int, idle: float) -> None:
        self.cut = 0
        self._clock = clock
        self._port = port
        self._idle = idle
        self._server = StreamServer(("127.0.0.1", 0), self._relay, spawn=Pool())
        self._server.start()
        self.url = f"ws://127.0.0.1:{self._server.server_port}/"

    def _relay(self, near, address) -> None:
        far = gevent_socket.create_connection(("127.0.0.1", self._port))
        passed_at = [self._clock.now()]

        def pump(source, sink) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65_536):
                    passed_at[0] = self._clock.now()
                    sink.sendall(data)

        pumps = [gevent.spawn(pump, near, far), gevent.spawn(pump, far, near)]
        try:
            while not any(each.dead for each in pumps):
                left = passed_at[0] + self._idle - self._clock.now()
                if left <= 0:
                    self.cut += 1
                    return
                self._clock.sleep(left)
        finally:
            gevent.killall(pumps)
            near.close()
            far.close()

    def stop(self) -> None:
        self._server.stop(timeout=0)


@pytest.fixture
def relay(clock) -> Iterator:
    relays: list[IdleCuttingRelay] = []

    def make(port: int, idle: float) -> IdleCuttingRelay:
        relays.append(IdleCuttingRelay(clock, port, idle))
        return relays[-1]

    yield make
    for each in relays:
        each.stop()


def test_the_defaults_are_below_what_proxies_wait() -> None:
    assert inspect.signature(connect).parameters["ping_interval"].default < 60.0
    accepting = WSGIApp(lambda payload, stream: None)._options.options.heartbeat
    assert isinstance(accepting, IdleHeartbeat)
    assert accepting.interval < 60.0


@pytest.mark.slow
def test_an_idle_dialer_keeps_its_connection(clock, raw_server, dial, relay) -> None:
    server = raw_server(polite)
    proxy = relay(server.port, idle=0.5)
    told: list[CloseReason] = []
    peer = dial(proxy.url, hello=1, ping_interval=0.2, on_close=told.append)
    clock.advance(0.7)
    assert len(server.last.of("ping")) >= 3
    clock.advance(20.0)
    assert proxy.cut == 0
    assert told == []
    assert peer.is_open


@pytest.mark.slow
def test_an_idle_acceptor_keeps_it_too(clock, green_server, dial, relay) -> None:
    server = green_server(lambda payload, stream: None, ping_interval=0.2)
    proxy = relay(server.port, idle=0.5)
    peer = dial(proxy.url, heartbeat=None)
    clock.advance(20.0)
    assert proxy.cut == 0
    assert peer.is_open


def test_without_a_heartbeat_it_would_be_cut(clock, raw_server, dial, relay) -> None:
    server = raw_server(polite)
    proxy = relay(server.port, idle=0.5)
    told: list[CloseReason] = []
    dial(proxy.url, hello=1, heartbeat=None, on_close=told.append)
    clock.advance(0.6)
    assert proxy.cut == 1
    assert len(told) == 1


def test_an_acceptor_may_ping_on_demand(clock, green_server, dial) -> None:
    server = green_server(lambda payload, stream: None)
    dial(server.url, heartbeat=None)
    assert server.peer.ping(timeout=1.0) == 0.0
