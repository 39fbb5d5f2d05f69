"""RFC 6455 without I/O: the data-frame loop, frames to send, both sides of the handshake.

Invariant: nothing in here touches a socket, a clock, a greenlet or a log; the transports move the bytes. Handshake
rules, URLs, close codes and the fast mask come from `websockets`; the data-frame loop is our own, since the speed of a
connection depends on it.
"""

from muxws_green.websocket.handshake import (
    MAX_HEAD_BYTES,
    MAX_HEADER_LINES,
    ClientHandshake,
    HandshakeAnswer,
    HandshakeError,
    UpgradeRequest,
)
from muxws_green.websocket.reader import MAX_EMPTY_CONTINUATIONS, Close, MessageReader, Violation
from muxws_green.websocket.upgrade import UpgradeAnswer, answer_upgrade, answer_usual_upgrade
from muxws_green.websocket.uri import WsUri, parse_ws_uri
from muxws_green.websocket.writer import encode_close, encode_messages, encode_ping, encode_pong

__all__ = [
    "MAX_EMPTY_CONTINUATIONS",
    "MAX_HEADER_LINES",
    "MAX_HEAD_BYTES",
    "ClientHandshake",
    "UpgradeRequest",
    "Close",
    "HandshakeAnswer",
    "HandshakeError",
    "MessageReader",
    "UpgradeAnswer",
    "Violation",
    "WsUri",
    "answer_upgrade",
    "answer_usual_upgrade",
    "encode_close",
    "encode_messages",
    "encode_ping",
    "encode_pong",
    "parse_ws_uri",
]
