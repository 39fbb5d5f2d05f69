"""C40: a refused login is no blip of the network: the application sees the status and can stop, and the delays grow."""

from __future__ import annotations

from typing import Any

import pytest

from muxws_green import CloseReason, HandshakeRefused, Peer, Reconnect, connect
from muxws_green.testing import FakeClock
from tests.transports.scripted import Connection, Scripted

pytestmark = pytest.mark.case("C40")

SCHEDULE = Reconnect(initial_delay=1.0, factor=2.0, max_delay=60.0, jitter=0.0)

STATUSES = {401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 429: "Too Many Requests", 503: "Unavailable"}


class Site:
    """One good connection, then refusals; `dials` has the time of each."""

    def __init__(self, clock: FakeClock, status: int) -> None:
        self.clock = clock
        self.status = status
        self.dials: list[float] = []
        self.server = Scripted(self._answer)

    def _answer(self, connection: Connection) -> None:
        self.dials.append(self.clock.now())
        if len(self.dials) == 1:
            connection.upgrade()
        else:
            connection.answer(f"HTTP/1.1 {self.status} {STATUSES[self.status]}\nContent-Length: 2", "no")
            connection.sock.close()

    def drop(self) -> None:
        self.server.connections[0].raw.reset()


@pytest.mark.parametrize("status", STATUSES)
def test_the_hook_sees_the_status_of_every_attempt_and_the_gaps_grow(status: int) -> None:
    seen: list[Any] = []

    def retry_if(error: Exception) -> bool:
        seen.append(error)
        return True

    with FakeClock() as clock:
        site = Site(clock, status)
        with site.server:
            with clock.held():
                peer = connect(site.server.url, clock=clock, heartbeat=None, reconnect=SCHEDULE, retry_if=retry_if)
            site.drop()
            clock.advance(1 + 2 + 4 + 8 + 16 + 0.5)
            supervisor = peer.supervisor
            assert supervisor is not None
            assert [type(error) for error in seen] == [HandshakeRefused] * 5
            assert {error.status for error in seen} == {status}
            assert isinstance(supervisor.last_error, HandshakeRefused)
            assert supervisor.last_error.status == status
            gaps = [later - earlier for earlier, later in zip(site.dials[1:], site.dials[2:], strict=False)]
            assert gaps == [2.0, 4.0, 8.0, 16.0]
            peer.close()


@pytest.mark.parametrize("status", [401, 403])
def test_the_application_may_give_up(status: int) -> None:
    told: list[CloseReason] = []
    with FakeClock() as clock:
        site = Site(clock, status)
        with site.server:
            with clock.held():
                peer = connect(
                    site.server.url,
                    clock=clock,
                    heartbeat=None,
                    reconnect=SCHEDULE,
                    retry_if=lambda error: not (isinstance(error, HandshakeRefused) and error.status == status),
                    on_close=told.append,
                )
            site.drop()
            clock.advance(600.0)
            assert len(site.dials) == 2
            assert peer.is_closed
            assert [reason.will_retry for reason in told] == [True, False]


def test_it_may_close_from_its_hook() -> None:
    told: list[CloseReason] = []
    peers: list[Peer] = []

    def retry_if(error: Exception) -> bool:
        peers[0].close()
        return True

    with FakeClock() as clock:
        site = Site(clock, 403)
        with site.server:
            with clock.held():
                peers.append(
                    connect(
                        site.server.url,
                        clock=clock,
                        heartbeat=None,
                        reconnect=SCHEDULE,
                        retry_if=retry_if,
                        on_close=told.append,
                    )
                )
            site.drop()
            clock.advance(600.0)
            assert len(site.dials) == 2
            assert peers[0].is_closed
            assert [reason.will_retry for reason in told] == [True, False]


def test_a_refusal_of_the_first_dial_is_raised() -> None:
    def refuse(connection: Connection) -> None:
        connection.answer("HTTP/1.1 401 Unauthorized\nWWW-Authenticate: Bearer\nContent-Length: 0")

    with Scripted(refuse) as server:
        with pytest.raises(HandshakeRefused) as refused:
            connect(server.url)
        assert refused.value.status == 401
        assert ("www-authenticate", "Bearer") in [(name.lower(), value) for name, value in refused.value.headers]
        assert len(server.connections) == 1
