"""What HTTP allows in header fields, and which of them belong to the handshake (RFC 9110 §5, RFC 6455 §4)."""

from __future__ import annotations

import re

#: As regular expressions: a token, which is the name of a header or a subprotocol, and the value of a header.
TOKEN = r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+"
VALUE = r"[\x09\x20-\x7e\x80-\xff]*"

#: Gives None for a str that is no token.
is_token = re.compile(TOKEN).fullmatch
#: Gives None for a str that is no value of a header.
is_value = re.compile(VALUE).fullmatch

#: What a request for an upgrade is judged by, in lower case.
HANDSHAKE_FIELDS = frozenset(
    ["connection", "upgrade", "sec-websocket-key", "sec-websocket-version", "sec-websocket-protocol"]
)
