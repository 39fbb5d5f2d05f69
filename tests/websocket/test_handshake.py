"""The opening handshake from the client's side, against `websockets` and against servers that break the rules."""

from __future__ import annotations

import base64
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.streams import StreamReader
from websockets.uri import parse_uri
from websockets.utils import accept_key

from muxws_green.errors import MuxwsError, TransportUrlError
from muxws_green.websocket import (
    MAX_HEAD_BYTES,
    MAX_HEADER_LINES,
    ClientHandshake,
    HandshakeAnswer,
    HandshakeError,
    UpgradeRequest,
    answer_upgrade,
    parse_ws_uri,
)
from muxws_green.websocket.fields import is_token, is_value

SECRETS = ("hunter2", "tok3n", "aHVudGVyMg", "bearer.k3y")


def handshake(uri: str = "ws://user:hunter2@example.com/path?q=tok3n", **options: object) -> ClientHandshake:
    options.setdefault("subprotocols", ["muxws.v1.json", "bearer.k3y"])
    return ClientHandshake(UpgradeRequest(parse_ws_uri(uri), **options))  # type: ignore[arg-type]


def parsed(request: bytes) -> Request:
    reader = StreamReader()
    reader.feed_data(request)
    parser = Request.parse(reader.read_line)
    try:
        next(parser)
    except StopIteration as stop:
        assert not reader.buffer
        made: Request = stop.value
        return made
    pytest.fail("the request is incomplete")


def key_of(client: ClientHandshake) -> str:
    return parsed(client.request()).headers["Sec-WebSocket-Key"]


def answer_to(client: ClientHandshake, *extra: str, leave_out: str = "", status: str = "HTTP/1.1 101 Go on") -> bytes:
    """A good answer, with lines added or one left out."""
    lines = {
        "Upgrade": "Upgrade: websocket",
        "Connection": "Connection: Upgrade",
        "Sec-WebSocket-Accept": f"Sec-WebSocket-Accept: {accept_key(key_of(client))}",
        "Sec-WebSocket-Protocol": "Sec-WebSocket-Protocol: muxws.v1.json",
    }
    lines.pop(leave_out, None)
    return "\r\n".join([status, *lines.values(), *extra, "", ""]).encode("iso-8859-1")


def ends_badly(client: ClientHandshake, *pieces: bytes) -> HandshakeError:
    """Feed pieces, of which the last is to raise."""
    for piece in pieces[:-1]:
        assert client.feed(piece) is None
    with pytest.raises(HandshakeError) as raised:
        client.feed(pieces[-1])
    shown = "".join(traceback.format_exception(raised.value))
    assert not [secret for secret in SECRETS if secret in shown]
    assert isinstance(raised.value, OSError)
    assert isinstance(raised.value, MuxwsError)
    return raised.value


# The request.


def test_the_request():
    client = handshake()
    request = parsed(client.request())
    assert request.path == "/path?q=tok3n"
    assert request.method == "GET"
    assert request.protocol == "HTTP/1.1"
    key = request.headers["Sec-WebSocket-Key"]
    assert list(request.headers.raw_items()) == [
        ("Host", "example.com"),
        ("Authorization", "Basic " + base64.b64encode(b"user:hunter2").decode()),
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Protocol", "muxws.v1.json, bearer.k3y"),
        ("Sec-WebSocket-Key", key),
    ]
    assert len(base64.b64decode(key, validate=True)) == 16
    assert client.request() == client.request()
    assert key_of(handshake()) != key


@pytest.mark.parametrize(
    "uri, host",
    [
        ("ws://example.com:80/", "example.com"),
        ("ws://example.com:443/", "example.com:443"),
        ("wss://example.com:443/", "example.com"),
        ("ws://[::1]:8000/", "[::1]:8000"),
    ],
)
def test_the_host_header(uri, host):
    assert parsed(handshake(uri).request()).headers["Host"] == host


def test_further_headers():
    headers = [("Cookie", "a=1"), ("Cookie", "b=2"), ("Origin", "http://x"), ("X-Latin", "\xe9")]
    request = parsed(handshake(headers=headers).request())
    assert request.headers.get_all("Cookie") == ["a=1", "b=2"]
    assert request.headers["Origin"] == "http://x"
    assert request.headers["X-Latin"] == "\xe9"


def test_host_and_authorization_can_be_replaced():
    headers = [("host", "other.example"), ("authorization", "Bearer x")]
    request = parsed(handshake(headers=headers).request())
    assert request.headers.get_all("Host") == ["other.example"]
    assert request.headers.get_all("Authorization") == ["Bearer x"]


def test_without_subprotocols_none_is_offered():
    assert "Sec-WebSocket-Protocol" not in parsed(handshake(subprotocols=[]).request()).headers


@pytest.mark.parametrize(
    "headers",
    [
        [("Upgrade", "h2c")],
        [("connection", "close")],
        [("Sec-WebSocket-Key", "x")],
        [("Sec-WebSocket-Extensions", "permessage-deflate")],
        [("sec-websocket-protocol", "x")],
        [("Content-Length", "5")],
        [("Transfer-Encoding", "chunked")],
        [("A b", "x")],
        [("", "x")],
        [("A:", "x")],
        [("A", "hunter2\r\nB: c")],
        [("A", "hunter2\n")],
        [("A", "hunter2\x00")],
        [("A", "hunter2\u20ac")],
    ],
)
def test_headers_that_cannot_be_given(headers):
    with pytest.raises(ValueError, match="header") as raised:
        handshake(headers=headers)
    assert "hunter2" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("subprotocols", [["bearer k3y"], [""], ["a", "a,b"], ["ä"], ["a", "a"], ["a\r\nb"]])
def test_subprotocols_that_cannot_be_offered(subprotocols):
    with pytest.raises(ValueError, match="subprotocol") as raised:
        handshake(subprotocols=subprotocols)
    assert "k3y" not in str(raised.value)


def test_a_url_that_cannot_be_dialled():
    with pytest.raises(TransportUrlError):
        handshake("http://example.com")


# Good answers.


def test_against_the_server_of_the_library():
    server = ServerProtocol(subprotocols=["muxws.v1.json"])
    client = handshake()
    server.receive_data(client.request())
    (request,) = server.events_received()
    assert isinstance(request, Request)
    server.send_response(server.accept(request))
    server.send_text(b"pushed")
    answer = client.feed(b"".join(server.data_to_send()))
    assert answer is not None
    assert answer.status == 101
    assert answer.subprotocol == "muxws.v1.json"
    assert answer.leftover == b"\x81\x06pushed"


def test_against_our_own_server():
    client = handshake()
    request = parsed(client.request())
    made = answer_upgrade(request.method, request.path, list(request.headers.raw_items()), lambda offered: offered[0])
    head = f"HTTP/1.1 {made.status} {made.reason}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in made.headers)
    assert client.feed(head.encode() + b"\r\n") == HandshakeAnswer(101, made.headers, "muxws.v1.json", b"")


@pytest.mark.case("C49")
def test_in_any_pieces_and_with_bytes_behind_it():
    for size in (1, 2, 3, 7, 64):
        client = handshake()
        stream = answer_to(client, "Set-Cookie: a=1", "set-cookie: b=2") + b"\x81\x02hi"
        answer = None
        for at in range(0, len(stream), size):
            answer = client.feed(stream[at : at + size])
            if answer:
                break
        assert answer is not None
        assert answer.headers[-2:] == [("Set-Cookie", "a=1"), ("set-cookie", "b=2")]
        assert answer.leftover + stream[at + size :] == b"\x81\x02hi"


@pytest.mark.parametrize("status", ["HTTP/1.1 101 ", "HTTP/1.1 101", "HTTP/1.1 101 D\xe9j\xe0"])
def test_the_phrase_does_not_matter(status):
    client = handshake()
    answer = client.feed(answer_to(client, status=status))
    assert answer is not None
    assert answer.status == 101


@pytest.mark.parametrize(
    "lines, subprotocol",
    [
        ([], None),
        ([""], None),
        (["muxws.v1.json"], "muxws.v1.json"),
        (["bearer.k3y"], "bearer.k3y"),
        (["muxws.v1.msgpack"], "muxws.v1.msgpack"),
        (["MUXWS.v1.json"], "MUXWS.v1.json"),
        (["muxws.v1.json, other"], "muxws.v1.json, other"),
        (["muxws.v1.json", "muxws.v1.json"], "muxws.v1.json, muxws.v1.json"),
        (["no token at all"], "no token at all"),
    ],
)
def test_whatever_the_server_selects_is_an_answer(lines, subprotocol):
    client = handshake()
    extra = [f"Sec-WebSocket-Protocol: {line}" for line in lines]
    answer = client.feed(answer_to(client, *extra, leave_out="Sec-WebSocket-Protocol"))
    assert answer is not None
    assert answer.status == 101
    assert answer.subprotocol == subprotocol


@pytest.mark.parametrize(
    "head, status",
    [
        ("HTTP/1.1 400 Bad Request\r\nContent-Length: 100000", 400),
        ("HTTP/1.1 401 Unauthorized\r\nTransfer-Encoding: chunked\r\nWWW-Authenticate: Basic", 401),
        ("HTTP/1.0 503 Service Unavailable\r\nRetry-After: 3", 503),
        ("HTTP/1.1 200 OK", 200),
        ("HTTP/1.1 302 Found\r\nLocation: http://elsewhere/", 302),
        ("HTTP/1.1 204 No Content", 204),
        ("HTTP/1.1 599 x\r\nContent-Length: nonsense\r\nContent-Length: 3", 599),
    ],
)
def test_a_refusal_is_known_by_its_head(head, status):
    client = handshake()
    assert client.feed(head.encode()) is None
    answer = client.feed(b"\r\n\r\nbody")
    assert answer is not None
    assert answer.status == status
    assert answer.subprotocol is None
    assert answer.headers == [tuple(line.split(": ")) for line in head.split("\r\n")[1:]]


def test_interim_answers_are_passed_over():
    client = handshake()
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    for at in range(len(interim)):
        assert client.feed(interim[at : at + 1]) is None
    answer = client.feed(answer_to(client) + b"x")
    assert answer is not None
    assert (answer.status, answer.leftover) == (101, b"x")


def test_the_handshake_ends_with_its_answer():
    client = handshake()
    client.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(RuntimeError, match="over"):
        client.feed(b"x")


# Bad answers.


@pytest.mark.parametrize("name", ["Upgrade", "Connection", "Sec-WebSocket-Accept"])
def test_a_101_without_a_needed_header(name):
    client = handshake()
    assert name in str(ends_badly(client, answer_to(client, leave_out=name)))


@pytest.mark.parametrize(
    "name, value",
    [
        ("Upgrade", "h2c"),
        ("Upgrade", "websocket, h2c"),
        ("Connection", "keep-alive"),
        ("Connection", "no-upgrade"),
        ("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        ("Sec-WebSocket-Accept", ""),
    ],
)
def test_a_101_with_a_wrong_header(name, value):
    client = handshake()
    assert name in str(ends_badly(client, answer_to(client, f"{name}: {value}", leave_out=name)))


def test_a_101_with_two_accepts():
    client = handshake()
    ends_badly(client, answer_to(client, f"Sec-WebSocket-Accept: {accept_key(key_of(client))}"))


def test_a_101_for_the_request_of_somebody_else():
    client, other = handshake(), handshake()
    ends_badly(client, answer_to(other))


@pytest.mark.parametrize("value", ["permessage-deflate", "x-unknown; a=1", ""])
def test_a_101_with_an_extension(value):
    client = handshake()
    error = ends_badly(client, answer_to(client, f"Sec-WebSocket-Extensions: {value}"))
    assert "extension" in str(error)


@pytest.mark.parametrize("line", ["Connection: keep-alive, Upgrade", "connection: upgrade,,"])
def test_a_good_101_may_look_unusual(line):
    client = handshake()
    answer = client.feed(answer_to(client, line, leave_out="Connection"))
    assert answer is not None
    assert (answer.status, answer.subprotocol) == (101, "muxws.v1.json")


def test_a_101_that_has_to_be_looked_into_and_cannot():
    """`websockets` reads no line that is as long as that."""
    client = handshake()
    unusual = "Connection: keep-alive, Upgrade"
    error = ends_badly(client, answer_to(client, unusual, "X-Long: " + "x" * 9000, leave_out="Connection"))
    assert "malformed" in str(error)


def test_a_101_of_http_1_0():
    client = handshake()
    ends_badly(client, answer_to(client, status="HTTP/1.0 101 Switching Protocols"))


@pytest.mark.parametrize(
    "start",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"\x15\x03\x01\x00\x02\x02\x16",
        b"<html>",
        b" HTTP/1.1 101",
        b"http/1.1 101",
        b"HTTP/2",
    ],
)
def test_what_is_not_http_is_found_at_once(start):
    ends_badly(handshake(), start)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 101Switching",
        b"HTTP/1.1  101 x",
        b"HTTP/1.1 99 x",
        b"HTTP/1.1 600 x",
        b"HTTP/1.1 1011 x",
        b"HTTP/1.1 \xb2\xb2\xb2 x",
        b"HTTP/1.1",
        b"HTTP/1.1 400 a\nb",
        b"HTTP/1.1 400 x\r\nno colon",
        b"HTTP/1.1 400 x\r\n: no name",
        b"HTTP/1.1 400 x\r\nspace : before",
        b"HTTP/1.1 400 x\r\nA: b\r\n folded",
        b"HTTP/1.1 400 x\r\nA: b\x00c",
        b"HTTP/1.1 400 x\r\nA: b\nC: d",
    ],
)
def test_a_malformed_head(head):
    ends_badly(handshake(), head + b"\r\n\r\n")


# Lines, and pieces of lines in which everything occurs that a line may or may not hold.
some_lines = st.lists(
    st.sampled_from(["A: b", "a-1:", "X:  two words \t", "é: x", "A: é:"])
    | st.text("aZ9-_:; \t\r\n\x00\x7f\x80\xff(", max_size=6),
    max_size=5,
)


@given(some_lines)
def test_lines_are_judged_together_as_they_would_be_one_by_one(lines):
    received = "\r\n".join(["HTTP/1.1 400 x", *lines, "", ""])
    head = received.partition("\r\n\r\n")[0]
    fields = [line.partition(":") for line in head.split("\r\n")[1:]]
    if all(colon and is_token(name) and is_value(value.strip(" \t")) for name, colon, value in fields):
        answer = handshake().feed(received.encode("iso-8859-1"))
        assert answer is not None
        assert answer.headers == [(name, value.strip(" \t")) for name, _, value in fields]
    else:
        assert "malformed header line" in str(ends_badly(handshake(), received.encode("iso-8859-1")))


def test_a_head_without_end_is_cut_off():
    client = handshake()
    line = b"X-Filler: " + b"x" * 1012 + b"\r\n"
    ends_badly(client, b"HTTP/1.1 400 x\r\n", *[line] * (MAX_HEAD_BYTES // len(line)))


def test_a_head_of_the_greatest_size_passes_and_a_greater_one_does_not():
    start = b"HTTP/1.1 400 x\r\nA: "
    fits = start + b"x" * (MAX_HEAD_BYTES - len(start) - 4) + b"\r\n\r\n"
    answer = handshake().feed(fits + b"y" * 10)
    assert answer is not None
    assert answer.leftover == b"y" * 10
    ends_badly(handshake(), fits[:-4] + b"x\r\n\r\n")


def test_interim_answers_count_for_the_size():
    client = handshake()
    interim = b"HTTP/1.1 100 Continue\r\nA: " + b"x" * 1000 + b"\r\n\r\n"
    ends_badly(client, *[interim] * (MAX_HEAD_BYTES // len(interim) + 1))


def test_the_number_of_header_lines_is_bounded():
    lines = "".join(f"X-{number}: y\r\n" for number in range(MAX_HEADER_LINES))
    answer = handshake().feed(f"HTTP/1.1 400 x\r\n{lines}\r\n".encode())
    assert answer is not None
    assert len(answer.headers) == MAX_HEADER_LINES
    ends_badly(handshake(), f"HTTP/1.1 400 x\r\n{lines}Y: z\r\n\r\n".encode())


@pytest.mark.parametrize("received", [b"", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: web"])
def test_the_end_of_the_connection_before_the_answer(received):
    client = handshake()
    if received:
        assert client.feed(received) is None
    with pytest.raises(HandshakeError, match="closed"):
        client.feed_eof()


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(b"HTTP/1.1 101 x\r\n".__add__)), st.booleans())
def test_nothing_but_a_handshake_error_for_whatever_a_server_sends(data, complete):
    client = handshake()
    try:
        answer = client.feed(data + (b"\r\n\r\n" if complete else b""))
    except HandshakeError:
        return
    assert answer is None or answer.status != 101


@given(st.data())
def test_a_good_answer_with_some_bytes_changed(data):
    client = handshake()
    stream = bytearray(answer_to(client))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(stream) - 1))
        stream[at] = data.draw(st.integers(0, 255))
    try:
        client.feed(bytes(stream))
    except HandshakeError as error:
        shown = str(error)
    else:
        shown = ""
    assert not [secret for secret in SECRETS if secret in shown]


@given(
    st.lists(
        st.sampled_from(
            [
                "Upgrade: websocket",
                "upgrade: WebSocket",
                "Upgrade: websocket, x",
                "Connection: Upgrade",
                "Connection: keep-alive, upgrade",
                "Connection: close",
                "Sec-WebSocket-Accept: right",
                "Sec-WebSocket-Accept: wrong",
                "Sec-WebSocket-Extensions: permessage-deflate",
                "Sec-WebSocket-Protocol: muxws.v1.json",
                "Date: today",
            ]
        ),
        max_size=6,
    )
)
def test_a_101_is_good_where_it_is_good_to_the_library(lines):
    client = handshake()
    lines = [line.replace("right", accept_key(key_of(client))) for line in lines]
    head = "\r\n".join(["HTTP/1.1 101 Switching Protocols", *lines, "", ""]).encode()
    theirs = ClientProtocol(parse_uri("ws://example.com/"))
    theirs.key = key_of(client)
    theirs.receive_data("\r\n".join(["HTTP/1.1 101 Go", *(e for e in lines if "Protocol" not in e), "", ""]).encode())
    if theirs.handshake_exc is None:
        assert client.feed(head) is not None
    else:
        ends_badly(client, head)
