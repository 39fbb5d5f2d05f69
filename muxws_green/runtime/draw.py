"""Where the random numbers of the backoff come from; `protocol` has none of its own.

Jitter spreads dials in time and protects nothing, so ordinary random numbers do.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from muxws_green.protocol import backoff
from muxws_green.protocol.backoff import Reconnect


def uniform() -> float:
    """A number in [-1, 1), each as likely as any other."""
    return random.random() * 2.0 - 1.0


def backoff_delay(attempts: int, options: Reconnect, draw: Callable[[], float] = uniform) -> float:
    """Seconds that a dialer waits after `attempts` failures in a row (seed A, "The backoff schedule").

    Args:
        attempts: Failures so far; 0 gives the delay of the first retry after a loss.
        options: The schedule.
        draw: Gives a number in [-1, 1); a fixed one makes the result exact.

    Returns:
        `min(initial_delay * factor ** attempts, max_delay) * (1 + jitter * draw())`; never negative, for any count.

    Raises:
        ValueError: `attempts` is negative.
    """
    return backoff.backoff_delay(attempts, options, draw)
