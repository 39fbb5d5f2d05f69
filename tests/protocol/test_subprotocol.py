"""The assertion of the codec at the handshake (PROTOCOL §2; case C03)."""

from __future__ import annotations

import pytest

from muxws_green.errors import CodecMismatch
from muxws_green.protocol.subprotocol import PREFIX, mismatch, offer, refusal_text, select


def test_our_entry_comes_first():
    assert offer("json") == ["muxws.v1.json"]
    assert offer("msgpack", ["bearer.abc", "x"]) == ["muxws.v1.msgpack", "bearer.abc", "x"]
    assert offer("json", ("x",)) == ["muxws.v1.json", "x"]


def test_a_bare_str_is_no_list_of_entries():
    with pytest.raises(TypeError):
        offer("json", "bearer")


@pytest.mark.parametrize(
    "offered, selected",
    [
        (["muxws.v1.json"], "muxws.v1.json"),
        (["bearer.abc", "muxws.v1.json"], "muxws.v1.json"),
        (["muxws.v2.json", "muxws.v1.json"], "muxws.v1.json"),
        (["muxws.v1.json", "muxws.v1.msgpack"], "muxws.v1.json"),
        (["muxws.v1.msgpack", "muxws.v1.json"], None),
        (["xmuxws.v1.jsonx", "muxws.v1.json"], "muxws.v1.json"),
        (["muxws.v1.jsonx"], None),
        (["xmuxws.v1.json"], None),
        (["muxws.v1.JSON"], None),
        (["MUXWS.v1.json"], None),
        (["muxws.v1."], None),
        (["muxws.v2.json"], None),
        (["muxws.v11.json"], None),
        (["bearer.abc"], None),
        ([], None),
    ],
    ids=str,
)
def test_the_first_entry_of_our_version_is_judged_exactly(offered, selected):
    assert select(offered, "json") == selected


def test_a_refusal_tells_what_to_do_and_no_secrets():
    text = refusal_text(["bearer.SECRET", "muxws.v2.json", "muxws.v1." + "y" * 500, "other"], "msgpack")
    assert "muxws.v1.msgpack" in text
    assert "MUXWS_CODEC" in text
    assert "'muxws.v2.json'" in text
    assert "SECRET" not in text
    assert "2 of other kinds" in text
    assert "y" * 50 in text
    assert "y" * 64 not in text


def test_a_refusal_of_nothing():
    text = refusal_text([], "json")
    assert "no muxws entry" in text
    assert "0 of other kinds" in text


def test_a_refusal_cannot_forge_log_lines():
    assert "\n" not in refusal_text(["muxws.v1.x\nERROR root: pwned"], "json")


@pytest.mark.parametrize(
    "arguments, shown",
    [
        ({}, "HTTP 400"),
        ({"status": 101}, "no subprotocol"),
        ({"status": 101, "selected": "bearer"}, "'bearer'"),
    ],
    ids=str,
)
def test_the_dialer_composes_its_own_error(arguments, shown):
    error = mismatch("json", available=["json"], **arguments)
    assert isinstance(error, CodecMismatch)
    assert error.configured == "json"
    assert error.available == ["json"]
    for part in (PREFIX + "json", "MUXWS_CODEC", "VITE_MUXWS_CODEC", shown):
        assert part in str(error)


def test_what_the_acceptor_selected_is_cut():
    assert "z" * 64 not in str(mismatch("json", status=101, selected="z" * 500))
