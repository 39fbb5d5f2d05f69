"""Tools for tests of this library and of what is built on it; public, like the rest.

The fake clock lets minutes of heartbeats and backoff pass in milliseconds over real sockets.
"""

from muxws_green.testing.clock import FakeClock, FakeTimer, NoProgressError, settle

__all__ = ["FakeClock", "FakeTimer", "NoProgressError", "settle"]
