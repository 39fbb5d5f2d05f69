"""The opening handshake as a client sees it (RFC 6455 §4.1), around the rules of `websockets`.

Invariant: no extension is ever offered or accepted, bytes behind the head are handed on and never lost, and no text
made here shows user info, `Authorization`, a query string or a subprotocol entry, any of which may be a credential.

For the dialer. No body is read: a refusal is known by its head alone, and waiting for more would let the other side
hold the dial.

What is the same at every dial is made and judged once (`UpgradeRequest`), and a 101 as servers send it is told by its
shape; one that looks different is judged by `websockets`, which also says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from websockets.client import ClientProtocol
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHeader, NegotiationError
from websockets.headers import build_authorization_basic, build_host
from websockets.uri import WebSocketURI
from websockets.utils import accept_key, generate_key

from muxws_green.errors import MuxwsError
from muxws_green.websocket.fields import HANDSHAKE_FIELDS, TOKEN, VALUE, is_token, is_value
from muxws_green.websocket.uri import WsUri

#: How long the head of an answer may be, interim answers included.
MAX_HEAD_BYTES = 64 * 1024
#: How many header lines it may have.
MAX_HEADER_LINES = 128

_STATUS_LINE_START = b"HTTP/1."
_status_line = re.compile(r"HTTP/(1\.[01]) ([1-5][0-9][0-9])(?: [\x09\x20-\x7e\x80-\xff]*)?").fullmatch
#: Gives None unless every line of a head, each behind its line end, is a header. A value may have blanks around it.
_are_header_lines = re.compile(rf"(?:\r\n{TOKEN}:{VALUE})*").fullmatch
#: What a caller's request headers must leave to the handshake.
_WRITTEN_HERE = HANDSHAKE_FIELDS | {"sec-websocket-extensions", "content-length", "transfer-encoding"}


class HandshakeError(MuxwsError, OSError):
    """The answer to the upgrade was cut off, was not HTTP, or broke the rules of RFC 6455 §4.1.

    A failure of the path to the server, hence an OSError; a well-formed refusal is none.
    """


class HandshakeAnswer(NamedTuple):
    """What the server answered.

    Attributes:
        status: 101 where the WebSocket is open; any other is a refusal.
        headers: (name, value) in the order of the lines.
        subprotocol: With 101 what the server named, offered or not, several joined with ", "; None otherwise.
        leftover: What had arrived behind the head: frames with 101, part of a body otherwise.
    """

    status: int
    headers: list[tuple[str, str]]
    subprotocol: str | None
    leftover: bytes


class UpgradeRequest:
    """What a client asks for. The same at every dial but for the key.

    Args:
        uri: What to open; user info in it becomes Basic authentication.
        subprotocols: What to offer, best first; empty for none.
        headers: Further request headers, as (name, value); `Host` and `Authorization` take the place of ours.

    Raises:
        ValueError: A subprotocol or a header that HTTP does not allow or that belongs to the handshake itself.
    """

    def __init__(self, uri: WsUri, *, subprotocols: Sequence[str], headers: Sequence[tuple[str, str]] = ()) -> None:
        _check_subprotocols(subprotocols)
        _check_headers(headers)
        self.uri = uri
        lines = [f"GET {uri.resource_name} HTTP/1.1"]
        given = {name.lower() for name, _ in headers}
        if "host" not in given:
            lines.append(f"Host: {build_host(uri.host, uri.port, uri.secure)}")
        if uri.user_info is not None and "authorization" not in given:
            lines.append(f"Authorization: {build_authorization_basic(*uri.user_info)}")
        lines += ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
        if subprotocols:
            lines.append(f"Sec-WebSocket-Protocol: {', '.join(subprotocols)}")
        lines += [f"{name}: {value}" for name, value in headers]
        # Header values may hold whatever ISO 8859-1 has (RFC 9110 §5.5).
        self._head = "\r\n".join(lines).encode("iso-8859-1")

    def with_key(self, key: str) -> bytes:
        """The request with this `Sec-WebSocket-Key`."""
        return self._head + f"\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()


class ClientHandshake:
    """One opening handshake as the client sees it: send `request()`, then `feed` until an answer comes.

    Put a deadline around it; there is none in here.

    Args:
        request: What to ask for.
    """

    def __init__(self, request: UpgradeRequest) -> None:
        self._wanted = request
        self._key = generate_key()
        self._received = bytearray()
        # How much of it is known to hold no end of a head, and how much has gone in interim answers.
        self._searched = 0
        self._passed_over = 0
        self._done = False

    def request(self) -> bytes:
        """The request, the same at each call."""
        return self._wanted.with_key(self._key)

    def feed(self, data: bytes) -> HandshakeAnswer | None:
        """Take the next bytes from the server.

        Args:
            data: Any number of bytes, cut anywhere.

        Returns:
            The answer as soon as its head is complete; None while more is needed. Interim answers (1xx other than 101,
            RFC 9110 §15.2) are passed over.

        Raises:
            HandshakeError: What came is no answer to an upgrade, or a 101 that breaks RFC 6455 §4.1. A 101 with another
                subprotocol or with none is an answer like any other.
            RuntimeError: The answer had been returned already.
        """
        if self._done:
            raise RuntimeError("the handshake is over")
        self._received += data
        while (head := self._next_head()) is not None:
            status, headers = _parse_head(head)
            if status < 200 and status != 101:
                continue
            selected = self._check_upgrade(headers) if status == 101 else None
            self._done = True
            return HandshakeAnswer(status, headers, selected, bytes(self._received))
        return None

    def feed_eof(self) -> NoReturn:
        """The server closed the connection before its answer was complete: raises `HandshakeError`."""
        raise HandshakeError("the server closed the connection before it had answered the upgrade")

    def _next_head(self) -> str | None:
        """Take the next whole head, without the empty line, off what was received; None where there is none yet."""
        received = self._received
        if not received.startswith(_STATUS_LINE_START) and not _STATUS_LINE_START.startswith(received):
            raise HandshakeError("the server does not speak HTTP/1.1")
        stop = received.find(b"\r\n\r\n", max(0, self._searched - 3))
        size = len(received) if stop < 0 else stop + 4
        if self._passed_over + size > MAX_HEAD_BYTES:
            raise HandshakeError(f"the head of the server's answer is over {MAX_HEAD_BYTES} bytes")
        if stop < 0:
            self._searched = size
            return None
        head = received[:stop].decode("iso-8859-1")
        del received[:size]
        self._searched = 0
        self._passed_over += size
        return head

    def _check_upgrade(self, headers: list[tuple[str, str]]) -> str | None:
        """Judge a 101, but for the subprotocol, which is returned: which one will do is the dialer's question."""
        fields = [(name.lower(), value) for name, value in headers]
        by_name = dict(fields)
        if (
            len(by_name) == len(fields)
            and by_name.get("upgrade", "").lower() == "websocket"
            and by_name.get("connection", "").lower() == "upgrade"
            and by_name.get("sec-websocket-accept") == accept_key(self._key)
            and "sec-websocket-extensions" not in by_name
        ):
            return by_name.get("sec-websocket-protocol") or None
        self._check_unusual_upgrade(fields)
        return ", ".join(value for name, value in fields if name == "sec-websocket-protocol" and value) or None

    def _check_unusual_upgrade(self, fields: list[tuple[str, str]]) -> None:
        """Have a 101 judged by `websockets`. Names in lower case."""
        uri = self._wanted.uri
        path, _, query = uri.resource_name.partition("?")
        protocol = ClientProtocol(WebSocketURI(uri.secure, uri.host, uri.port, path, query))
        protocol.key = self._key
        judged = Headers([field for field in fields if field[0] != "sec-websocket-protocol"])
        protocol.receive_data(b"HTTP/1.1 101 Switching Protocols\r\n" + judged.serialize())
        error = protocol.handshake_exc
        if error is None:
            return
        if isinstance(error, NegotiationError):
            fault = "an extension that was not offered"
        elif isinstance(error, InvalidHeader):
            fault = f"a missing or wrong {error.name} header"
        else:
            fault = "a malformed head"
        raise HandshakeError(f"the server answered the upgrade with 101 and {fault}")


def _parse_head(head: str) -> tuple[int, list[tuple[str, str]]]:
    """Status and headers of an answer's head.

    Done here because the parser of `websockets` waits for the body of a refusal and takes no HTTP/1.0, which some
    proxies still use to refuse.
    """
    status_line, *lines = head.split("\r\n")
    parsed = _status_line(status_line)
    if parsed is None:
        raise HandshakeError("the server's answer begins with a malformed status line")
    if len(lines) > MAX_HEADER_LINES:
        raise HandshakeError(f"the server's answer has more than {MAX_HEADER_LINES} header lines")
    if not _are_header_lines(head, len(status_line)):
        raise HandshakeError("the server's answer has a malformed header line")
    parts = [line.partition(":") for line in lines]
    headers = [(name, value.strip(" \t")) for name, _, value in parts]
    status = int(parsed[2])
    if status == 101 and parsed[1] != "1.1":
        raise HandshakeError("the server answered the upgrade with 101 in HTTP/1.0")
    return status, headers


def _check_subprotocols(subprotocols: Sequence[str]) -> None:
    for position, entry in enumerate(subprotocols):
        if not is_token(entry):
            raise ValueError(f"subprotocol entry {position} is not a token: letters, digits and !#$%&'*+-.^_`|~ only")
    if len(set(subprotocols)) != len(subprotocols):
        raise ValueError("a subprotocol is offered twice (RFC 6455 §4.1)")


def _check_headers(headers: Sequence[tuple[str, str]]) -> None:
    for name, value in headers:
        if not is_token(name):
            raise ValueError(f"{name!r} is not the name of a header")
        if name.lower() in _WRITTEN_HERE:
            raise ValueError(f"the header {name} belongs to the handshake and cannot be given")
        if not is_value(value):
            raise ValueError(f"the value of the header {name} holds characters that HTTP does not allow")
