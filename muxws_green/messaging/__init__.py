"""Named calls above streams (seed B): for programs that think in methods rather than in payloads.

The name travels as the stream header `method` and the body is the opening payload, so any `muxws.v1` peer can call in
and be called: an `open` with `headers: {"method": "add"}` and `end` is a request, and so is a push, whose answer nobody
reads.

This layer uses the public names of `Peer` and `Stream` and nothing else. A call never waits for another connection, and
nothing is ever sent twice.
"""

from __future__ import annotations

from muxws_green.messaging.answers import Answers
from muxws_green.messaging.client import ConnectionEvent, ReconnectingClient
from muxws_green.messaging.errors import BadAnswerError, BadBodyError, UnknownMethodError
from muxws_green.messaging.peer import METHOD_HEADER, Message, MessagePeer
from muxws_green.messaging.server import MessageApp, MessageServer, connect, serve

__all__ = [
    "METHOD_HEADER",
    "Answers",
    "BadAnswerError",
    "BadBodyError",
    "ConnectionEvent",
    "Message",
    "MessageApp",
    "MessagePeer",
    "MessageServer",
    "ReconnectingClient",
    "UnknownMethodError",
    "connect",
    "serve",
]
