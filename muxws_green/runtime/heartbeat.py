"""The heartbeat greenlet of one connection: tells a policy what passes, queues its pings, declares death.

The arithmetic is the policy's (`protocol.liveness`). It never writes, never waits for a write, and kills nobody: a death is
handed to `Link.terminate` like any other end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gevent import Greenlet

from muxws_green.errors import HeartbeatTimeoutError
from muxws_green.interfaces import IHeartbeatPolicy
from muxws_green.runtime.pings import new_nonce
from muxws_green.runtime.waiting import WaitList

if TYPE_CHECKING:
    from muxws_green.runtime.link import Link
