"""Tools for tests of this library and of what is built on it; public, like the rest.

The fake clock lets minutes of heartbeats and backoff pass in milliseconds over real sockets. `peer_pair` connects two
peers in memory, `Relay` makes a bad network, `RawServer` and `RawClient` say what no decent peer says. The pytest
plugin is `muxws_green.testing.plugin`; nothing else here needs pytest.
"""

from muxws_green.testing.clock import FakeClock, FakeTimer, NoProgressError, settle
from muxws_green.testing.flow import Faults
from muxws_green.testing.leaks import LeakCheck
from muxws_green.testing.pairs import PeerPair, established_peer, peer_pair
from muxws_green.testing.raw import Gone, RawEnd
from muxws_green.testing.raw_client import RawAnswer, RawClient
from muxws_green.testing.raw_server import RawConnection, RawServer
from muxws_green.testing.relay import Relay, RelayedConnection
from muxws_green.testing.servers import LocalServer
from muxws_green.testing.wire import Opcode, WireFrame, encode_frame

__all__ = [
    "FakeClock",
    "FakeTimer",
    "NoProgressError",
    "settle",
    "PeerPair",
    "established_peer",
    "peer_pair",
    "Faults",
    "Relay",
    "RelayedConnection",
    "Gone",
    "RawAnswer",
    "RawClient",
    "RawConnection",
    "RawEnd",
    "RawServer",
    "LocalServer",
    "LeakCheck",
    "Opcode",
    "WireFrame",
    "encode_frame",
]
