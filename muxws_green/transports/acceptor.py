"""From a WSGI request to an open transport, under every host that is known (`hosts`).

The invariant: a refusal is raised before a byte is written, so that the caller can still answer it, and once the 101
is out the host has nothing more to do with the socket. Called by `accept`; the connection's reader and writer are not
known here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import gevent

from muxws_green.errors import ConnectionClosed, OriginRefused, TransportUnsupportedError, UpgradeRefused
from muxws_green.protocol import subprotocol
from muxws_green.protocol.origin import parse_authority, several
from muxws_green.runtime import roster
from muxws_green.transports.hosts import find_host, read_no_further
from muxws_green.transports.hosts.geventwebsocket import UpgradedHost
from muxws_green.transports.socket import SocketTransport
from muxws_green.transports.upgradable import DOOR_KEY, Door
from muxws_green.websocket import UpgradeAnswer, answer_upgrade, answer_usual_upgrade

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

    from muxws_green.interfaces import IOriginPolicy
    from muxws_green.transports.hosts.base import Host

#: Where our own server is in the environ of its requests.
SERVER_KEY = "muxws_green.server"

#: How long a client that is sent away with a close frame is given to answer it, in seconds (PROTOCOL §7).
CLOSE_SECONDS = 1.0

# The reference's names, since both libraries may share a process.
_codec_log = logging.getLogger("muxws.codec")
_origin_log = logging.getLogger("muxws.origin")


class Upgraded:
    """A connection that has been taken over from its host. Made by `upgrade`, and needed until a peer is on it.

    Attributes:
        transport: Its transport; the caller's to end.
        finish: To be called once the connection is over; returns the WSGI body that this host needs. In a view behind
            `upgradable` an empty one that frameworks take, as the middleware gives the host its own.
    """

    def __init__(self, transport: SocketTransport, host: Host, environ: dict[str, Any]) -> None:
        self.transport = transport
        self.finish: Callable[[], Any] = host.finish
        self._host = host
        self._server = environ.get(SERVER_KEY)
        door: Door | None = environ.get(DOOR_KEY)
        if door is not None:
            door.finish = host.finish
            self.finish = bytes

    def enrol(self, peer: roster.Drainable) -> None:
        """Count the peer on this connection among those that a drain of its server reaches, if that is our own."""
        if self._server is not None:
            self._server.enrol(peer)

    def detach(self) -> bool:
        """Let the request end while the connection goes on: if True, return `finish()` from the application now.

        False where the host needs the request for as long as the connection lives, which is any but our own server.
        """
        return self._host.detach()


def upgrade(
    environ: dict[str, Any] | Any,
    start_response: StartResponse | None = None,
    *,
    codec_name: str,
    origins: IOriginPolicy | None = None,
    max_message_bytes: int,
) -> Upgraded:
    """Answer a request for an upgrade with 101 and take its socket over.

    Args:
        environ: The WSGI environ, or the WebSocket object that gevent-websocket has put in it. Where gevent-websocket
            has answered 101 already, a refusal closes the connection with 1008 and is raised as well.
        start_response: That of the request; None in a view behind `upgradable`.
        codec_name: What is spoken here; the last part of the subprotocol.
        origins: Which pages may connect (`compile_policy`); None: any client.
        max_message_bytes: See `SocketTransport`.

    Raises:
        OriginRefused: The `Origin` is not allowed. Checked before anything else in a request for an upgrade.
        UpgradeRefused: The request is no handshake, or a bad one (400, 405, 426), its first muxws subprotocol is not
            this one (400), or this server is going away (503). Nothing has been written; `refuse` answers it.
        TransportUnsupportedError: The host does not give its socket away, or an answer has begun.
    """
    ws = environ.get("wsgi.websocket") if isinstance(environ, dict) else environ
    if ws is not None:
        return _take_over(UpgradedHost(ws), codec_name, origins, max_message_bytes)
    door: Door | None = environ.get(DOOR_KEY)
    if door is not None:
        start_response = door.server_start_response
    try:
        answer = _judge(environ, codec_name, origins)
    except UpgradeRefused:
        # Whatever the application answers.
        _keep_no_longer(environ, start_response)
        raise
    if start_response is None:
        raise TransportUnsupportedError(
            "accept() without start_response needs the middleware upgradable() around the whole application, "
            "or the framework would answer a request that is a WebSocket by then"
        )
    if door is not None:
        door.check_unanswered()
    return _switch(find_host(environ, start_response), answer, environ, max_message_bytes)


def refuse(error: UpgradeRefused, environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
    """Answer a refused upgrade as an ordinary request; the connection is not kept.

    Returns:
        The WSGI body.
    """
    try:
        phrase = HTTPStatus(error.status).phrase
    except ValueError:
        phrase = "Refused"
    body = f"{error.reason}\n".encode()
    headers = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
        *error.headers,
    ]
    start_response(f"{error.status} {phrase}", headers)
    _keep_no_longer(environ, start_response)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def _judge(environ: dict[str, Any], codec_name: str, origins: IOriginPolicy | None) -> UpgradeAnswer:
    """The 101 for this request; raises what it is refused with."""
    server = environ.get(SERVER_KEY)
    if not roster.is_open() or (server is not None and server.draining):
        raise UpgradeRefused(503, roster.REASON)
    # Whoever asks for no upgrade is told what this place is for, even without an Origin.
    if origins is not None and "HTTP_UPGRADE" in environ:
        _check_origin(environ, origins)

    def select(offered: list[str]) -> str | None:
        entry = subprotocol.select(offered, codec_name)
        if entry is None:
            _codec_log.error("%s", subprotocol.refusal_text(offered, codec_name))
        return entry

    answer = _answer_at_first_sight(environ, select) or _answer_at_length(environ, select)
    if answer.status != 101:
        extra = [header for header in answer.headers if header[0] not in _MADE_BY_REFUSE]
        raise UpgradeRefused(answer.status, answer.body.decode().strip(), headers=extra)
    return answer


def _answer_at_first_sight(environ: dict[str, Any], select: Callable[[list[str]], str | None]) -> UpgradeAnswer | None:
    """What `_answer_at_length` returns for a request that is as clients make it; None where it has to be asked."""
    get = environ.get
    if (
        environ["REQUEST_METHOD"] != "GET"
        or environ["SERVER_PROTOCOL"] != "HTTP/1.1"
        or parse_authority(get("HTTP_HOST", "")) is None
        or get("CONTENT_LENGTH")
        or "HTTP_CONTENT_LENGTH" in environ
        or "HTTP_TRANSFER_ENCODING" in environ
    ):
        return None
    return answer_usual_upgrade(
        upgrade=get("HTTP_UPGRADE", ""),
        connection=get("HTTP_CONNECTION", ""),
        version=get("HTTP_SEC_WEBSOCKET_VERSION", ""),
        key=get("HTTP_SEC_WEBSOCKET_KEY", ""),
        protocols=get("HTTP_SEC_WEBSOCKET_PROTOCOL", ""),
        select=select,
    )


def _answer_at_length(environ: dict[str, Any], select: Callable[[list[str]], str | None]) -> UpgradeAnswer:
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    headers = [(key[5:].replace("_", "-"), value) for key, value in environ.items() if key.startswith("HTTP_")]
    if environ.get("CONTENT_LENGTH"):
        headers.append(("CONTENT-LENGTH", environ["CONTENT_LENGTH"]))
    answer = answer_upgrade(environ["REQUEST_METHOD"], path, headers, select, environ["SERVER_PROTOCOL"])
    if answer.status == 101 and parse_authority(environ["HTTP_HOST"].strip()) is None:
        raise UpgradeRefused(400, "a malformed Host header")
    return answer


def _keep_no_longer(environ: dict[str, Any], start_response: StartResponse | None) -> None:
    """Frames of a hasty client may follow a refused handshake, and would be taken for its next request."""
    door: Door | None = environ.get(DOOR_KEY)
    read_no_further(start_response if door is None else door.server_start_response)


_MADE_BY_REFUSE = ("Content-Type", "Content-Length", "Connection")


def _check_origin(environ: dict[str, Any], origins: IOriginPolicy) -> None:
    origin: str | None = environ.get("HTTP_ORIGIN")
    if origins.allows(origin, environ.get("HTTP_HOST"), environ.get("HTTP_X_FORWARDED_HOST")):
        return
    shown = None if origin is None else ", ".join(several(origin))
    _origin_log.info("refused an upgrade asked for by a page of origin %.200r", shown)
    raise OriginRefused(shown)


def _switch(host: Host, answer: UpgradeAnswer, environ: dict[str, Any], max_message_bytes: int) -> Upgraded:
    leftover = host.switch(answer)
    transport = SocketTransport(host.sock, client=False, max_message_bytes=max_message_bytes, leftover=leftover)
    return Upgraded(transport, host, environ)


def _take_over(host: UpgradedHost, codec_name: str, origins: IOriginPolicy | None, max_message_bytes: int) -> Upgraded:
    """Go on with a connection that has been answered with 101."""
    environ = host.environ
    try:
        answer = _judge(environ, codec_name, origins)
        if host.selected not in [value for name, value in answer.headers if name == "Sec-WebSocket-Protocol"]:
            raise UpgradeRefused(400, "gevent-websocket has not selected the subprotocol; give it an app_protocol()")
    except UpgradeRefused as error:
        # What was read behind the head does not matter any more.
        host.switch(UpgradeAnswer(101, "", [], b""))
        _close_with_1008(SocketTransport(host.sock, client=False, max_message_bytes=max_message_bytes), error.reason)
        host.finish()
        raise
    return _switch(host, answer, environ, max_message_bytes)


def _close_with_1008(transport: SocketTransport, reason: str) -> None:
    with gevent.Timeout(CLOSE_SECONDS, False):  # type: ignore[arg-type]
        try:
            transport.close(1008, reason)
            while True:
                transport.receive()
        except ConnectionClosed:
            pass
    transport.abort()
