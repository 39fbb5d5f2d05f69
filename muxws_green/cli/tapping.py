"""`tap`: stands between a client and a server and prints a line for each frame that passes.

Bytes pass as they are, but for the head of the request: its `Host` is the target's, so that proxies and TLS work, and
extensions are not offered, since compressed frames could not be read along. A line is printed before its frame is
passed on, so that the lines are in the order of cause and effect; whoever stops the output stops the traffic.
"""

from __future__ import annotations

import itertools
import signal
import socket
import ssl
import time
from typing import Any

import click
import gevent
from gevent.event import Event
from gevent.server import StreamServer
from gevent.socket import socket as GeventSocket  # noqa: N812
from gevent.ssl import SSLSocket
from websockets.headers import build_authorization_basic

from muxws_green.cli.failures import dial_failure, safe_url
from muxws_green.cli.options import reporting, tls_context, tls_options
from muxws_green.cli.output import Output, OutputGone
from muxws_green.cli.serving import cannot_listen
from muxws_green.cli.spying import FrameSpy, Seen, flags_of
from muxws_green.cli.values import to_json
from muxws_green.codecs import MsgpackCodec, get_codec, register_codec
from muxws_green.errors import CodecNotRegistered, ResetCode
from muxws_green.interfaces import ICodec
from muxws_green.protocol.frames import ABSENT
from muxws_green.protocol.subprotocol import PREFIX
from muxws_green.runtime.clock import default_clock
from muxws_green.transports import tls
from muxws_green.transports.deadline import Deadline
from muxws_green.transports.network import connect_tcp, connect_unix
from muxws_green.transports.urls import Target, parse_url
from muxws_green.websocket import MAX_HEAD_BYTES

_ARROWS = {"to_server": "->", "to_client": "<-"}


class HeadTooLong(Exception):
    """What came is no head of a request or an answer."""


class Tap:
    """Relays connections to one server and tells what passes.

    Args:
        out: Where to tell it.
        url: The server.
        context: For `wss://`; None: the usual one.
        timeout: Seconds for connecting to the server, and for each head.
        payloads: Whether to tell what the frames carry.
        stop: Called when nobody reads the output any more.
    """

    def __init__(
        self, out: Output, url: str, context: ssl.SSLContext | None, timeout: float, payloads: bool, stop: Event
    ) -> None:
        self._out = out
        self._url = url
        self._target: Target = parse_url(url)
        self._context = context or (tls.default_context() if self._target.secure else None)
        self._timeout = timeout
        self._payloads = payloads
        self._stop = stop
        self._numbers = itertools.count(1)
        self._begun = time.monotonic()
        self.gone = False

    def __call__(self, client: GeventSocket, address: Any) -> None:
        """Relay one connection until both sides have ended."""
        number = next(self._numbers)
        with client:
            try:
                self._relay(client, number)
            except OSError as error:
                # The client has gone before it was answered.
                self._tell(number, "closed", f"closed: {error}", reason=str(error))

    def _relay(self, client: GeventSocket, number: int) -> None:
        try:
            with Deadline(default_clock, self._timeout, "the client sent no whole request"):
                request, behind = _read_head(client)
        except (OSError, HeadTooLong) as error:
            self._tell(number, "closed", f"closed: {error}", reason=str(error))
            return
        self._tell(number, "request", f"-> {_request_line(request)}", request=_request_line(request))
        try:
            server = self._connect()
        except OSError as error:
            failure = dial_failure(error, self._url, self._timeout)
            self._tell(number, "closed", f"closed: {failure.message}; {failure.hint}", reason=failure.message)
            client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        with server:
            try:
                with Deadline(default_clock, self._timeout, "the server sent no whole answer"):
                    server.sendall(_rewritten(request, self._target))
                    answer, early = _read_head(server)
            except (OSError, HeadTooLong) as error:
                self._tell(number, "closed", f"closed: {error}", reason=str(error))
                return
            self._pass(client, server, number, answer, (behind, early))
        self._tell(number, "closed", "closed")

    def _pass(
        self, client: GeventSocket, server: GeventSocket, number: int, answer: list[str], rest: tuple[bytes, bytes]
    ) -> None:
        selected = next((value for name, value in _fields(answer) if name == "sec-websocket-protocol"), None)
        status = answer[0].split(" ", 1)[-1]
        # Another entry may be a credential.
        shown = selected if selected is not None and selected.startswith(PREFIX) else None
        self._tell(number, "answer", f"<- {status}" + (f" {shown}" if shown else ""), status=status, subprotocol=shown)
        upgraded = status.startswith("101")
        codec = _codec(selected) if upgraded else None
        ways = {
            "to_server": (client, server, rest[0]),
            "to_client": (server, client, rest[1]),
        }
        client.sendall(_written(answer))
        flows = []
        for direction, (source, sink, first) in ways.items():
            spy = FrameSpy(codec) if upgraded else None
            flows.append(gevent.spawn(self._flow, source, sink, first, spy, number, direction))
        try:
            # Until both have ended, or one of them says that the other one may not go on.
            all(flow.get() is True for flow in gevent.iwait(flows))
        finally:
            gevent.killall(flows)

    def _flow(
        self, source: GeventSocket, sink: GeventSocket, data: bytes, spy: FrameSpy | None, number: int, direction: str
    ) -> bool:
        """Pass one direction on until it ends; whether the other one may go on."""
        try:
            while True:
                if data:
                    for seen in spy.feed(data) if spy is not None else ():
                        self._tell_seen(number, direction, seen)
                    sink.sendall(data)
                data = source.recv(65_536)
                if not data:
                    break
            if isinstance(sink, SSLSocket):
                # It cannot be closed by halves.
                return False
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            # One side has gone without a goodbye, so the other one is told in the same way.
            return False
        return True

    def _connect(self) -> GeventSocket:
        with Deadline(default_clock, self._timeout, f"nothing came of it within {self._timeout:g} s") as deadline:
            if self._target.socket_path is not None:
                return connect_unix(self._target.socket_path, default_clock)
            sock = connect_tcp(self._target.host, self._target.port, default_clock, deadline)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._context is None:
                    return sock
                secure = tls.wrap(sock, self._context, self._target.host)
                sock = secure
                secure.do_handshake()
            except BaseException:
                sock.close()
                raise
            return secure

    # What is told

    def _tell(self, number: int, kind: str, human: str, **fields: Any) -> None:
        at = time.monotonic() - self._begun
        try:
            self._out.event(kind, f"{at:8.3f} #{number} {human}", connection=number, at=round(at, 3), **fields)
        except OutputGone:
            self.gone = True
            self._stop.set()
            # An end of this greenlet that is nobody's failure.
            raise gevent.GreenletExit from None

    def _tell_seen(self, number: int, direction: str, seen: Seen) -> None:
        fields: dict[str, Any] = {"direction": direction, "type": seen.kind}
        words = [f"{_ARROWS[direction]} {seen.kind:<6}"]
        frame = seen.frame
        if frame is not None and frame.stream is not None:
            fields["stream"] = frame.stream
            words.append(f"stream={frame.stream}")
        fields["bytes"] = seen.size
        words.append(f"bytes={seen.size}")
        if seen.kind == "ws-close":
            fields |= {"code": seen.code, "reason": seen.text}
            words.append(f"code={'none' if seen.code is None else seen.code}")
            words += [f"reason={seen.text!r}"] if seen.text else []
        elif seen.text:
            fields["reason"] = seen.text
            words.append(seen.text)
        if frame is not None:
            flags = flags_of(frame)
            fields |= flags
            words += [_flag(name, value) for name, value in flags.items()]
            if self._payloads:
                carried = {
                    name: value
                    for name in ("payload", "fragment", "headers", "trailers")
                    if (value := getattr(frame, name)) is not ABSENT and value is not None
                }
                if frame.payload is None:
                    carried["payload"] = None
                # `headers` and `trailers` are counts above.
                fields["carries"] = carried
                words += [f"{name}={to_json(value)}" for name, value in carried.items()]
        self._tell(number, "frame", " ".join(words), **fields)


def _flag(name: str, value: Any) -> str:
    if value is True:
        return name
    if name == "code":
        known = value in ResetCode.__members__.values()
        return f"code={value}" + (f"({ResetCode(value).name})" if known else "")
    return f"{name}={value!r}" if isinstance(value, str) and name in ("reason", "nonce") else f"{name}={value}"


def _codec(selected: str | None) -> ICodec | None:
    if selected is None or not selected.startswith(PREFIX):
        return None
    try:
        return get_codec(selected.removeprefix(PREFIX))
    except CodecNotRegistered:
        return None


# Heads of HTTP messages, as lists of lines


def _read_head(sock: GeventSocket) -> tuple[list[str], bytes]:
    """The lines of a head, and what came behind it."""
    received = bytearray()
    while (stop := received.find(b"\r\n\r\n")) < 0:
        if len(received) > MAX_HEAD_BYTES:
            raise HeadTooLong(f"a head of more than {MAX_HEAD_BYTES} bytes")
        data = sock.recv(65_536)
        if not data:
            raise HeadTooLong("hung up before the handshake")
        received += data
    return received[:stop].decode("latin-1").split("\r\n"), bytes(received[stop + 4 :])


def _written(lines: list[str]) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _fields(lines: list[str]) -> list[tuple[str, str]]:
    return [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])]


def _request_line(lines: list[str]) -> str:
    """Method and path; a query may hold a credential."""
    method, _, rest = lines[0].partition(" ")
    return f"{method} {rest.split(' ')[0].split('?')[0]}"


def _rewritten(lines: list[str], target: Target) -> bytes:
    """A client's request as the target is to see it."""
    wanted = target.wanted
    words = lines[0].split(" ")
    if wanted.resource_name != "/" and len(words) == 3:
        words[1] = wanted.resource_name
    host = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
    if wanted.port != (443 if wanted.secure else 80):
        host += f":{wanted.port}"
    head = [" ".join(words), f"Host: {host}"]
    names = {name for name, _ in _fields(lines)}
    if wanted.user_info is not None and "authorization" not in names:
        head.append(f"Authorization: {build_authorization_basic(*wanted.user_info)}")
    kept = [
        line for line in lines[1:] if line.partition(":")[0].strip().lower() not in ("host", "sec-websocket-extensions")
    ]
    return _written(head + kept)


@click.command()
@tls_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=9000,
    show_default=True,
    help="Port to listen on; 0 lets the system choose.",
)
@click.option("--payloads", is_flag=True, help="Print payloads, headers and trailers too, which may hold secrets.")
@reporting(serves=True)
def tap(
    out: Output, url: str, insecure: bool, cacert: str | None, timeout: float, host: str, port: int, payloads: bool
) -> None:
    """Stand between clients and the server at URL, and print a line for each frame, until Ctrl-C.

    Clients dial the URL that is printed. A path in URL takes the place of theirs.
    """
    register_codec("msgpack", MsgpackCodec())
    stop = Event()
    relay = Tap(out, url, tls_context(url, insecure, cacert), timeout, payloads, stop)
    server = StreamServer((host, port), relay)
    signals = [gevent.signal_handler(number, stop.set) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        try:
            server.start()
        except OSError as error:
            raise cannot_listen(error, host, port) from error
        shown = f"ws://{f'[{host}]' if ':' in host else host}:{server.server_port}/"
        human = f"tap listening on {shown}, before {safe_url(url)}"
        out.event("listening", human, url=shown, target=safe_url(url))
        with out.while_read():
            stop.wait()
    finally:
        for watcher in signals:
            watcher.cancel()
        server.stop(timeout=0)
    if relay.gone:
        raise OutputGone
