"""Contract suites: whether an implementation of yours keeps what its interface promises.

Each is a plain function that returns where all is well and else raises AssertionError, with the promise and what came
in its place. The interfaces themselves, in `muxws_green.interfaces`, say the same in words.
"""

from __future__ import annotations

from muxws_green.testing.contracts.clock import check_clock
from muxws_green.testing.contracts.codec import check_codec
from muxws_green.testing.contracts.heartbeat import check_heartbeat_policy
from muxws_green.testing.contracts.transport import check_transport

__all__ = ["check_clock", "check_codec", "check_heartbeat_policy", "check_transport"]
