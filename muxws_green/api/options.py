"""What `connect` and `accept` have in common: limits, the heartbeat, interceptors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from muxws_green.interfaces import IHeartbeatPolicy
from muxws_green.protocol.liveness import IdleHeartbeat
from muxws_green.runtime.hooks import IncomingHeadersInterceptor, OpenInterceptor, ReplyHeadersInterceptor
from muxws_green.runtime.peer import Peer


class Default:
    """The type of `DEFAULT`."""

    def __repr__(self) -> str:
        return "DEFAULT"


#: `heartbeat=DEFAULT`: an `IdleHeartbeat` of `ping_interval` and `ping_timeout`.
DEFAULT: Final = Default()

#: How much longer than the cap a message may be and still be read (PROTOCOL §5).
READ_FACTOR = 2


#: The options that `connect` and `accept` share and hand on as they are.
LIMITS: Final = (
    "max_payload_bytes",
    "max_concurrent_streams",
    "max_frame_bytes",
    "send_buffer_bytes",
    "receive_buffer_bytes",
    "receive_pause_timeout",
    "error_serializer",
    "clock",
)


def resolve_heartbeat(
    heartbeat: IHeartbeatPolicy | Default | None, ping_interval: float, ping_timeout: float
) -> IHeartbeatPolicy | None:
    """The heartbeat policy that the three arguments mean together.

    Raises:
        ValueError: A duration is NaN, or `ping_timeout` is not above 0.
    """
    if not isinstance(heartbeat, Default):
        return heartbeat
    if math.isnan(ping_interval):
        raise ValueError("ping_interval must be a number of seconds, not NaN")
    if not ping_timeout > 0:
        raise ValueError(f"ping_timeout must be above 0 seconds, not {ping_timeout!r}")
    if ping_interval <= 0:
        return None
    return IdleHeartbeat(ping_interval, ping_timeout)


def intercept(
    peer: Peer,
    open_interceptors: Sequence[OpenInterceptor],
    reply_headers_interceptors: Sequence[ReplyHeadersInterceptor],
    incoming_headers_interceptors: Sequence[IncomingHeadersInterceptor],
) -> None:
    """Register each sequence on `peer`, in its order."""
    for of_open in open_interceptors:
        peer.intercept_open(of_open)
    for of_reply in reply_headers_interceptors:
        peer.intercept_reply_headers(of_reply)
    for of_incoming in incoming_headers_interceptors:
        peer.intercept_incoming_headers(of_incoming)
