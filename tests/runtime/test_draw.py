"""The draw of the backoff's jitter."""

from __future__ import annotations

from muxws_green.protocol.backoff import Reconnect
from muxws_green.runtime.draw import backoff_delay, uniform


def test_uniform_fills_its_range():
    drawn = [uniform() for _ in range(2000)]
    assert all(-1 <= number < 1 for number in drawn)
    assert min(drawn) < -0.9
    assert max(drawn) > 0.9


def test_delays_differ_unless_the_draw_is_given():
    options = Reconnect(jitter=0.3)
    delays = {backoff_delay(20, options) for _ in range(50)}
    assert len(delays) > 40
    assert all(21.0 <= delay < 39.0 for delay in delays)
    assert backoff_delay(2, options, draw=lambda: 0.0) == 1.0
