"""Which socket a URL names, and which request is to be sent over it.

    ws://host:port/path    wss://host:port/path    ws+unix:///run/app.sock:/path

A `ws+unix:` URL names two things: its path plus query is cut at the first colon into the socket file and the target of
the request, as the `ws` package of Node.js and the reference do. Judged once, before anything is opened; no message
shows user info or a query, since both may be credentials. Used by the dialer.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import urlsplit

from muxws_green.errors import TransportUnsupportedError, TransportUrlError
from muxws_green.websocket import WsUri, parse_ws_uri

#: What fits into the kernel's `sun_path` beside the terminating zero.
_MAX_SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103

#: Names that need no closer look, which takes as long as all the rest.
_is_plain_name = re.compile(r"[0-9a-z-]{1,63}(?:\.[0-9a-z-]{1,63})*").fullmatch
#: `urlsplit` removes some of these in silence, so that another file would be opened than the one that was named.
_control_character = re.compile(r"[\x00-\x1f\x7f]").search
#: User info and a query may be credentials, which must not outlive the connections that they are for.
_may_hold_secrets = re.compile(r"[@?]").search
#: What is secret must not be kept, and the authorities that TLS trusts are to be read anew for each dialer.
_may_be_shared = re.compile(r"ws(?:\+unix)?:[^@?]*", re.IGNORECASE).fullmatch


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect to, and for which `ws://` or `wss://` URL to ask there.

    Attributes:
        uri: The URL of the request; may hold credentials and is left out of the repr.
        wanted: Its parts.
        socket_path: The file of the Unix socket; None for TCP.
    """

    uri: str = field(repr=False)
    wanted: WsUri
    socket_path: str | None = None

    @property
    def host(self) -> str:
        """A name in lower case or an address without brackets; "localhost" for a Unix socket without authority."""
        return self.wanted.host

    @property
    def port(self) -> int:
        """The TCP port; without meaning for a Unix socket."""
        return self.wanted.port

    @property
    def secure(self) -> bool:
        """Whether TLS is to be spoken."""
        return self.wanted.secure

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        if self.socket_path is not None:
            return self.socket_path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def may_be_shared(url: str) -> bool:
    """Whether dialers of this URL may have in common, and keep, what it means: no TLS, no user info, no query."""
    return _may_be_shared(url) is not None


def parse_url(url: str) -> Target:
    """What to dial for `url`.

    Raises:
        TransportUrlError: It cannot be dialled on any machine: another scheme (`wss+unix:` too), no host, no socket
            file, a path longer than the kernel takes, a request target without leading `/`.
        TransportUnsupportedError: A `ws+unix:` URL on a platform without such sockets.
    """
    if _control_character(url):
        raise TransportUrlError("a URL cannot hold control characters")
    scheme = url.partition(":")[0].lower()
    if scheme == "ws+unix":
        return _unix_target(url)
    if scheme == "wss+unix":
        raise TransportUrlError(
            "wss+unix: is not dialled, there is no TLS over a Unix socket; use ws+unix: and the permissions of the file"
        )
    return _tcp_target(url) if _may_hold_secrets(url) else _remembered_tcp_target(url)


def _tcp_target(url: str) -> Target:
    parsed = parse_ws_uri(url)
    try:
        if not _is_plain_name(parsed.host):
            parsed.host.encode("idna")
    except UnicodeError:
        # Not chained: the cause says no more, and the resolver would raise it as something that is no OSError.
        raise TransportUrlError(f"{parsed.host[:80]!r} cannot be the name of a host") from None
    return Target(url, parsed)


#: What a program dials is a few URLs, over and over.
_remembered_tcp_target = lru_cache(maxsize=32)(_tcp_target)


def _unix_target(url: str) -> Target:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise TransportUrlError("not a ws+unix: URL: its authority is malformed") from None
    if parts.fragment:
        raise TransportUrlError("not a ws+unix: URL: a fragment has no meaning")
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    path, _, route = target.partition(":")
    if not path:
        raise TransportUrlError("a ws+unix: URL names a socket file, as in ws+unix:///run/app.sock:/route")
    if route and not route.startswith("/"):
        raise TransportUrlError(
            "the part behind the colon of a ws+unix: URL is the target of a request: it begins with /"
        )
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH_BYTES:
        raise TransportUrlError(f"the path of a Unix socket has at most {_MAX_SOCKET_PATH_BYTES} bytes")
    uri = f"ws://{parts.netloc or 'localhost'}{route or '/'}"
    parsed = parse_ws_uri(uri)
    if not hasattr(socket, "AF_UNIX"):
        raise TransportUnsupportedError("this platform has no Unix sockets; dial a ws:// or wss:// URL")
    return Target(uri, parsed, path)
