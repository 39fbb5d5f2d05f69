"""Peers mounted in Flask, Bottle and Django: whoever asks is known before the upgrade, and others are not disturbed."""

from __future__ import annotations

import gevent
import pytest

from muxws_green.errors import CodecMismatch, HandshakeRefused
from tests.doors.doors import Door, Served, next_name
from tests.doors.edges import opening
from tests.hosts.client import exchange, head
from tests.transports.raw import CLOSE, PATIENCE, TEXT, close_frame, frame

pytestmark = [pytest.mark.host, pytest.mark.slow, pytest.mark.watchdog(40)]

FRAMEWORKS = ["flask", "bottle", "django"]
HOSTS = ["pywsgi", "gunicorn gevent"]

in_frameworks = pytest.mark.parametrize(
    "place", [Door(host, app) for host in HOSTS for app in FRAMEWORKS], indirect=True, ids=str
)


def log_in(place: Served, user: str) -> dict[str, str]:
    """Ask for a session over an ordinary request; the headers that show it."""
    answer = place.get(f"/login?user={user}", headers="Connection: close\r\n")
    assert answer.status == 200
    return {"Cookie": answer.headers["set-cookie"].split(";")[0]}


def statuses(place: Served, path: str) -> list[str]:
    """What the access log says of requests for a path, in order."""
    return [
        line.split('" ')[1].split()[0] for line in place.process.access_log() if f" {path} " in line.replace("?", " ")
    ]


@in_frameworks
def test_whoever_has_no_session_is_refused_with_401_and_others_with_403(place: Served) -> None:
    before = len(statuses(place, "/private"))
    for headers, status in ((None, 401), ({"Cookie": "user=forged; session=forged; sessionid=forged"}, 401)):
        with pytest.raises(HandshakeRefused) as refused:
            place.connect("/private", headers=headers)
        assert refused.value.status == status
    with pytest.raises(HandshakeRefused) as refused:
        place.connect("/private", headers=log_in(place, "bob"))
    assert refused.value.status == 403
    with place.connect("/private", headers=log_in(place, "ann")) as peer:
        assert peer.request({"do": "say", "value": "hello"}, timeout=PATIENCE) == "hello"
    with gevent.Timeout(PATIENCE, AssertionError("the access log tells of no end")):
        while len(seen := statuses(place, "/private")[before:]) < 4:
            gevent.sleep(0.01)
    assert sorted(seen) == ["101", "401", "401", "403"]


@in_frameworks
def test_a_refused_request_does_not_keep_its_connection(place: Served) -> None:
    # What is behind it would be frames, and must not be taken for a request.
    hasty = head(path="/private") + frame(TEXT, opening(1, "say", value=1), masked=True)
    answer = exchange(place.process.connect(), hasty)
    assert answer.status == 401
    answer.body()
    assert answer.end.rest() == b""


@in_frameworks
def test_another_codec_is_refused_with_400(place: Served) -> None:
    with pytest.raises(CodecMismatch):
        place.connect("/ws-msgpack", codec="json")


@in_frameworks
def test_ordinary_requests_go_on_beside_a_peer_and_after_it(place: Served) -> None:
    kept = place.process.connect()
    others = [place.process.connect() for _ in range(3)]
    for sock in (kept, *others):
        assert place.get("/", sock).body() == b"an ordinary answer"
    name = next_name()
    with place.connect() as peer:
        assert list(peer.open({"do": "name", "name": name}, end=True)) == []
        for sock in (kept, *others):
            assert place.get("/", sock).body() == b"an ordinary answer"
        assert peer.request({"do": "say", "value": 1}, timeout=PATIENCE) == 1
    assert place.told(name) == [[1000, "", True, False]]
    for sock in (kept, *others):
        assert place.get("/", sock).body() == b"an ordinary answer"


@in_frameworks
def test_what_a_client_pipelines_behind_its_close_is_not_answered(place: Served) -> None:
    answer = exchange(place.process.connect(), head())
    assert answer.status == 101
    answer.end.sock.sendall(close_frame(1000, masked=True) + b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.end.frame().opcode == CLOSE
    assert answer.end.rest() == b""


@in_frameworks
def test_a_hundred_peers_in_one_framework(place: Served) -> None:
    peers = [place.connect() for _ in range(100)]
    try:
        answers = [gevent.spawn(peer.request, {"do": "say", "value": n}) for n, peer in enumerate(peers)]
        with gevent.Timeout(PATIENCE):
            assert [answer.get() for answer in answers] == list(range(100))
        assert place.get("/").body() == b"an ordinary answer"
    finally:
        with gevent.Timeout(PATIENCE):
            gevent.joinall([gevent.spawn(peer.close, drain=0.0) for peer in peers], raise_error=True)
