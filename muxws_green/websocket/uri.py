"""`ws://` and `wss://` URLs, judged before anything is opened.

Invariant: no error and no repr shows user info or a query string, which often are credentials.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from websockets.exceptions import InvalidURI
from websockets.uri import WebSocketURI, parse_uri

from muxws_green.errors import TransportUrlError

_visible_ascii = re.compile(r"[\x21-\x7e]+").fullmatch


class WsUri(NamedTuple):
    """Where to dial and what to ask for.

    Attributes:
        secure: True for `wss`.
        host: A name in lower case, or an address, IPv6 without brackets.
        port: The port, also where the URL leaves it out.
        resource_name: Path and query as they stand in the request line; at least `/`.
        user_info: User name and password, percent-decoded; None where the URL has none.
    """

    secure: bool
    host: str
    port: int
    resource_name: str
    user_info: tuple[str, str] | None

    def __repr__(self) -> str:
        scheme = "wss" if self.secure else "ws"
        return f"<WsUri {scheme} {self.host} {self.port} {self.resource_name.partition('?')[0]}>"


def parse_ws_uri(uri: str) -> WsUri:
    """The parts of a WebSocket URL (RFC 6455 §3). Names outside ASCII are encoded (IDNA, percent).

    Args:
        uri: `ws://` or `wss://`, with a host; user info needs both a name and a password, since it becomes Basic
            authentication.

    Raises:
        TransportUrlError: It is not such a URL. The message leaves the URL out.
    """
    parsed: WebSocketURI | None = None
    fault = ""
    try:
        parsed = parse_uri(uri)
        if ":0" in uri and urlsplit(uri).port == 0:
            fault = "port 0 cannot be dialled"
        elif not _visible_ascii(parsed.host) or not _visible_ascii(parsed.resource_name):
            fault = "a space or a control character must be percent-encoded"
        elif parsed.username is not None and ":" in parsed.username:
            fault = "a user name for Basic authentication holds no colon (RFC 7617 §2)"
        elif parsed.user_info is not None:
            # A lone surrogate raises here rather than when the request is made.
            ":".join(parsed.user_info).encode()
    except InvalidURI as error:
        fault = error.msg
    except ValueError:
        fault = "host, port or percent-encoding is malformed"
    # Raised here and not above: the library's error holds the whole URL, and would be shown as the context of ours.
    if parsed is None or fault:
        raise TransportUrlError(f"not a WebSocket URL: {fault}")
    return WsUri(parsed.secure, parsed.host, parsed.port, parsed.resource_name, parsed.user_info)
