"""The peers that this process has accepted and not yet lost, so that they can be told to go.

Nobody tells long-lived connections that a server stops: the host sits through its whole grace time and then cuts them
(C19). Here each of them gets a goaway, may finish its streams, and is closed with 1001. The set is weak and keeps
nobody alive. Peers are added by `accept`; draining is started by `Server` and by the application's signal handler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, Protocol
from weakref import WeakSet

import gevent

from muxws_green.runtime.home import Home, owners_of_one_process

#: What the close frames say.
REASON = "server is going away"

#: How much longer than its drain the close of one peer may take: its close frame, and the wait for the answer.
CLOSING_SECONDS = 2.0


class Drainable(Protocol):
    """What a peer must have to be drained."""

    _home: Home

    @property
    def id(self) -> str:
        """The peer's name in logs."""

    @property
    def is_closed(self) -> bool:
        """Whether the connection is over for good."""

    def _close(self, *, ws_code: int, reason: str, drain: float) -> None:
        """Goaway; wait up to `drain` seconds for live streams and queued frames; close with `ws_code`.

        Returns when the connection is over.
        """

    def run_threadsafe(self, function: Callable[[], Any]) -> Future[Any]:
        """Run `function` in the peer's own hub."""

    def disown(self) -> None:
        """See `home.Owner`."""


#: Every accepted peer that is not gone. A forked child's are its own alone.
live: WeakSet[Drainable] = owners_of_one_process()

_closed_for_good = False


def add(peer: Drainable) -> None:
    """Count `peer` among those that `drain_all` reaches, and that are told in forked children."""
    live.add(peer)


def is_open() -> bool:
    """Whether this process still takes peers: False from the call of `drain_all` on."""
    return not _closed_for_good


def reopen() -> None:
    """Take peers again after `drain_all`."""
    global _closed_for_good
    _closed_for_good = False


def drain(peers: Iterable[Drainable], timeout: float, code: int = 1001) -> int:
    """Close all `peers` at once, each as soon as its own streams have finished.

    Args:
        timeout: How many seconds streams may take to finish; 0 or less: none.
        code: The WebSocket close code.

    Returns:
        How many of them are still there after that.
    """
    patience = max(timeout, 0.0)
    leaving = [peer for peer in list(peers) if not peer.is_closed]
    closing = [gevent.spawn(_send_away, peer, patience, code) for peer in leaving]
    for greenlet, peer in zip(closing, leaving, strict=True):
        greenlet.name = f"drain {peer.id}"
    gevent.joinall(closing, timeout=patience + CLOSING_SECONDS)
    return sum(not peer.is_closed for peer in leaving)


def _send_away(peer: Drainable, patience: float, code: int) -> None:
    close = partial(peer._close, ws_code=code, reason=REASON, drain=patience)
    if peer._home.here:
        close()
    else:
        # Another thread has a hub of its own. A third waits for it, since this one has other things to do.
        closing = peer.run_threadsafe(close)
        gevent.get_hub().threadpool.apply(wait, ([closing], patience + CLOSING_SECONDS))
        # Otherwise its hub is blocked.
        if closing.done():
            closing.result()


def drain_all(timeout: float = 10.0) -> int:
    """Send away every peer that this process has accepted, and take no new ones: an upgrade is answered with 503.

    For hosts that we do not own; the listener stays the host's to close. Each peer gets a goaway, may finish its
    streams, and is closed with 1001. Under pywsgi:

        gevent.signal_handler(signal.SIGTERM, lambda: (drain_all(), server.stop()))

    Under gunicorn, in its configuration file, with a `graceful_timeout` that is not shorter:

        def post_worker_init(worker):
            gevent.signal_handler(signal.SIGTERM, lambda: (worker.handle_exit(None, None), drain_all()))

    Args:
        timeout: How many seconds streams may take to finish; 0: none.

    Returns:
        How many peers were still there in the end, 0 in a process whose hub was not blocked. As soon as all are gone.
    """
    global _closed_for_good
    _closed_for_good = True
    return drain(live, timeout)
