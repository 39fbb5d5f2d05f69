"""The twelve fields of a frame and the judgement of what a remote sent (PROTOCOL §3)."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxws_green.errors import ProtocolError, ResetCode
from muxws_green.protocol.frames import ABSENT, FRAME_TYPES, Frame, check_envelope, clip_utf8, from_mapping, to_mapping
from tests.values import frames


def test_absent_is_falsy_and_names_itself():
    assert not ABSENT
    assert repr(ABSENT) == "ABSENT"


@pytest.mark.parametrize(
    "clone",
    [copy.copy, copy.deepcopy]
    + [lambda value, n=n: pickle.loads(pickle.dumps(value, n)) for n in range(pickle.HIGHEST_PROTOCOL + 1)],
)
def test_absent_stays_the_same_object(clone):
    assert clone(ABSENT) is ABSENT
    assert clone([ABSENT])[0] is ABSENT
    if clone is not copy.copy:
        assert clone(Frame("data", 1)).payload is ABSENT


def test_frame_is_frozen_and_compared_by_value():
    frame = Frame("data", 1, payload={"a": 1})
    assert frame == Frame("data", stream=1, payload={"a": 1})
    assert frame != Frame("data", stream=1, payload={"a": 2})
    with pytest.raises(AttributeError):
        frame.stream = 3
    assert not hasattr(frame, "__dict__")


def test_absent_payload_and_null_are_different_frames():
    assert Frame("data", 1) != Frame("data", 1, payload=None)
    assert "payload" not in to_mapping(Frame("data", 1))
    assert to_mapping(Frame("data", 1, payload=None))["payload"] is None


def test_order_of_keys_on_the_wire():
    frame = Frame(
        type="reset",
        stream=5,
        payload=0,
        fragment="x",
        more=True,
        headers={},
        end=True,
        trailers={},
        code=ResetCode.NO_ERROR,
        reason="",
        nonce="",
        last_stream=0,
    )
    assert list(to_mapping(frame)) == [
        "type",
        "stream",
        *("code", "end", "fragment", "headers", "last_stream", "more", "nonce", "payload", "reason", "trailers"),
    ]


@pytest.mark.parametrize("payload", [None, False, 0, "", [], {}])
def test_falsy_payloads_are_sent(payload):
    assert to_mapping(Frame("data", 1, payload=payload)) == {"type": "data", "stream": 1, "payload": payload}


def test_defaults_are_omitted():
    assert to_mapping(Frame("data")) == {"type": "data"}


@given(frames("msgpack"))
def test_a_frame_survives_its_envelope(frame):
    assert from_mapping(to_mapping(frame)) == frame


ACCEPTED = {
    "smallest": ({"type": "data"}, {"type": "data"}),
    "unknown type": ({"type": "window_update"}, {"type": "window_update"}),
    "unknown fields": ({"type": "data", "x": 1, 5: 6, b"type": 1, None: 2}, {"type": "data"}),
    "stream 0": ({"type": "ping", "stream": 0}, {"type": "ping", "stream": 0}),
    "integral floats": (
        {"type": "goaway", "stream": 7.0, "code": -1.0, "last_stream": 4.0},
        {"type": "goaway", "stream": 7, "code": -1, "last_stream": 4},
    ),
    "minus zero": ({"type": "data", "stream": -0.0}, {"type": "data", "stream": 0}),
    "negative code": ({"type": "reset", "stream": 1, "code": -5}, {"type": "reset", "stream": 1, "code": -5}),
    "null payload": ({"type": "data", "payload": None}, {"type": "data", "payload": None}),
    "nulls that count as absent": (
        dict.fromkeys(("stream", "fragment", "headers", "trailers", "code", "reason", "nonce", "last_stream"), None)
        | {"type": "data"},
        {"type": "data"},
    ),
    "null fragment": ({"type": "data", "fragment": None}, {"type": "data"}),
    "fragments": (
        {"type": "data", "fragment": b"\x00", "more": True},
        {"type": "data", "fragment": b"\x00", "more": True},
    ),
    "empty fragment": ({"type": "data", "fragment": ""}, {"type": "data", "fragment": ""}),
    "empty headers": ({"type": "open", "headers": {}}, {"type": "open", "headers": {}}),
    "false flags": ({"type": "data", "more": False, "end": False}, {"type": "data", "more": False, "end": False}),
}


@pytest.mark.parametrize("envelope, expected", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(envelope, expected):
    before = dict(envelope)
    checked = check_envelope(envelope)
    assert checked == expected
    assert {name: type(value) for name, value in checked.items()} == {n: type(v) for n, v in expected.items()}
    assert envelope == before
    assert from_mapping(envelope) == Frame(**expected)


REFUSED = (
    {
        "no type": {},
        "only unknown": {"typ": "data"},
        "null type": {"type": None},
        "type int": {"type": 1},
        "type bytes": {"type": b"data"},
        "payload and fragment": {"type": "data", "payload": 1, "fragment": "x"},
        "null payload and fragment": {"type": "data", "payload": None, "fragment": "x"},
        "payload and null fragment": {"type": "data", "payload": 1, "fragment": None},
        "both null": {"type": "data", "payload": None, "fragment": None},
        "null more": {"type": "data", "more": None},
        "null end": {"type": "data", "end": None},
        "more int": {"type": "data", "more": 1},
        "end str": {"type": "data", "end": "true"},
        "fragment int": {"type": "data", "fragment": 1},
        "fragment list": {"type": "data", "fragment": ["x"]},
        "headers list": {"type": "data", "headers": []},
        "headers int key": {"type": "data", "headers": {1: "a"}},
        "trailers bytes key": {"type": "data", "trailers": {b"a": "a"}},
        "reason int": {"type": "reset", "reason": 1},
        "reason bytes": {"type": "reset", "reason": b"a"},
        "nonce int": {"type": "ping", "nonce": 1},
    }
    | {
        f"{name} {value!r}": {"type": "goaway", name: value}
        for name in ("stream", "code", "last_stream")
        for value in (True, False, "1", 1.5, float("inf"), float("nan"), [1])
    }
    | {
        f"{name} {value!r}": {"type": "goaway", name: value}
        for name in ("stream", "last_stream")
        for value in (-1, -1.0)
    }
)


@pytest.mark.parametrize("envelope", REFUSED.values(), ids=REFUSED)
def test_refused(envelope):
    with pytest.raises(ProtocolError):
        check_envelope(envelope)
    with pytest.raises(ProtocolError):
        from_mapping(envelope)


def test_a_refusal_shows_no_value():
    with pytest.raises(ProtocolError) as caught:
        check_envelope({"type": "open", "headers": "Bearer secret"})
    assert "secret" not in str(caught.value)
    assert "'headers'" in str(caught.value)


@given(
    st.dictionaries(
        st.sampled_from(["type", "stream", "payload", "fragment", "more", "headers", "end", "code", "reason", "x"]),
        st.none()
        | st.booleans()
        | st.integers(-2, 2)
        | st.floats()
        | st.text(max_size=2)
        | st.dictionaries(st.text(max_size=1) | st.integers(0, 1), st.none(), max_size=2),
    )
)
def test_checking_twice_changes_nothing(envelope):
    try:
        checked = check_envelope(envelope)
    except ProtocolError:
        return
    assert check_envelope(checked) == checked


def test_frame_types():
    assert {"open", "data", "reset", "ping", "pong", "goaway"} == FRAME_TYPES


@pytest.mark.parametrize(
    "text, limit, expected",
    [
        ("abc", 3, "abc"),
        ("abc", 2, "ab"),
        ("aé", 2, "a"),
        ("aé", 3, "aé"),
        ("€", 2, ""),
        ("😀😀", 7, "😀"),
        ("", 5, ""),
        ("abc", 0, ""),
        ("abc", -1, ""),
        ("a\ud83d", 10, "a?"),
        ("\ud83d\ude00x", 2, "??"),
    ],
)
def test_clip(text, limit, expected):
    assert clip_utf8(text, limit) == expected


@given(st.text(st.characters(exclude_categories=[])), st.integers(-5, 60))
def test_clip_gives_the_longest_beginning_that_fits(text, limit):
    whole = text.encode("utf-8", "replace").decode()
    clipped = clip_utf8(text, limit)
    assert len(clipped.encode()) <= max(0, limit)
    assert whole.startswith(clipped)
    if clipped != whole:
        assert len(whole[: len(clipped) + 1].encode()) > limit
