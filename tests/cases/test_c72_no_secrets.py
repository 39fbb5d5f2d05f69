"""C72: what an application redacts stays at home, payload and reason alike, and a protocol error tells nothing."""

from __future__ import annotations

import contextlib

import pytest

from muxws_green.testing import Gone
from tests.serving import PATIENCE, Served, client

pytestmark = pytest.mark.case("C72")

MARKER = "/srv/secret/7f3a"


def fail(payload, stream):
    local = MARKER
    stream.send("a beginning", headers={"h": 1})
    if payload == "nested":
        try:
            raise KeyError(local)
        except KeyError as error:
            raise RuntimeError(f"cannot read {local}") from error
    if payload == "unsendable":
        stream.send({MARKER: object()})
    if payload == "returns":
        return (row for row in [local])
    raise RuntimeError(f"cannot read {local}")


SERIALIZERS = {
    "a value": lambda error: {"type": "Error", "message": "something failed"},
    "no message": lambda error: {"code": 17},
    "nothing": lambda error: None,
    "text": lambda error: "failed",
    "unsendable": lambda error: {"message": object()},
    "raises": lambda error: 1 / 0,
    "raises itself": lambda error: (_ for _ in ()).throw(error),
}


@pytest.mark.parametrize("payload", ["plain", "nested", "unsendable", "returns"])
@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_a_redacting_serializer_redacts_all_of_it(payload, serializer):
    with Served(fail, error_serializer=SERIALIZERS[serializer]) as served, client(served) as raw:
        raw.send({"type": "open", "stream": 1, "payload": payload, "end": True})
        heard = _until_reset(raw)
        assert heard[-1].code == 2
        raw.send_close()
        rest = raw.read_rest(PATIENCE)
    assert MARKER not in repr(heard)
    assert MARKER.encode() not in rest


def test_without_one_the_text_goes_out_which_is_why_there_is_one():
    with Served(fail) as served, client(served) as raw:
        raw.send({"type": "open", "stream": 1, "payload": "plain", "end": True})
        assert MARKER in repr(_until_reset(raw))


@pytest.mark.parametrize(
    "bad",
    [b"{", b'{"type": 7}', b'{"type": "open"}', b'{"type": "data", "stream": 99}', b"\xff", b"[" * 10_000],
)
def test_the_text_of_a_protocol_error_tells_nothing_of_this_machine(bad):
    with Served() as served, client(served) as raw:
        raw.send_frame(1, bad)
        heard = []
        with contextlib.suppress(Gone):
            while True:
                heard.append(raw.receive(PATIENCE))
        text = repr(heard).lower()
    for local in ("/", "traceback", ".py", "0x"):
        assert local not in text


def _until_reset(raw):
    heard = [raw.receive(PATIENCE)]
    while heard[-1].type != "reset":
        heard.append(raw.receive(PATIENCE))
    return heard
