"""What went wrong, for people and for programs: an exit code, a message, and what to do next.

Every failure that a command can meet is explained here, and nowhere else. Messages may quote the remote, so they are
escaped when they are printed; they never show user info or a query of a URL.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from muxws_green.cli.codes import ExitCode
from muxws_green.cli.values import to_json
from muxws_green.errors import (
    CodecMismatch,
    ConnectionClosed,
    ConnectionGoingAway,
    ConnectionLost,
    HandshakeRefused,
    MuxwsError,
    ProtocolError,
    RemoteError,
    ResetCode,
    StreamRefused,
    StreamReset,
    StreamTimeout,
)


@dataclass(frozen=True)
class Failure:
    """One failure, explained.

    Attributes:
        code: What the program ends with.
        kind: A word for programs.
        message: What happened.
        hint: What to do next.
        fields: Further keys for programs.
    """

    code: ExitCode
    kind: str
    message: str
    hint: str
    fields: Mapping[str, Any] = field(default_factory=dict)


class CommandFailed(Exception):
    """Ends a command with a failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def safe_url(url: str) -> str:
    """A URL without what may be a credential: user info, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the URL"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


_STATUS_HINTS = {
    401: "it wants to know who you are: --header 'Authorization: Bearer ...', or name:password@ in the URL",
    403: "it does not let you in: check --header and --subprotocol; it may want an Origin (--header 'Origin: ...')",
    404: "there is nothing at that path of the URL: look for the path that serves muxws",
    429: "it has enough of you for now: try again later",
    503: "it takes no connections now: try again later",
}


def dial_failure(error: Exception, url: str, timeout: float) -> Failure:
    """Why there is no connection to `url`."""
    where = safe_url(url)
    message = f"no connection to {where}: {_text(error)}"
    if isinstance(error, CodecMismatch):
        hint = (
            "try another codec: --codec msgpack or --codec json; if it is none of them, the URL is not a muxws server's"
        )
        return Failure(ExitCode.NO_CONNECTION, "codec", message, hint)
    if isinstance(error, HandshakeRefused):
        return _refused(error, where)
    if isinstance(error, StreamReset):
        failure = call_failure(error, timeout)
        return Failure(
            failure.code,
            "hello",
            f"the hello was not taken by {where}: {failure.message}",
            "check --hello",
            failure.fields,
        )
    if isinstance(error, TimeoutError):
        hint = f"check host and port, or give it longer than {timeout:g} s: --timeout SECONDS"
        return Failure(ExitCode.TIMEOUT, "timeout", message, hint)
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = "name the file of the authority that signed it: --cacert FILE; or look away: --insecure"
        return Failure(ExitCode.NO_CONNECTION, "certificate", message, hint)
    if isinstance(error, ssl.SSLError):
        return Failure(ExitCode.NO_CONNECTION, "tls", message, "if the server has no TLS, the URL begins with ws://")
    if isinstance(error, socket.gaierror):
        return Failure(ExitCode.NO_CONNECTION, "name", message, "check the name of the host, and your network")
    if isinstance(error, ConnectionRefusedError):
        hint = "start a server there, or check host and port; `muxws-green echo` is a server to try with"
        return Failure(ExitCode.NO_CONNECTION, "refused", message, hint)
    if isinstance(error, FileNotFoundError):
        return Failure(ExitCode.NO_CONNECTION, "refused", message, "check the path of the socket, and start its server")
    hint = "check that the URL is a muxws server's; wss:// where it has TLS, ws:// where it has none"
    return Failure(ExitCode.NO_CONNECTION, "network", message, hint)


def _refused(error: HandshakeRefused, where: str) -> Failure:
    hint = _STATUS_HINTS.get(error.status, "check that the URL is a muxws server's, path included")
    location = next((value for name, value in error.headers if name.lower() == "location"), None)
    if location is not None and 300 <= error.status < 400:
        hint = f"redirects are not followed; it points to {safe_url(location)}: dial that, with ws:// or wss://"
    message = f"no connection to {where}: {_text(error)}"
    return Failure(ExitCode.NO_CONNECTION, "http", message, hint, {"status": error.status})


def call_failure(error: Exception, timeout: float | None) -> Failure:
    """Why a call on a connection failed."""
    if isinstance(error, ConnectionLost | ConnectionClosed):
        return _lost(error)
    if isinstance(error, StreamTimeout):
        again = "" if timeout is None else f" than {timeout:g} s"
        hint = f"the remote was told to stop; give it longer{again}: --timeout SECONDS"
        return Failure(ExitCode.TIMEOUT, "timeout", _text(error), hint, _code(error))
    if isinstance(error, RemoteError):
        message = f"the remote's handler failed: {_text(error)}"
        if error.payload is not None:
            message += f"; it sent {to_json(error.payload)}"
        hint = "the log of the remote has the traceback; check the payload"
        return Failure(ExitCode.FAILED, "remote", message, hint, {**_code(error), "payload": error.payload})
    if isinstance(error, StreamRefused):
        hint = "it was not processed, so it is safe to try again; the remote has no handler, is full, or is going away"
        return Failure(ExitCode.FAILED, "refused", f"the remote refused the stream: {_text(error)}", hint, _code(error))
    if isinstance(error, StreamReset):
        message = f"the remote reset the stream: {reset_text(error)}"
        return Failure(ExitCode.FAILED, "reset", message, "check the payload and the log of the remote", _code(error))
    if isinstance(error, ConnectionGoingAway):
        return Failure(ExitCode.FAILED, "goaway", f"the remote is going away: {_text(error)}", "try again in a moment")
    if isinstance(error, ProtocolError):
        hint = "where a call has no answer, or more than one, use `stream` in place of `request`"
        return Failure(ExitCode.FAILED, "protocol", _text(error), hint)
    if isinstance(error, MuxwsError):
        return Failure(ExitCode.FAILED, "failed", _text(error), "check the log of the remote")
    hint = "the codec cannot carry this payload; check it, or try --codec msgpack at both ends"
    return Failure(ExitCode.USAGE, "payload", f"the payload cannot be sent: {_text(error)}", hint)


def output_failure(error: OSError) -> Failure:
    """Why standard output cannot be written."""
    hint = "check where the output goes: a disk that is full, a descriptor that is closed or only for reading"
    return Failure(ExitCode.FAILED, "output", f"the output cannot be written: {_text(error)}", hint)


def _lost(error: ConnectionLost | ConnectionClosed) -> Failure:
    cause = error.__cause__ if isinstance(error, ConnectionLost) else error
    fields: dict[str, Any] = {}
    text = _text(error)
    if isinstance(cause, ConnectionClosed):
        fields = {"close_code": cause.code, "reason": cause.reason}
        text = f"{_text(cause)} (close code {cause.code})"
    hint = "what was under way may or may not have happened; see the log of the server, then try again"
    return Failure(ExitCode.LOST, "lost", f"the connection was lost: {text}", hint, fields)


def reset_text(error: StreamReset) -> str:
    """A reset's code, and its reason where it has one."""
    name = error.code.name if isinstance(error.code, ResetCode) else str(error.code)
    return f"{name}: {error.reason}" if error.reason else name


def _code(error: StreamReset) -> dict[str, Any]:
    return {"reset_code": int(error.code), "reason": error.reason}


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
