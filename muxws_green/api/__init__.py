"""How an application comes by a peer: `dialing` connects, `accepting` takes over requests."""

from __future__ import annotations

from muxws_green.api.accepting import Server, WSGIApp, accept, serve
from muxws_green.api.dialing import connect, keep_connected
from muxws_green.runtime.clock import default_clock
from muxws_green.runtime.closing import Callbacks
from muxws_green.runtime.session import Session

__all__ = [
    "Callbacks",
    "Server",
    "Session",
    "WSGIApp",
    "accept",
    "connect",
    "default_clock",
    "keep_connected",
    "serve",
]
