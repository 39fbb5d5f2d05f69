"""Two peers that talk to each other in this process: everything is real but the socket.

Both are established and read from the start. Nothing runs before the caller first waits, so that handlers and hooks
may be registered in peace. Neither dials again: the loss of the connection is the end of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from muxws_green.api.options import READ_FACTOR
from muxws_green.codecs.registry import resolve_codec
from muxws_green.interfaces import ICodec, ITransport
from muxws_green.runtime.options import Options
from muxws_green.runtime.peer import Peer
from muxws_green.transports.memory import MemoryTransport, memory_pair


@dataclass(frozen=True)
class PeerPair:
    """What `peer_pair` makes; unpacks into the dialer and the acceptor. Leaving it as a context manager drops it.

    Attributes:
        dialer: The end that opens odd ids.
        acceptor: The end that opens even ids.
        dialer_transport: The dialer's end of the line: what it has sent, and where faults are made.
        acceptor_transport: The acceptor's end.
    """

    dialer: Peer
    acceptor: Peer
    dialer_transport: MemoryTransport
    acceptor_transport: MemoryTransport

    def __iter__(self) -> Iterator[Peer]:
        return iter((self.dialer, self.acceptor))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    def drop(self) -> None:
        """Let the connection die without a close frame; nothing where it is over."""
        self.dialer_transport.drop()


def peer_pair(
    *,
    codec: ICodec | str | None = None,
    dialer: Mapping[str, Any] | None = None,
    acceptor: Mapping[str, Any] | None = None,
    capacity_bytes: int | None = None,
    **options: Any,
) -> PeerPair:
    """A dialer and an acceptor, connected in memory.

    Args:
        codec: A codec or a registered name, for both; None: what `settings.codec` says.
        dialer: Options of the dialer alone.
        acceptor: Options of the acceptor alone.
        capacity_bytes: How many bytes may be under way in each direction before its sender waits; None: no bound.
        options: Options of both: `max_payload_bytes`, `max_concurrent_streams`, `max_frame_bytes`,
            `send_buffer_bytes`, `receive_buffer_bytes`, `receive_pause_timeout`, `error_serializer`, `heartbeat`
            (None unless given), `clock`; as `connect` has them.

    Raises:
        CodecNotRegistered, ValueError, TypeError, ProtocolError: An option is wrong.
    """
    options["codec"] = resolve_codec(codec)
    of_dialer, of_acceptor = Options(**options | dict(dialer or {})), Options(**options | dict(acceptor or {}))
    left, right = memory_pair(capacity_bytes=capacity_bytes)
    left.max_message_bytes = READ_FACTOR * of_dialer.max_frame_bytes
    right.max_message_bytes = READ_FACTOR * of_acceptor.max_frame_bytes
    return PeerPair(
        established_peer(left, of_dialer, dialer=True), established_peer(right, of_acceptor, dialer=False), left, right
    )


def established_peer(transport: ITransport, options: Options, *, dialer: bool) -> Peer:
    """A peer on an open socket, established, whose reader is about to start; it never dials.

    Args:
        transport: The socket; the peer's from now on.
        options: The peer's settings.
        dialer: Which stream ids it opens.
    """
    peer = Peer(options, dialer=dialer)
    link = peer._attach(transport)
    # An acceptor is established already; a dialer's Supervisor would say so after the hello.
    peer._established = True
    link.start_reading()
    return peer
