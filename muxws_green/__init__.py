"""Multiplexed, cancellable, two-way streams over one WebSocket, for blocking code on gevent.

`connect` dials and stays connected; `WSGIApp`, `serve` and `accept` take connections inside any WSGI server that runs
on gevent. Both give a `Peer`. The wire is `muxws.v1`, which the asyncio library `muxws` and browsers speak too.

Importing this package patches nothing, opens nothing and starts nothing.
"""

from __future__ import annotations

import logging

from muxws_green.api import Server, WSGIApp, accept, connect, serve
from muxws_green.codecs import JsonCodec, get_codec, register_codec, registered_codecs
from muxws_green.errors import (
    CodecError,
    CodecMismatch,
    CodecNotRegistered,
    ConnectionClosed,
    ConnectionGoingAway,
    ConnectionLost,
    HandshakeRefused,
    HeartbeatTimeoutError,
    MuxwsError,
    NotConnectedError,
    OriginRefused,
    ProtocolError,
    RemoteError,
    ResetCode,
    StreamAlreadyConsumed,
    StreamClosed,
    StreamRefused,
    StreamReset,
    StreamTimeout,
    TransportUnsupportedError,
    TransportUrlError,
    UpgradeRefused,
)
from muxws_green.interfaces import ICodec as Codec
from muxws_green.protocol.backoff import Reconnect, should_retry, unjittered_delay
from muxws_green.protocol.fragments import MAX_FRAME_BYTES, split_frame
from muxws_green.protocol.frames import ABSENT, Frame, from_mapping, to_mapping
from muxws_green.protocol.liveness import CountingHeartbeat, IdleHeartbeat
from muxws_green.protocol.origin import SameOrigin, parse_origin
from muxws_green.protocol.states import StreamState
from muxws_green.runtime.closing import CloseReason
from muxws_green.runtime.draw import backoff_delay
from muxws_green.runtime.handlers import HandlerStopped
from muxws_green.runtime.options import default_error_serializer
from muxws_green.runtime.peer import Peer
from muxws_green.runtime.registry import PeerRegistry
from muxws_green.runtime.roster import drain_all
from muxws_green.runtime.stream import Stream
from muxws_green.settings import Settings, settings
from muxws_green.transports.upgradable import upgradable

__version__ = "0.1.0"

# An application that configures no logging sees nothing of ours on its terminal.
logging.getLogger("muxws").addHandler(logging.NullHandler())

__all__ = [
    "ABSENT",
    "MAX_FRAME_BYTES",
    "CloseReason",
    "Codec",
    "CodecError",
    "CodecMismatch",
    "CodecNotRegistered",
    "ConnectionClosed",
    "ConnectionGoingAway",
    "ConnectionLost",
    "CountingHeartbeat",
    "Frame",
    "HandlerStopped",
    "HandshakeRefused",
    "HeartbeatTimeoutError",
    "IdleHeartbeat",
    "JsonCodec",
    "MuxwsError",
    "NotConnectedError",
    "OriginRefused",
    "Peer",
    "PeerRegistry",
    "ProtocolError",
    "Reconnect",
    "RemoteError",
    "ResetCode",
    "SameOrigin",
    "Server",
    "Settings",
    "Stream",
    "StreamAlreadyConsumed",
    "StreamClosed",
    "StreamRefused",
    "StreamReset",
    "StreamState",
    "StreamTimeout",
    "TransportUnsupportedError",
    "TransportUrlError",
    "UpgradeRefused",
    "WSGIApp",
    "__version__",
    "accept",
    "backoff_delay",
    "connect",
    "default_error_serializer",
    "drain_all",
    "from_mapping",
    "get_codec",
    "parse_origin",
    "register_codec",
    "registered_codecs",
    "serve",
    "settings",
    "should_retry",
    "split_frame",
    "to_mapping",
    "unjittered_delay",
    "upgradable",
]
