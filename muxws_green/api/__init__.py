"""How an application comes by a peer: `dialing` connects, `accepting` takes over requests."""

from __future__ import annotations

from muxws_green.api.accepting import Server, WSGIApp, accept, serve
from muxws_green.api.dialing import connect, keep_connected
from muxws_green.runtime.clock import default_clock

__all__ = ["Server", "WSGIApp", "accept", "connect", "default_clock", "keep_connected", "serve"]
