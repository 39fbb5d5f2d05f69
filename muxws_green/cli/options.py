"""What the commands share on the command line: options, how they are judged, and how a command ends.

`dials` gives a command its URL and the options of a connection as one `Dial`; `reporting` gives it its `Output` and
turns every way in which it can end into an exit code. What is wrong with an option is said before a socket is opened.
"""

from __future__ import annotations

import functools
import os
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import click
from gevent import ssl as gevent_ssl
from gevent.socket import wait_read

from muxws_green.api import connect
from muxws_green.cli.codes import ExitCode
from muxws_green.cli.escape import escaped
from muxws_green.cli.failures import CommandFailed, call_failure, dial_failure, output_failure, safe_url
from muxws_green.cli.interrupts import Interrupted, interruptible
from muxws_green.cli.output import Output, OutputGone
from muxws_green.cli.values import from_json
from muxws_green.codecs import MsgpackCodec, get_codec, register_codec
from muxws_green.codecs.registry import resolve_codec
from muxws_green.errors import CodecNotRegistered, MuxwsError, TransportUrlError
from muxws_green.interfaces import ICodec
from muxws_green.protocol.backoff import Reconnect
from muxws_green.protocol.frames import ABSENT
from muxws_green.runtime.peer import Peer
from muxws_green.transports.urls import parse_url

#: The codecs that can be named; `fast` is `json` on another library.
CODECS: Final = ("json", "msgpack", "fast")

#: Of a connection that is not to come back.
_ONCE: Final = Reconnect(max_attempts=0)

#: What may still leave, such as a reset, when a command ends before its time.
_PARTING_SECONDS = 1.0

Command = Callable[..., Any]


@dataclass(frozen=True)
class Dial:
    """How to reach a server."""

    url: str
    codec: ICodec
    headers: tuple[tuple[str, str], ...]
    subprotocols: tuple[str, ...]
    hello: Any
    ssl_context: ssl.SSLContext | None
    timeout: float

    @property
    def shown(self) -> str:
        """The URL as it may be printed."""
        return safe_url(self.url)

    def connect(self, out: Output, **options: Any) -> Peer:
        """An established peer, which does not dial again unless `options` say so.

        Args:
            out: Shows that it takes long.
            options: Further ones of `muxws_green.connect`.

        Raises:
            CommandFailed: There is no connection.
            click.ClickException: An option is wrong.
        """
        hello = None if self.hello is ABSENT else self.hello
        try:
            with out.progress(lambda seconds: f"connecting to {self.shown}: {seconds} s"):
                return connect(
                    self.url,
                    **{
                        "codec": self.codec,
                        "headers": self.headers,
                        "subprotocols": self.subprotocols,
                        "hello": hello,
                        # These alone make a hello of null.
                        "hello_headers": {} if hello is None and self.hello is not ABSENT else None,
                        "hello_timeout": self.timeout,
                        "open_timeout": self.timeout,
                        "ssl_context": self.ssl_context,
                        "reconnect": _ONCE,
                        **options,
                    },
                )
        except (MuxwsError, OSError) as error:
            if isinstance(error, TransportUrlError):
                raise click.BadParameter(escaped(str(error)), param_hint="URL") from None
            raise CommandFailed(dial_failure(error, self.url, self.timeout)) from error
        except (ValueError, TypeError) as error:
            raise click.UsageError(escaped(str(error))) from None

    @contextmanager
    def connected(self, out: Output, **options: Any) -> Iterator[Peer]:
        """The same for a block, behind which the connection is closed.

        Args:
            out: As in `connect`.
            options: As in `connect`.
        """
        peer = self.connect(out, **options)
        try:
            with out.while_read():
                yield peer
        finally:
            # A reset that was queued is to leave, and so is the goodbye.
            peer.close(drain=_PARTING_SECONDS)


def reporting(*, serves: bool = False) -> Callable[[Command], Command]:
    """Call a command with an `Output`, and return its exit code whatever becomes of it.

    Args:
        serves: Whether the command looks after Ctrl-C itself. Otherwise it is ended by it at its next wait.
    """

    def decorate(function: Command) -> Command:
        @click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, for programs.")
        @functools.wraps(function)
        def command(*, as_json: bool, **arguments: Any) -> int:
            out = Output(as_json=as_json)
            try:
                with nullcontext() if serves else interruptible():
                    return int(function(out, **arguments) or ExitCode.OK)
            except Interrupted:
                return ExitCode.INTERRUPTED
            except OutputGone:
                if out.fault is None:
                    return ExitCode.OK
                failure = output_failure(out.fault)
            except CommandFailed as error:
                failure = error.failure
            except (MuxwsError, ValueError, TypeError, OverflowError) as error:
                failure = call_failure(error, arguments["dial"].timeout if "dial" in arguments else None)
            out.fail(failure)
            return failure.code

        return command

    return decorate


def tls_options(function: Command) -> Command:
    """Give a command `url`, `insecure`, `cacert` and `timeout`: what reaching any server takes."""
    for decorate in (
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            default=10.0,
            show_default=True,
            metavar="SECONDS",
            help="How long connecting may take, and each answer that is waited for.",
        ),
        click.option(
            "--cacert",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="Take certificates of the authorities in this file, and of no others.",
        ),
        click.option("--insecure", is_flag=True, help="Take any certificate of a wss:// server."),
        click.argument("url"),
    ):
        function = decorate(function)
    return function


def dials(function: Command) -> Command:
    """Give a command a URL and the options of a connection, as the keyword argument `dial`."""

    @tls_options
    @click.option(
        "--codec",
        type=click.Choice(CODECS),
        help="How payloads are encoded.  [default: what MUXWS_CODEC says, or json]",
    )
    @click.option("--header", multiple=True, metavar="'NAME: VALUE'", help="A header of the HTTP request; repeatable.")
    @click.option("--subprotocol", multiple=True, metavar="ENTRY", help="A further subprotocol to offer; repeatable.")
    @click.option("--hello", metavar="JSON", help="A payload to send first, which the server must acknowledge.")
    @functools.wraps(function)
    def command(
        *args: Any,
        url: str,
        codec: str | None,
        header: tuple[str, ...],
        subprotocol: tuple[str, ...],
        hello: str | None,
        insecure: bool,
        cacert: str | None,
        timeout: float,
        **arguments: Any,
    ) -> Any:
        chosen = named_codec(codec)
        dial = Dial(
            url,
            chosen,
            tuple(_header(text) for text in header),
            subprotocol,
            ABSENT if hello is None else typed_payload(hello, chosen, "--hello"),
            tls_context(url, insecure, cacert),
            timeout,
        )
        return function(*args, dial=dial, **arguments)

    return command


def named_codec(name: str | None) -> ICodec:
    """The codec of the option `--codec`; None: the one that the environment names.

    Raises:
        click.ClickException: It cannot be had.
    """
    register_codec("msgpack", MsgpackCodec())
    if name == "fast":
        try:
            from muxws_green.codecs.fast import FastJsonCodec
        except ImportError:
            raise click.BadParameter(
                'it needs msgspec: pip install "muxws-green[fast]"', param_hint="--codec"
            ) from None
        return FastJsonCodec()
    try:
        return resolve_codec() if name is None else get_codec(name)
    except CodecNotRegistered as error:
        raise click.UsageError(f"{escaped(str(error))}; or say --codec json") from None


def typed_payload(text: str, codec: ICodec, what: str) -> Any:
    """A payload from the command line: JSON, `@FILE` for a file with JSON in it, `-` for standard input.

    Args:
        text: As it was typed.
        codec: What it is for.
        what: What to call it in a message.

    Raises:
        click.ClickException: It cannot be read, or is no JSON.
    """
    try:
        if text == "-":
            text = _stdin()
        elif text.startswith("@"):
            with open(text[1:], encoding="utf-8") as file:
                text = file.read()
        return from_json(text, binary=codec.binary)
    except (OSError, ValueError) as error:
        hint = "a string needs its double quotes, and the shell single ones around it all: '\"text\"'"
        raise click.BadParameter(escaped(f"{error}; {hint}"), param_hint=what) from None


def _stdin() -> str:
    if sys.stdin is None:
        raise ValueError("there is no standard input")
    return b"".join(iter(_some_of_stdin, b"")).decode()


def _some_of_stdin() -> bytes:
    wait_read(0)
    return os.read(0, 65_536)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        # Not quoted: it may be a credential.
        raise click.BadParameter("it has the form 'Name: value'", param_hint="--header")
    return name.strip(), value.strip()


def tls_context(url: str, insecure: bool, cacert: str | None) -> ssl.SSLContext | None:
    """The context that the options ask for; None for the usual one.

    Raises:
        click.ClickException: They contradict each other or the URL, or the file holds no certificate.
    """
    try:
        secure = parse_url(url).secure
    except MuxwsError as error:
        raise click.BadParameter(f"{escaped(str(error))}; such as ws://127.0.0.1:8000/", param_hint="URL") from None
    if not insecure and cacert is None:
        return None
    if not secure:
        raise click.UsageError("--insecure and --cacert are for wss:// URLs; this one has no TLS")
    if insecure and cacert is not None:
        raise click.UsageError("--insecure takes any certificate, so --cacert has no meaning beside it; leave one out")
    # Of gevent's class: a handshake of the standard library's would block every greenlet.
    context: ssl.SSLContext = gevent_ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    try:
        context.load_verify_locations(cafile=cacert)
    except ssl.SSLError:
        raise click.BadParameter("there is no certificate in PEM form in this file", param_hint="--cacert") from None
    return context


#: The argument JSON of commands that send one payload.
payload_argument = click.argument("payload", metavar="JSON")
