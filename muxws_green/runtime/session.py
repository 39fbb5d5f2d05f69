"""One connection of a dialer that is kept connected, for a layer above that has something of its own for each of them.

`Peer` stays and its sockets come and go; a `Session` is one of those, from when it is established to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gevent import getcurrent

from muxws_green.errors import ConnectionClosed, ResetCode
from muxws_green.runtime.greenlets import OwnGreenlet
from muxws_green.runtime.options import checked_seconds
from muxws_green.runtime.parting import Parting

if TYPE_CHECKING:
    from muxws_green.runtime.link import Link
    from muxws_green.runtime.peer import Peer


class Session:
    """An established connection of `peer`; the Supervisor makes one for each.

    Args:
        peer: The dialer.
        link: Its present socket.
    """

    __slots__ = ("_link", "_peer")

    def __init__(self, peer: Peer, link: Link) -> None:
        self._peer = peer
        self._link = link

    def on_end(self, callback: Callable[[ConnectionClosed], object]) -> None:
        """Call `callback(cause)` at the end of this connection, when its streams have been failed and before anything
        of the next one. It must neither switch nor raise.
        """
        link = self._link

        def ended(_peer: Peer) -> None:
            assert link.cause is not None
            callback(link.cause)

        self._peer._on_loss(ended)

    def close(self, drain: float = 10.0) -> None:
        """Send goaway, let streams finish and close with 1000; the peer dials again. Nothing where it is over.

        Where the caller is one of the connection's own greenlets it returns at once and goes on in the background.

        Args:
            drain: Seconds that streams and queued frames may take; 0 for none.

        Raises:
            ValueError: `drain` is negative or NaN.
        """
        link = self._link
        link.home.check()
        seconds = checked_seconds("drain", drain) or 0.0
        if link.runs_in(getcurrent()):
            OwnGreenlet(
                f"closer {link.id}", Parting.close, link.parting, ResetCode.NO_ERROR, None, seconds, 1000
            ).start()
        else:
            link.parting.close(ResetCode.NO_ERROR, None, seconds, 1000)
