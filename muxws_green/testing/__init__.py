"""Tools for tests of this library and of what is built on it; public, like the rest.

The fake clock lets minutes of heartbeats and backoff pass in milliseconds over real sockets.
"""

from muxws_green.testing.clock import FakeClock, FakeTimer, NoProgressError, settle
from muxws_green.testing.pairs import PeerPair, established_peer, peer_pair

__all__ = ["FakeClock", "FakeTimer", "NoProgressError", "settle", "PeerPair", "established_peer", "peer_pair"]
