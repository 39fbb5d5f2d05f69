"""Strategies for payloads, headers and frames that both codecs, or one of them, can carry."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from muxws_green.protocol.frames import ABSENT, Frame

INTEGERS = st.integers(-(2**63), 2**64 - 1)
#: What UTF-8 can carry, with a taste for what JSON escapes.
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\n\x00\x1f\x7fé€😀'), max_size=30)
SCALARS = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXT


def nest(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lists and objects of `leaves`."""
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5), max_leaves=15
    )


JSON_PAYLOADS = nest(SCALARS)
MSGPACK_PAYLOADS = nest(SCALARS | st.binary(max_size=30) | st.sampled_from([float("inf"), float("-inf")]))


def payloads(codec_name: str) -> st.SearchStrategy[Any]:
    """Values that the codec gives back as they were."""
    return MSGPACK_PAYLOADS if codec_name == "msgpack" else JSON_PAYLOADS


def metadata(codec_name: str) -> st.SearchStrategy[dict[str, Any] | None]:
    """Headers or trailers, or None."""
    return st.none() | st.dictionaries(TEXT, payloads(codec_name), max_size=3)


STREAMS = st.sampled_from([1, 127, 128, 255, 256, 65_535, 65_536, 2**31 - 1]) | st.integers(0, 2**31 - 1)


@st.composite
def frames(draw: st.DrawFn, codec_name: str) -> Frame:
    """Any frame that PROTOCOL §3 allows, and some more: the codecs do not know which field belongs on which type."""
    fragments: st.SearchStrategy[Any] = st.binary(max_size=40) if codec_name == "msgpack" else TEXT
    body = draw(st.sampled_from(["none", "payload", "fragment"]))
    return Frame(
        type=draw(st.sampled_from(["open", "data", "reset", "ping", "pong", "goaway"]) | TEXT),
        stream=draw(st.none() | STREAMS),
        payload=draw(payloads(codec_name)) if body == "payload" else ABSENT,
        fragment=draw(fragments) if body == "fragment" else None,
        more=draw(st.booleans()),
        headers=draw(metadata(codec_name)),
        end=draw(st.booleans()),
        trailers=draw(metadata(codec_name)),
        code=draw(st.none() | st.integers(-5, 2**32)),
        reason=draw(st.none() | TEXT),
        nonce=draw(st.none() | TEXT),
        last_stream=draw(st.none() | STREAMS),
    )
