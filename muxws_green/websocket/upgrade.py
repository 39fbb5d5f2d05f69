"""The opening handshake as a server answers it (RFC 6455 §4.2), around the rules of `websockets`.

Invariant: nothing that a client sends raises, no extension is ever accepted, and no text made here quotes the request.
For the acceptor, which judges `Origin` and the target itself.

A request as clients make it is told by its shape, since making a `ServerProtocol` for each takes as long as all the
rest of a connection; whatever looks different is judged by `websockets`, which also says what is wrong with it.
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
    offered = _usual_offer(fields)
    if offered is None:
        offered = []

        def note(_: ServerProtocol, entries: Sequence[Subprotocol]) -> None:
            offered.extend(entries)

        judged = Headers([(name, value) for name, value in headers if name.lower() in HANDSHAKE_FIELDS])
        protocol = ServerProtocol(select_subprotocol=note)
        if protocol.accept(Request(target, judged)).status_code != 101:
            return _refusal_for(protocol.handshake_exc, fields)
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
            ("Sec-WebSocket-Accept", accept_key(fields["sec-websocket-key"][0])),
            ("Sec-WebSocket-Protocol", selected),
        ],
        b"",
    )


def _usual_offer(fields: Mapping[str, list[str]]) -> list[str] | None:
    """The subprotocols that a request offers which is a good handshake at first sight; None where it takes another."""
    if any(len(fields.get(name, ())) != 1 for name in HANDSHAKE_FIELDS):
        return None
    connection = [entry.strip(" \t").lower() for entry in fields["connection"][0].split(",")]
    offered = [entry.strip(" \t") for entry in fields["sec-websocket-protocol"][0].split(",")]
    if (
        fields["upgrade"][0].lower() == "websocket"
        and fields["sec-websocket-version"][0] == "13"
        and _is_key(fields["sec-websocket-key"][0])
        and "upgrade" in connection
        and all(map(is_token, connection))
        and all(map(is_token, offered))
    ):
        return offered
    return None


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
