"""What can be set on a peer, checked once and together before any socket opens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from zope.interface import directlyProvides

from muxws_green.codecs.envelopes import bulk_of, envelopes_of
from muxws_green.interfaces import IBulkCodec, IClock, ICodec, IEnvelopeCodec, IErrorSerializer, IHeartbeatPolicy
from muxws_green.protocol.fragments import MAX_FRAME_BYTES, checked_cap
from muxws_green.runtime.clock import default_clock


def default_error_serializer(error: BaseException) -> Any:
    """The payload of a handler's error: its class name and text. A public peer should redact instead.

    Args:
        error: What the handler raised.

    Returns:
        A dict with `type` and `message`.
    """
    return {"type": type(error).__name__, "message": str(error)}


directlyProvides(default_error_serializer, IErrorSerializer)


def checked_seconds(name: str, value: float | None, *, allow_none: bool = False) -> float | None:
    """`value` as a duration: a finite or infinite number of seconds that is not negative.

    Raises:
        ValueError: For NaN, a negative number, a bool, no number, or None where that has no meaning.
    """
    if value is None and allow_none:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value) or value < 0:
        raise ValueError(f"{name} is a number of seconds, 0 or more, not {value!r}")
    return float(value)


def deadline(clock: IClock, timeout: float | None) -> float | None:
    """The clock's time at which a wait of `timeout` seconds from now ends; None for one without an end.

    Raises:
        ValueError: As `checked_seconds`.
    """
    if timeout is None or checked_seconds("timeout", timeout) == math.inf:
        return None
    return clock.now() + timeout


def checked_count(name: str, value: int) -> int:
    """`value` as a positive whole number.

    Raises:
        ValueError: For zero, a negative number, a bool or no int.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is a whole number, 1 or more, not {value!r}")
    return value


def check_callable(name: str, value: object) -> None:
    """Do nothing for what can be called.

    Raises:
        TypeError: It cannot, which would show only when it is needed.
    """
    if not callable(value):
        raise TypeError(f"{name} is called, which {value!r} cannot be")


def check_methods(name: str, value: object, *methods: str) -> None:
    """Do nothing for an object that has these methods.

    Raises:
        TypeError: It lacks one.
    """
    for method in methods:
        if isinstance(value, type) or not callable(getattr(value, method, None)):
            raise TypeError(f"{name} needs a method {method}(), which {value!r} has not")


@dataclass(frozen=True)
class Options:
    """The settings of one peer; every default is the public one.

    Args:
        codec: The codec of its connections.
        max_payload_bytes: Largest payload taken from the remote, whole or in fragments. A local limit.
        max_concurrent_streams: Live streams that the remote may have here; one more is refused.
        max_frame_bytes: Cap of one encoded message. For tests only.
        send_buffer_bytes: What may be queued to be sent before senders wait.
        receive_buffer_bytes: What may be delivered and not consumed before the reader pauses; four times as much ends
            the stream that holds most.
        receive_pause_timeout: Seconds that a pause may last without progress on the stream that holds most.
        error_serializer: Makes the payload of a failed handler's reset; None: the default one.
        heartbeat: The heartbeat policy; None sends no pings.
        clock: The source of time.

    Raises:
        ValueError: A limit is not a positive whole number, a duration is negative or NaN.
        TypeError: The heartbeat, the clock or the serializer is none.
        ProtocolError: `max_frame_bytes` cannot hold an envelope and one unit of payload.
    """

    codec: ICodec
    max_payload_bytes: int = 67_108_864
    max_concurrent_streams: int = 100
    max_frame_bytes: int = MAX_FRAME_BYTES
    send_buffer_bytes: int = 16_777_216
    receive_buffer_bytes: int = 16_777_216
    receive_pause_timeout: float = 10.0
    error_serializer: IErrorSerializer | None = None
    heartbeat: IHeartbeatPolicy | None = None
    clock: IClock = default_clock

    @cached_property
    def envelopes(self) -> IEnvelopeCodec:
        """The envelope operations of the codec, looked for once."""
        return envelopes_of(self.codec)

    @cached_property
    def bulk(self) -> IBulkCodec | None:
        """The codec's operations for long bytes, looked for once; None where it has none."""
        return bulk_of(self.codec)

    def __post_init__(self) -> None:
        checked_count("max_payload_bytes", self.max_payload_bytes)
        checked_count("max_concurrent_streams", self.max_concurrent_streams)
        checked_count("send_buffer_bytes", self.send_buffer_bytes)
        checked_count("receive_buffer_bytes", self.receive_buffer_bytes)
        checked_seconds("receive_pause_timeout", self.receive_pause_timeout)
        checked_cap(self.max_frame_bytes, self.codec)
        check_methods("clock", self.clock, "now", "sleep", "call_later", "watch")
        if self.heartbeat is not None:
            check_methods("heartbeat", self.heartbeat, "start")
        if self.error_serializer is not None:
            check_callable("error_serializer", self.error_serializer)
