"""Every host, each in a process of its own: what it does with a connection that has been taken from it.

The invariant that each test ends with: nothing on standard error, and no false status in the access log.
"""

from __future__ import annotations

import contextlib
import json
import random
import struct
import time
from collections.abc import Iterator
from typing import Any

import gevent
import pytest

from tests.hosts.client import Answer, ClientEnd, exchange, head
from tests.hosts.process import HostProcess, serving
from tests.transports.raw import CLOSE, PATIENCE, TEXT, RawFrame, close_frame, frame

pytestmark = [pytest.mark.host, pytest.mark.slow]

PYWSGI = ["pywsgi", "server"]
GEVENT_WEBSOCKET = ["gevent-websocket hook", "gevent-websocket handler"]
AFTER = ["gevent-websocket after", "gunicorn gevent-websocket after"]
GUNICORN = ["gunicorn gevent", "gunicorn gevent_wsgi", "gunicorn gevent_pywsgi", "gunicorn gevent-websocket handler"]


class Host:
    """A served application as its clients see it."""

    def __init__(self, process: HostProcess, host: str, app: str) -> None:
        self.process = process
        self.process_of = host
        self.app = app

    def connect(self) -> Any:
        return self.process.connect()

    def open(self, behind: bytes = b"", path: str = "/ws", **changes: str | None) -> ClientEnd:
        answer = exchange(self.connect(), head(changes, path=path) + behind)
        assert answer.status == 101
        assert answer.headers["sec-websocket-protocol"] == "muxws.v1.json"
        assert answer.headers["sec-websocket-accept"] == "BACScCJPNqyz+UBoqMH89VmURoA="
        assert "sec-websocket-extensions" not in answer.headers
        assert "content-length" not in answer.headers
        assert "transfer-encoding" not in answer.headers
        return answer.end

    def get(self, path: str, sock: Any = None) -> bytes:
        answer = exchange(sock or self.connect(), f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert answer.status == 200
        if answer.headers.get("transfer-encoding") != "chunked":
            return answer.body()
        while not answer.end.buffered.endswith(b"0\r\n\r\n"):
            answer.end.buffered += answer.end.sock.recv(65_536)
        body, answer.end.buffered = answer.end.buffered.split(b"\r\n")[1], b""
        return body

    def wait_for_live(self, count: int) -> None:
        """Wait until so many echoes are going on."""
        deadline = time.monotonic() + PATIENCE
        while (live := json.loads(self.get("/counts"))["live"]) != count:
            assert time.monotonic() < deadline, f"{live} connections are still being served"
            gevent.sleep(0.01)

    def is_silent(self) -> bool:
        assert self.process.errors() == ""
        statuses = {line.split('" ')[1].split()[0] for line in self.process.access_log()}
        # Refused handshakes are other tests' doing; what a framework answers after an upgrade would be one of these.
        assert not statuses & {"404", "500"}
        return True


def start(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    host, app, kind = request.param
    with serving(host, tmp_path_factory.mktemp("host"), app, tls=kind == "tls", unix=kind == "unix") as process:
        yield Host(process, host, app)
    assert process.process.returncode == 0
    assert process.errors() == ""


running = pytest.fixture(scope="module", name="running")(start)


@pytest.fixture
def served(running: Host) -> Iterator[Host]:
    yield running
    running.process.close_clients()


def hosts(*cases: tuple[str, str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("running", cases, indirect=True, ids=["/".join(case) for case in cases])


PLAIN = [(host, "plain", kind) for host in (*PYWSGI, *GEVENT_WEBSOCKET) for kind in ("tcp", "tls", "unix")]
ALL = [
    *PLAIN,
    *((host, "plain", "tcp") for host in GUNICORN),
    ("pywsgi patched", "plain", "tcp"),
    ("pywsgi patched", "plain", "tls"),
    ("gunicorn gevent", "plain", "tls"),
    ("gunicorn gevent", "plain", "unix"),
    *((host, "taken_over", "tcp") for host in AFTER),
    ("gevent-websocket after", "taken_over", "tls"),
    ("gevent-websocket after", "taken_over", "unix"),
    *((host, app, "tcp") for host in ("pywsgi", "gunicorn gevent") for app in ("wrapped", "generator")),
    *((host, app, "tcp") for host in ("pywsgi", "server", "gunicorn gevent") for app in ("flask", "bottle", "django")),
    ("gevent-websocket hook", "flask", "tcp"),
]


@hosts(*ALL)
def test_messages_go_both_ways(served: Host):
    end = served.open()
    for message in (b"a", b"x" * 70_000, "é".encode()):
        end.send(TEXT, message)
        assert end.frame() == RawFrame(TEXT, message, False)
    end.sock.sendall(close_frame(1000, "done", masked=True))
    assert end.frame() == RawFrame(CLOSE, b"\x03\xe8done", False)
    assert end.rest() == b""
    served.wait_for_live(0)
    assert served.is_silent()


@pytest.mark.case("C49")
@hosts(*ALL)
@pytest.mark.parametrize("size", [5, 3_000, 20_000])
def test_frames_that_come_with_the_request_are_not_lost(served: Host, size):
    # The longest is read by the host in part only.
    early = [b"%d" % number * size for number in (1, 2)]
    end = served.open(b"".join(frame(TEXT, message, masked=True) for message in early))
    assert [end.frame().payload, end.frame().payload] == early
    end.send(TEXT, b"later")
    assert end.frame().payload == b"later"
    end.sock.close()
    served.wait_for_live(0)
    assert served.is_silent()


@pytest.mark.case("C18")
@hosts(*ALL)
def test_nothing_that_follows_is_taken_for_a_request(served: Host):
    before = len(served.process.access_log())
    end = served.open()
    # So much that most of it is still in the kernel when this end has read the close frame.
    with contextlib.suppress(OSError):
        end.sock.sendall(close_frame(1000, masked=True) + head(path="/") * 1_500)
    with contextlib.suppress(ConnectionResetError):
        assert end.frame() == RawFrame(CLOSE, b"\x03\xe8", False)
        assert end.rest() == b""
    end.sock.close()
    served.wait_for_live(0)
    assert served.is_silent()
    lines = served.process.access_log()[before:]
    assert sum('" 101 ' in line for line in lines) <= 1
    assert not any('"GET / HTTP' in line for line in lines)


@pytest.mark.case("C18")
@hosts(*ALL)
def test_connections_that_are_kept_go_on(served: Host):
    kept = served.connect()
    assert served.get("/", kept) == b"an ordinary answer"
    end = served.open()
    assert served.get("/", kept) == b"an ordinary answer"
    end.send(TEXT, b"x")
    assert end.frame().payload == b"x"
    end.sock.sendall(close_frame(1000, masked=True))
    end.rest()
    served.wait_for_live(0)
    assert served.get("/", kept) == b"an ordinary answer"
    assert served.is_silent()


@pytest.mark.case("C01")
@hosts(*ALL)
def test_this_end_closes_with_its_code(served: Host):
    end = served.open()
    end.send(TEXT, b"close")
    assert end.frame() == RawFrame(CLOSE, b"\x03\xe9asked to", False)
    end.sock.sendall(close_frame(1001, masked=True))
    assert end.rest() == b""
    served.wait_for_live(0)
    assert served.is_silent()


@pytest.mark.case("C17")
@pytest.mark.case("C15")
@hosts(*ALL)
def test_every_way_to_vanish_frees_the_request_without_a_word(served: Host):
    def fin(end: ClientEnd) -> None:
        end.sock.close()

    def rst(end: ClientEnd) -> None:
        end.reset()

    def half_a_frame(end: ClientEnd) -> None:
        end.sock.sendall(frame(TEXT, b"x" * 100, masked=True)[:50])
        end.sock.close()

    def unmasked(end: ClientEnd) -> None:
        end.sock.sendall(frame(TEXT, b"x", masked=False))
        assert end.frame().close_code == 1002
        end.sock.close()

    def closing(end: ClientEnd) -> None:
        end.sock.sendall(close_frame(1001, masked=True))
        end.sock.close()

    def too_long(end: ClientEnd) -> None:
        end.sock.sendall(b"\x81\xff" + struct.pack(">Q", 2**40) + b"keyk" + b"x" * 10)
        assert end.frame().close_code == 1009
        end.sock.close()

    for vanish in (fin, rst, half_a_frame, unmasked, closing, too_long):
        end = served.open()
        end.send(TEXT, b"x")
        end.frame()
        vanish(end)
    served.wait_for_live(0)
    assert served.is_silent()


@pytest.mark.case("C28")
@hosts(*ALL)
def test_many_at_once_end_in_any_order(served: Host):
    ends = [served.open() for _ in range(20)]
    served.wait_for_live(20)
    random.Random(7).shuffle(ends)
    for number, end in enumerate(ends):
        end.send(TEXT, b"%d" % number)
        assert end.frame().payload == b"%d" % number
        if number % 2:
            end.sock.sendall(close_frame(1000, masked=True))
            end.rest()
        end.sock.close()
    served.wait_for_live(0)
    assert served.is_silent()


#: Hosts that let the application refuse, each kind once, and frameworks.
REFUSING = [
    ("pywsgi", "plain", "tcp"),
    ("pywsgi", "plain", "tls"),
    ("pywsgi", "wrapped", "tcp"),
    ("server", "plain", "tcp"),
    ("gevent-websocket handler", "plain", "tcp"),
    ("gunicorn gevent", "plain", "tcp"),
    ("gunicorn gevent_wsgi", "plain", "tcp"),
    *((host, app, "tcp") for host in ("pywsgi", "gunicorn gevent") for app in ("flask", "bottle", "django")),
]


def ask(served: Host, data: bytes) -> Answer:
    """Send a handshake that is refused and read the answer, which must end the connection: what is behind the
    handshake would be frames, and is a request here, so that its answer would be seen.
    """
    answer = exchange(served.connect(), data + b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.status != 101
    assert "upgrade" not in answer.headers.get("connection", "").lower()
    assert answer.body()
    assert answer.end.rest() == b""
    return answer


@pytest.mark.case("C26")
@hosts(*REFUSING)
def test_a_bad_handshake_is_refused_without_a_traceback(served: Host):
    bad_hosts = [(400, head({"Host": "a.example/b"})), (400, head({"Host": "a@b.example"}))]
    if served.app == "django":
        # Django answers these before there is any view.
        bad_hosts = []
    for status, data in (
        (400, head({"Sec-WebSocket-Key": "!!!"})),
        (400, head({"Sec-WebSocket-Key": ""})),
        (400, head({"Sec-WebSocket-Key": None})),
        (400, head({"Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2Rl"})),
        (400, head({"Sec-WebSocket-Key": "\xe9\xff"})),
        (400, head(lines=["Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="])),
        (426, head({"Sec-WebSocket-Version": "12"})),
        (426, head({"Sec-WebSocket-Version": "8"})),
        (400, head({"Sec-WebSocket-Version": None})),
        (400, head(version="HTTP/1.0")),
        (400, head({"Content-Length": "5"})),
        *bad_hosts,
    ):
        answer = ask(served, data)
        assert (answer.status, data) == (status, data)
        if status == 426:
            assert answer.headers["sec-websocket-version"] == "13"
    served.wait_for_live(0)
    assert served.is_silent()


@pytest.mark.case("C26")
@hosts(*(case for case in REFUSING if case[1] in ("plain", "wrapped")))
def test_what_is_no_upgrade_is_told_what_would_be(served: Host):
    for status, data in (
        (426, head({"Upgrade": None})),
        (426, head({"Upgrade": "h2c"})),
        (426, head({"Upgrade": None, "Connection": None})),
        (405, head(method="POST")),
    ):
        answer = ask(served, data)
        assert (answer.status, data) == (status, data)
    assert served.is_silent()


@pytest.mark.case("C04")
@hosts(*(case for case in REFUSING if case[1] != "flask"))
def test_connection_is_a_list_of_tokens_in_any_case(served: Host):
    for status, value in (
        (101, "Upgrade"),
        (101, "upgrade"),
        (101, "UPGRADE"),
        (101, "keep-alive, Upgrade"),
        (101, "Upgrade,keep-alive"),
        (101, "keep-alive ,\tupgrade , foo"),
        (426, "keep-alive"),
        (426, "no-upgrade"),
        (426, "upgrade-insecure"),
        (400, "keep-alive upgrade"),
    ):
        answer = exchange(served.connect(), head({"Connection": value}))
        assert (answer.status, value) == (status, value)
        answer.end.sock.close()
    served.wait_for_live(0)
    assert served.is_silent()


@pytest.mark.case("C03")
@hosts(*(case for case in REFUSING if case[0] not in GEVENT_WEBSOCKET))
def test_the_first_muxws_entry_decides(served: Host):
    for status, offer in (
        (101, ["muxws.v1.json"]),
        (101, ["muxws.v1.json, bearer.abc"]),
        (101, ["bearer.abc, muxws.v1.json"]),
        (101, ["bearer.abc", "muxws.v1.json"]),
        (101, ["muxws.v2.json, muxws.v1.json"]),
        (101, ["muxws.v1.json, muxws.v1.msgpack"]),
        (400, ["muxws.v1.msgpack, muxws.v1.json"]),
        (400, ["muxws.v1.msgpack", "muxws.v1.json"]),
        (400, ["xmuxws.v1.json"]),
        (400, ["muxws.v1.jsonx"]),
        (400, ["muxws.v1.JSON"]),
        (400, ["muxws.v2.json"]),
        (400, ["muxws.v1."]),
        (400, ["bearer.abc"]),
    ):
        lines = [f"Sec-WebSocket-Protocol: {value}" for value in offer]
        answer = exchange(served.connect(), head({"Sec-WebSocket-Protocol": None}, lines=lines))
        assert (answer.status, offer) == (status, offer)
        assert answer.headers.get("sec-websocket-protocol") == ("muxws.v1.json" if status == 101 else None)
        answer.end.sock.close()
    served.wait_for_live(0)
    assert served.is_silent()


@pytest.mark.case("C03")
@hosts(
    ("gevent-websocket after", "taken_over", "tcp"),
    ("gevent-websocket after", "taken_over", "unix"),
    ("gunicorn gevent-websocket after", "taken_over", "tcp"),
    ("gevent-websocket hook", "taken_over", "tcp"),
)
def test_an_upgrade_that_cannot_be_refused_any_more_is_closed_with_1008(served: Host):
    for offer in ("xmuxws.v1.jsonx", "bearer.abc", None, "muxws.v1.jsonx", "muxws.v1.msgpack, muxws.v1.json"):
        left_to_the_app = served.process_of == "gevent-websocket hook" and offer is not None and "muxws.v" in offer
        data = head({"Sec-WebSocket-Protocol": offer}) + frame(TEXT, b"hasty", masked=True)
        answer = exchange(served.connect(), data)
        if left_to_the_app:
            assert (answer.status, offer) == (400, offer)
            continue
        assert (answer.status, offer) == (101, offer)
        assert answer.end.frame().close_code == 1008
        answer.end.sock.sendall(close_frame(1008, masked=True))
        assert answer.end.rest() == b""
    served.wait_for_live(0)
    assert served.is_silent()


@hosts(("gevent-websocket blind", "taken_over", "tcp"))
def test_an_upgrade_that_selected_nothing_is_closed_with_1008(served: Host):
    answer = exchange(served.connect(), head())
    assert answer.status == 101
    assert "sec-websocket-protocol" not in answer.headers
    last = answer.end.frame()
    assert last.close_code == 1008
    assert b"app_protocol" in last.payload
    answer.end.sock.close()
    served.wait_for_live(0)
    assert served.is_silent()


@pytest.mark.case("C06")
@hosts(
    ("gevent-websocket after", "taken_over", "tcp"),
    *REFUSING,
)
def test_pages_of_other_origins_are_refused_before_the_upgrade(served: Host):
    begun = json.loads(served.get("/counts"))["begun"]
    for status, origins, host in (
        (101, ["http://localhost"], "localhost"),
        (101, ["https://localhost:443"], "localhost"),
        (101, ["http://127.0.0.1:8000"], "127.0.0.1:8000"),
        (101, ["https://friend.example"], "localhost"),
        (403, ["http://evil.example"], "localhost"),
        (403, ["http://127.0.0.1:8000.evil.example"], "127.0.0.1:8000"),
        (403, ["http://friend.example"], "localhost"),
        (403, ["null"], "localhost"),
        (403, [], "localhost"),
        (403, ["http://localhost", "http://localhost"], "localhost"),
        (403, ["http://localhost, http://localhost"], "localhost"),
        (403, ["http://localhost/"] * 2, "localhost"),
    ):
        lines = [f"Origin: {origin}" for origin in origins]
        answer = exchange(served.connect(), head({"Host": host}, path="/strict", lines=lines))
        if status == 403 and served.app == "taken_over":
            assert answer.status == 101
            assert answer.end.frame().close_code == 1008
        else:
            assert (answer.status, origins) == (status, origins)
        answer.end.sock.close()
        begun += status == 101
    served.wait_for_live(0)
    assert json.loads(served.get("/counts"))["begun"] == begun
    assert served.is_silent()


@hosts(*((host, "flask", "tcp") for host in ("pywsgi", "server", "gunicorn gevent", "gunicorn gevent_wsgi")))
def test_a_view_has_the_session_before_the_upgrade(served: Host):
    stranger = exchange(served.connect(), head(path="/private"))
    assert (stranger.status, stranger.body()) == (401, b"who are you?")
    login = exchange(served.connect(), b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n")
    cookie = login.headers["set-cookie"].split(";")[0]
    end = served.open(path="/private", Cookie=cookie)
    end.send(TEXT, b"hello")
    assert end.frame().payload == b"hello"
    end.sock.sendall(close_frame(1000, masked=True))
    assert end.frame().opcode == CLOSE
    assert end.rest() == b""
    served.wait_for_live(0)
    # The view has returned a 500.
    assert served.is_silent()


@hosts(("pywsgi", "flask", "tcp"), ("gunicorn gevent", "flask", "tcp"))
def test_what_a_view_raises_afterwards_is_not_answered(served: Host):
    end = served.open(path="/raising")
    end.sock.sendall(close_frame(1000, masked=True))
    assert end.frame().opcode == CLOSE
    assert end.rest() == b""
    served.wait_for_live(0)
    assert served.is_silent()
