"""How long to wait before the next dial: a pure function of the number of failures so far (seed A, "The backoff
schedule").

`initial_delay * factor ** attempts`, never above `max_delay`, and then spread by `jitter`, capped delays too: peers
that lost the same server at the same moment must not come back at the same moment. Random numbers are the caller's to
give. Defined for every number of attempts, so that no redial loop can die of it.

Called by the supervisor of a dialer and by whoever wants to see the schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from zope.interface import implementer

from muxws_green.interfaces import IBackoffPolicy


@implementer(IBackoffPolicy)
@dataclass(frozen=True, slots=True)
class Reconnect:
    """The options of a dialer that redials.

    Args:
        initial_delay: Seconds before the first retry; above 0.
        factor: By how much each delay exceeds the one before; 1 or more.
        max_delay: Seconds that no delay exceeds before jitter; infinity for no cap.
        jitter: The fraction of the delay by which it varies, from 0 to 1.
        max_attempts: How many failures in a row end it; None for never, 0 for no retry at all.

    Raises:
        ValueError: `initial_delay` is not above zero, `factor` not at least 1, `max_delay` NaN, `jitter` not within 0
            to 1 (each also where it is NaN), or `max_attempts` neither None nor an int from 0.
    """

    initial_delay: float = 0.25
    factor: float = 2.0
    max_delay: float = 30.0
    jitter: float = 0.3
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        # Each condition says what is right, so that NaN, for which every comparison is false, is refused too.
        if not self.initial_delay > 0:
            raise ValueError(f"initial_delay must be above 0 seconds, not {self.initial_delay!r}")
        if not self.factor >= 1:
            raise ValueError(f"factor must be 1 or more, not {self.factor!r}: delays may not shrink")
        if math.isnan(self.max_delay):
            raise ValueError("max_delay must be a number of seconds, not NaN")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter must be a fraction from 0 to 1, not {self.jitter!r}")
        attempts = self.max_attempts
        if attempts is not None and (isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 0):
            raise ValueError(f"max_attempts must be an int from 0, or None for no limit, not {attempts!r}")

    def delay(self, attempts: int, draw: Callable[[], float]) -> float:
        """Seconds to wait after `attempts` failures; see `backoff_delay`."""
        return backoff_delay(attempts, self, draw)

    def should_retry(self, attempts: int) -> bool:
        """Whether another attempt is allowed after `attempts` failures."""
        return should_retry(attempts, self)


def backoff_delay(attempts: int, options: Reconnect, draw: Callable[[], float]) -> float:
    """Seconds to wait after `attempts` failures, jitter included; never negative.

    Args:
        attempts: Failures so far, from 0.
        options: The schedule.
        draw: Gives a number in [-1, 1): where within the jitter this delay falls.

    Raises:
        ValueError: `attempts` is negative.
    """
    # In this order `max` gives 0.0 for NaN as well, which infinity times zero is.
    return max(0.0, unjittered_delay(attempts, options) * (1.0 + options.jitter * draw()))


def unjittered_delay(attempts: int, options: Reconnect) -> float:
    """The same before jitter, with the cap; never negative.

    Raises:
        ValueError: `attempts` is negative.
    """
    if attempts < 0:
        raise ValueError(f"attempts must be 0 or more, not {attempts!r}")
    try:
        # A power of 1 is not worth a failure, which a huge exponent would be.
        power = 1.0 if options.factor == 1 else float(options.factor) ** attempts
        grown = options.initial_delay * power
    except OverflowError:
        # Whatever grows out of the range of floats is above every cap.
        grown = math.inf
    return max(0.0, float(min(grown, options.max_delay)))


def should_retry(attempts: int, options: Reconnect) -> bool:
    """Whether another attempt is allowed after `attempts` failures."""
    return options.max_attempts is None or attempts < options.max_attempts
