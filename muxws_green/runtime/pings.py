"""Pings that somebody asked for and that have not been answered (PROTOCOL §7).

Keyed by nonce, so that a pong which comes too late never settles another ping. The heartbeat's pings are not here.
"""

from __future__ import annotations

import secrets

from muxws_green.errors import ConnectionClosed
from muxws_green.runtime.waiting import Parking, WaitList


def new_nonce() -> str:
    """A nonce that a remote cannot guess."""
    return secrets.token_hex(8)


class _Ping:
    __slots__ = ("began", "error", "took", "waiters")

    def __init__(self, parking: Parking) -> None:
        self.began = parking.clock.now()
        self.took: float | None = None
        self.error: ConnectionClosed | None = None
        self.waiters = WaitList(parking)


class Pings:
    """The outstanding pings of one connection.

    Args:
        parking: The connection's waits.
    """

    def __init__(self, parking: Parking) -> None:
        self._parking = parking
        self._pending: dict[str, _Ping] = {}
        #: Seconds of the last round trip; None before the first.
        self.last_round_trip: float | None = None

    def begin(self) -> str:
        """Note that a ping is about to be queued.

        Returns:
            Its nonce.
        """
        nonce = new_nonce()
        self._pending[nonce] = _Ping(self._parking)
        return nonce

    def wait(self, nonce: str, timeout: float | None) -> float:
        """Wait for the pong with `nonce`.

        Returns:
            The round trip in seconds.

        Raises:
            ConnectionClosed: None came within `timeout` seconds (1006; the connection is left alone), or the
                connection ended.
        """
        ping = self._pending[nonce]
        until = None if timeout is None else self._parking.clock.now() + timeout
        try:
            while ping.took is None:
                if ping.error is not None:
                    raise ConnectionClosed(
                        str(ping.error), code=ping.error.code, reason=ping.error.reason, was_clean=ping.error.was_clean
                    ) from ping.error
                if not ping.waiters.wait(until) and ping.took is None and ping.error is None:
                    raise ConnectionClosed(f"no pong within {timeout} s", code=1006)
            return ping.took
        finally:
            self._pending.pop(nonce, None)

    def settle(self, nonce: str) -> bool:
        """A pong has arrived. False where nobody waits for it."""
        ping = self._pending.get(nonce)
        if ping is None:
            return False
        ping.took = self.last_round_trip = self._parking.clock.now() - ping.began
        ping.waiters.wake()
        return True

    def fail(self, cause: ConnectionClosed) -> None:
        """The connection is over: everybody who waits is told."""
        for ping in self._pending.values():
            ping.error = cause
            ping.waiters.wake()
