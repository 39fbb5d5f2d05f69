"""What a connection keeps of one live stream. Nothing is kept of a closed one (PROTOCOL §6)."""

from __future__ import annotations

from typing import Any

from muxws_green.protocol.assembler import Assembler
from muxws_green.protocol.lanes import Lane
from muxws_green.protocol.states import StreamState


class LiveStream:
    """One live stream as the connection machine sees it. Only `Connection` changes it.

    Args:
        stream_id: Its id on the wire.
        local: Whether this end opened it.
        state: Where it stands, from this end.
    """

    __slots__ = (
        "answered",
        "assembler",
        "heard",
        "id",
        "lane",
        "local",
        "opening",
        "opening_bytes",
        "owner",
        "running",
        "state",
    )

    def __init__(self, stream_id: int, local: bool, state: StreamState) -> None:
        self.id = stream_id
        self.local = local
        self.state = state
        self.lane = Lane(stream_id)
        #: The pieces of a payload that is being collected.
        self.assembler: Assembler | None = None
        #: True from the first fragment of the remote's `open` to the last: those are what is being collected.
        self.opening = False
        #: What the remote's opening payload weighs that a handler is given.
        self.opening_bytes = 0
        #: This end has sent its first frame, the remote its first: headers ride those only.
        self.answered = local
        self.heard = not local
        #: A handler works on it; until that ends it counts against the limit, closed or not.
        self.running = False
        #: Whatever the user of the machine wants to find from here.
        self.owner: Any = None
