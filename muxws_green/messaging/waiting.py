"""Waiting for an event in the time of an `IClock`."""

from __future__ import annotations

import math

from gevent.event import Event

from muxws_green.interfaces import IClock


def seconds(name: str, value: float) -> float:
    """`value` as a duration, 0 or more, which may be infinite.

    Raises:
        ValueError: For NaN, a negative number, a bool or no number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ValueError(f"{name} is a number of seconds, 0 or more, not {value!r}")
    return float(value)


def deadline(clock: IClock, timeout: float | None) -> float | None:
    """The clock's time at which a wait of `timeout` seconds from now ends; None for one without an end.

    Raises:
        ValueError: As `seconds`.
    """
    if timeout is None or seconds("timeout", timeout) == math.inf:
        return None
    return clock.now() + timeout


def wait(event: Event, clock: IClock, until: float | None) -> bool:
    """Wait for `event`, until the clock's time `until`; None: for ever.

    Returns:
        Whether it is set.
    """
    if until is None:
        event.wait()
        return True
    if event.is_set():
        return True
    woken = Event()

    def wake(_event: object = None) -> None:
        woken.set()

    event.rawlink(wake)
    timer = clock.call_later(max(until - clock.now(), 0.0), wake)
    try:
        woken.wait()
    finally:
        timer.cancel()
        event.unlink(wake)
    return event.is_set()
