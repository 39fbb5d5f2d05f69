"""Every setting is judged when the object is made, before anything is opened (DESIGN §2)."""

from __future__ import annotations

import math

import pytest

from muxws_green import IdleHeartbeat, JsonCodec, ProtocolError, Reconnect, WSGIApp, connect
from muxws_green.runtime.options import Options, checked_seconds, deadline
from muxws_green.runtime.plan import Plan
from muxws_green.testing import FakeClock
from tests.runtime.ends import MemoryDialer, echo

#: Nothing listens there, and nothing is to be asked.
NOWHERE = "ws://127.0.0.1:1/"

COUNTS = ["max_payload_bytes", "max_concurrent_streams", "send_buffer_bytes", "receive_buffer_bytes"]


def test_the_defaults_are_the_public_ones():
    options = Options(codec=JsonCodec())
    assert options.max_payload_bytes == 67_108_864
    assert options.max_concurrent_streams == 100
    assert options.max_frame_bytes == 65_536
    assert options.send_buffer_bytes == 16 * 1_048_576
    assert options.receive_buffer_bytes == 16 * 1_048_576
    assert options.receive_pause_timeout == 10.0
    assert options.error_serializer is None
    assert options.heartbeat is None


WRONG = [
    *[(name, value, ValueError) for name in COUNTS for value in (0, -1, 1.5, "1", True, None)],
    *[("receive_pause_timeout", value, ValueError) for value in (-1, math.nan, "1", True, None)],
    *[("max_frame_bytes", value, (ProtocolError, ValueError, TypeError)) for value in (0, -1, 10, "1")],
    *[("error_serializer", value, TypeError) for value in ("text", 7)],
    *[("heartbeat", value, TypeError) for value in ("text", 20.0, IdleHeartbeat, object())],
    *[("clock", value, TypeError) for value in (None, 7, FakeClock, object())],
]


@pytest.mark.parametrize("make", ["connect", "WSGIApp"])
@pytest.mark.parametrize("name, value, error", WRONG)
def test_what_is_wrong_raises_before_anything_is_opened(make, name, value, error):
    with pytest.raises(error) as caught:
        if make == "connect":
            connect(NOWHERE, **{name: value})
        else:
            WSGIApp(echo, **{name: value})
    assert not isinstance(caught.value, OSError)
    # The message names what is wrong.
    assert name in str(caught.value) or name == "max_frame_bytes"


@pytest.mark.parametrize(
    "options",
    [
        {"retry_if": "always"},
        {"reconnect": False},
        {"reconnect": Reconnect},
        {"reconnect": 3},
        {"on_stream": "handler"},
        {"on_close": 7},
        {"on_reconnect": [print]},
        {"open_interceptors": ["x"]},
        {"reply_headers_interceptors": [None]},
        {"incoming_headers_interceptors": [7]},
    ],
    ids=str,
)
def test_what_is_called_later_must_be_callable(options):
    with pytest.raises(TypeError) as caught:
        connect(NOWHERE, **options)
    assert "cannot be" in str(caught.value) or "has not" in str(caught.value)


@pytest.mark.parametrize("register", ["on_stream", "on_close", "on_reconnect", "on_frame", "intercept_open"])
def test_registrations_are_judged_too(make, register):
    made = make()
    with pytest.raises(TypeError, match="cannot be"):
        getattr(made.near, register)("text")


@pytest.mark.parametrize("value", [0, 0.0, 1, 2.5, math.inf])
def test_durations(value):
    assert checked_seconds("timeout", value) == value
    assert isinstance(checked_seconds("timeout", value), float)


def test_none_is_a_duration_only_where_it_means_something():
    assert checked_seconds("timeout", None, allow_none=True) is None
    with pytest.raises(ValueError, match="timeout"):
        checked_seconds("timeout", None)


def test_deadlines(clock):
    clock.advance(5.0)
    assert deadline(clock, None) is None
    assert deadline(clock, math.inf) is None
    assert deadline(clock, 2.5) == 7.5
    assert deadline(clock, 0) == 5.0
    with pytest.raises(ValueError, match="timeout"):
        deadline(clock, -1)


def test_a_policy_of_somebody_elses_needs_only_its_two_methods():
    class Policy:
        def delay(self, attempts, draw):
            return 0.0

        def should_retry(self, attempts):
            return False

    options = Options(codec=JsonCodec())
    Plan(options, MemoryDialer(options), Policy())
    with pytest.raises(TypeError, match="reconnect needs a method"):
        Plan(options, MemoryDialer(options), object())
