"""The opening handshake as a server answers it (RFC 6455 §4.2), around the rules of `websockets`.

Invariant: nothing that a client sends raises, no extension is ever accepted, and no text made here quotes the request.
For the acceptor, which judges `Origin` and the target itself.

A request as clients make it is told by its shape (`answer_usual_upgrade`), since making a `ServerProtocol` for each
takes as long as all the rest of a connection; whatever looks different is judged by `websockets` (`answer_upgrade`),
which also says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

from websockets.datastructures import Headers
from websockets.exceptions import InvalidHeader, InvalidUpgrade
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.utils import accept_key

from muxws_green.websocket.fields import HANDSHAKE_FIELDS, is_token, is_value

#: What a 426 must carry (RFC 9110 §15.5.22, RFC 6455 §4.4).
_UPGRADE = (("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"))

_is_websocket = re.compile("websocket", re.ASCII | re.IGNORECASE).fullmatch

#: Sixteen bytes in base64.
_is_key = re.compile(r"[A-Za-z0-9+/]{22}==").fullmatch


class UpgradeAnswer(NamedTuple):
    """What to answer a request for an upgrade.

    Attributes:
        status: 101, or that of a refusal.
        reason: The phrase beside it in the status line.
        headers: (name, value); complete but for `Date`.
        body: Empty with 101, else a line of text.
    """

    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes


def answer_upgrade(
    method: str,
    target: str,
    headers: Sequence[tuple[str, str]],
    select: Callable[[list[str]], str | None],
    http_version: str = "HTTP/1.1",
) -> UpgradeAnswer:
    """What a server answers a request for an upgrade (RFC 6455 §4.2). Judges neither `Origin` nor the target.

    Args:
        method: The method of the request.
        target: Its request target, as received.
        headers: Its headers as (name, value), one entry a line or, as WSGI has them, joined with commas.
        select: Called with all subprotocols offered, in order over all lines, where the request is otherwise good.
            Returns the entry to select, exactly as offered, or None to refuse the request with 400.
        http_version: The version in the request line.

    Returns:
        101 with the headers that open the WebSocket; 405 for another method than GET, 426 for a request that asks for
        no upgrade or for another version of the protocol than 13, 400 for anything else.

    Raises:
        ValueError: `select` returned something that was not offered.
    """
    if method != "GET":
        return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, "a WebSocket is opened with GET", ("Allow", "GET"))
    fields: dict[str, list[str]] = {}
    for name, value in headers:
        fields.setdefault(name.lower(), []).append(value.strip(" \t"))
    fault = _fault_of_request(fields, http_version)
    if fault:
        return _refusal(HTTPStatus.BAD_REQUEST, fault)
    offered: list[str] = []

    def note(_: ServerProtocol, entries: Sequence[Subprotocol]) -> None:
        offered.extend(entries)

    judged = Headers([(name, value.strip(" \t")) for name, value in headers if name.lower() in HANDSHAKE_FIELDS])
    protocol = ServerProtocol(select_subprotocol=note)
    if protocol.accept(Request(target, judged)).status_code != 101:
        return _refusal_for(protocol.handshake_exc, fields)
    return _answer_good(fields["sec-websocket-key"][0], offered, select)


def answer_usual_upgrade(
    *, upgrade: str, connection: str, version: str, key: str, protocols: str, select: Callable[[list[str]], str | None]
) -> UpgradeAnswer | None:
    """What `answer_upgrade` answers, for a tenth of its price, where the handshake is good at first sight.

    Of a GET request of HTTP/1.1 with one `Host` and no body; that is for the caller to know.

    Args:
        upgrade: The value of `Upgrade`; empty where there is none, as all of these.
        connection: That of `Connection`.
        version: That of `Sec-WebSocket-Version`.
        key: That of `Sec-WebSocket-Key`.
        protocols: That of `Sec-WebSocket-Protocol`.
        select: As in `answer_upgrade`.

    Returns:
        101, or 400 where `select` says so. None where it takes `answer_upgrade` to judge; `select` was not called then.

    Raises:
        ValueError: `select` returned something that was not offered.
    """
    if version != "13" or not _is_key(key) or not _is_websocket(upgrade):
        return None
    offered = _tokens(protocols)
    if not offered or "upgrade" not in map(str.lower, _tokens(connection)):
        return None
    return _answer_good(key, offered, select)


def _answer_good(key: str, offered: list[str], select: Callable[[list[str]], str | None]) -> UpgradeAnswer:
    """The answer to a handshake in which nothing is wrong but, maybe, what it offers."""
    selected = select(offered)
    if selected is None:
        return _refusal(HTTPStatus.BAD_REQUEST, "none of the subprotocols offered is spoken here")
    if selected not in offered:
        raise ValueError("the subprotocol to select is not among those offered")
    return UpgradeAnswer(
        101,
        "Switching Protocols",
        [
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", accept_key(key)),
            ("Sec-WebSocket-Protocol", selected),
        ],
        b"",
    )


def _tokens(value: str) -> list[str]:
    """The entries of a header that lists tokens; none where one of them is no token."""
    if is_token(value):
        return [value]
    entries = [entry.strip(" \t") for entry in value.split(",")]
    return entries if all(map(is_token, entries)) else []


def _fault_of_request(fields: Mapping[str, list[str]], http_version: str) -> str:
    """What makes a GET request one that is not to be looked into any further; empty where nothing does."""
    if http_version != "HTTP/1.1":
        return "a WebSocket needs HTTP/1.1"
    if any(not is_value(value) for name in HANDSHAKE_FIELDS for value in fields.get(name, ())):
        return "a header of the handshake holds characters that HTTP does not allow"
    hosts = fields.get("host", ())
    # A comma is how WSGI hosts join several lines.
    if len(hosts) != 1 or not hosts[0] or "," in hosts[0]:
        return "exactly one Host header is needed"
    # A body would be taken for frames.
    if fields.get("transfer-encoding") or any(size != "0" for size in fields.get("content-length", ())):
        return "an upgrade has no body"
    return ""


def _refusal_for(error: Exception | None, fields: Mapping[str, list[str]]) -> UpgradeAnswer:
    """The answer to a request that `websockets` refused with `error`; its own texts would quote the client."""
    if isinstance(error, InvalidUpgrade):
        return _refusal(HTTPStatus.UPGRADE_REQUIRED, "a WebSocket client is needed here", *_UPGRADE)
    name = error.name if isinstance(error, InvalidHeader) else "handshake"
    if name == "Sec-WebSocket-Version" and len(fields.get("sec-websocket-version", ())) == 1:
        return _refusal(HTTPStatus.UPGRADE_REQUIRED, "version 13 of the WebSocket protocol is needed", *_UPGRADE)
    return _refusal(HTTPStatus.BAD_REQUEST, f"a missing or wrong {name} header")


def _refusal(status: HTTPStatus, text: str, *extra: tuple[str, str]) -> UpgradeAnswer:
    body = f"{text}\n".encode()
    # What follows a refused request may be frames of a hasty client, so the connection must not be read on.
    headers = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
    ]
    return UpgradeAnswer(status.value, status.phrase, headers + list(extra), body)
