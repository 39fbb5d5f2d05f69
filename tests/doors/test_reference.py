"""The reference at the other side of every door, in a process of its own, and ours at the reference's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gevent
import pytest

from muxws_green import Reconnect, connect
from tests.doors.apps import CODECS
from tests.doors.deeds import OPTIONS, Worker
from tests.doors.doors import DOORS, Door, Served
from tests.interop.matter import blob, digest
from tests.interop.process import Reference, reference_client, running
from tests.transports.raw import PATIENCE, authority, client_context

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.watchdog(40)]

by_codec = pytest.mark.parametrize("codec_name", ["json", "msgpack"])

CALLS = 50
BIG_BYTES = 1_000_000


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Reference]]:
    """The reference's dialer for each codec; it trusts the authority of these tests."""
    bundle = tmp_path_factory.mktemp("authority") / "pem"
    authority().cert_pem.write_to_path(str(bundle))
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("SSL_CERT_FILE", str(bundle))
        running = {codec: stack.enter_context(reference_client(codec)) for codec in CODECS}
        yield running


def exported(rows: int) -> dict[str, Any]:
    return {"rows": list(range(rows)), "reply_headers": {"kind": "rows"}, "trailers": {"rows": rows}}


def failed(rows: int, message: str) -> dict[str, Any]:
    payload = {"type": "LookupError", "message": message}
    return {"rows": list(range(rows)), "code": 2, "reason": message, "payload": payload}


#: Every door with the codec that everybody speaks, and one of each kind with the other.
MEETINGS = [
    *((door, "json") for door in DOORS),
    *((door, "msgpack") for door in DOORS if door.host in ("server", "gevent-websocket after") or door.app == "flask"),
    (Door("gunicorn gevent"), "msgpack"),
    (Door("gevent-websocket hook"), "msgpack"),
]


@pytest.mark.host
@pytest.mark.parametrize(
    "place,codec_name", MEETINGS, indirect=["place"], ids=[f"{door}-{codec}" for door, codec in MEETINGS]
)
def test_the_references_dialer_at_every_door(place: Served, codec_name: str, references: dict[str, Reference]) -> None:
    reference = references[codec_name]
    reference.do("dial", url=place.url("/ws" if codec_name == "json" else f"/ws-{codec_name}"))
    assert reference.do("many", count=CALLS) == [{"do": "echo", "n": n} for n in range(CALLS)]
    assert reference.do("rows", count=100) == exported(100)
    assert reference.do("ticks", count=5) == list(range(5))
    assert reference.do("fail", rows=3, message="kaputt §") == failed(3, "kaputt §")
    # And the other way.
    assert reference.do("ask", deed="many", args={"count": CALLS}) == [{"do": "echo", "n": n} for n in range(CALLS)]
    assert reference.do("ask", deed="rows", args={"count": 100}) == exported(100)
    assert reference.do("ask", deed="fail", args={"rows": 2, "message": "oh"}) == failed(2, "oh")
    # A big payload, with small calls that overtake it.
    big = digest(blob(BIG_BYTES, binary=codec_name == "msgpack"))
    for what in ("upload", "fetch"):
        moved = reference.do("overtake", what=what, size=BIG_BYTES, count=5)
        assert (moved["digest"], moved["answers"]) == (big, list(range(5)))
    reference.do("close", reason="done", drain=5.0)


@by_codec
@pytest.mark.parametrize("kind", ["tcp", "tls", "unix"])
def test_our_dialer_at_the_references_doors(kind: str, codec_name: str, tmp_path: Path) -> None:
    arguments = {"tcp": [], "tls": ["tls", str(tmp_path / "pem")], "unix": ["unix", str(tmp_path / "sock")]}[kind]
    if kind == "tls":
        certificate = authority().issue_cert("localhost")
        certificate.private_key_and_cert_chain_pem.write_to_path(arguments[1])
    with running("tests.interop.reference_server", codec_name, *arguments) as child:
        port = json.loads(child.line())["port"]
        reference = Reference(child)
        url = {"tcp": f"ws://127.0.0.1:{port}/", "tls": f"wss://localhost:{port}/"}.get(kind)
        more: dict[str, Any] = {"ssl_context": client_context()} if kind == "tls" else {}
        worker = Worker(codec_name)
        with gevent.Timeout(PATIENCE, AssertionError("the dial did not end")):
            peer = connect(
                url or f"ws+unix://{tmp_path / 'sock'}:/",
                codec=CODECS[codec_name],
                on_stream=worker.act,
                hello={"do": "hello"},
                reconnect=Reconnect(max_attempts=0),
                **OPTIONS,
                **more,
            )
        worker.peer = peer
        peer.on_close(worker._note_close)
        try:
            reference.do("settle")
            assert worker.many(CALLS) == [{"do": "echo", "n": n} for n in range(CALLS)]
            assert worker.rows(100) == exported(100)
            assert worker.ticks(5) == list(range(5))
            assert worker.fail(3, "kaputt §") == failed(3, "kaputt §")
            assert reference.do("many", count=CALLS) == [{"do": "echo", "n": n} for n in range(CALLS)]
            assert reference.do("rows", count=100) == exported(100)
            big = digest(blob(BIG_BYTES, binary=worker.binary))
            for what in ("upload", "fetch"):
                moved = worker.overtake(what, BIG_BYTES, 5)
                assert (moved["digest"], moved["answers"]) == (big, list(range(5)))
            if codec_name == "json":
                peer.close(reason="done")
                assert reference.do("wait_closed") == {"code": 1000, "reason": "", "was_clean": True}
                assert worker.told() == [[1000, "done", True, False]]
            else:
                reference.do("close", reason="going", drain=5.0)
                ((code, _, was_clean, _),) = worker.told()
                assert (code, was_clean) == (1000, True)
        finally:
            peer.close(drain=0.0)
            reference.close()
