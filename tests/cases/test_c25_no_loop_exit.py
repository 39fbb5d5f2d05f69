"""C25: a wait that nothing can end any more ends by an error of ours, never by gevent's LoopExit.

Each runs in a process of its own, whose main greenlet is the only one that is not ours: in here the test's own server
would keep the loop going.
"""

from __future__ import annotations

import subprocess
import sys

import gevent
import pytest

from muxws_green.testing import RawServer
from tests.serving import PATIENCE

CHILD = """
import sys
from muxws_green import connect
peer = connect(sys.argv[1], heartbeat=None, reconnect=None, retry_if=lambda error: False, open_timeout=5)
stream = peer.open("hello")
try:
    print(repr({wait}))
except BaseException as error:
    print(type(error).__name__)
try:
    peer.open()
except BaseException as error:
    print(type(error).__name__)
"""

WAITS = {
    "result": ("stream.result()", "ConnectionLost"),
    "iteration": ("list(stream)", "ConnectionLost"),
    "receive": ("stream.receive()", "ConnectionLost"),
    "request": ("peer.request()", "ConnectionLost"),
    "closed": ("stream.closed.wait()", "True"),
    "ping": ("peer.ping(timeout=float('inf'))", "ConnectionClosed"),
    "sending": ("[stream.send('x' * 60_000) for _ in range(1_000)]", "ConnectionLost"),
    "serve": ("peer.serve()", "None"),
}


@pytest.mark.case("C25")
@pytest.mark.slow
@pytest.mark.parametrize("wait", WAITS)
def test_the_only_greenlet_waits_and_the_remote_goes(wait):
    code, answer = WAITS[wait]

    def go(raw):
        raw.expect("open", skip=("ping",))
        # Listening no more, so that a dial that comes nevertheless would fail and not wait.
        server.refuse()
        if wait != "sending":
            gevent.sleep(0)
        raw.close()

    with RawServer(go) as server:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD.replace("{wait}", code), server.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            # In the pool, for gevent's own subprocess would have the loop reap all children of this process from then
            # on, those whose exit codes other tests wait for included.
            out, err = gevent.get_hub().threadpool.apply(child.communicate, (), {"timeout": PATIENCE})
        finally:
            child.kill()
            child.wait()
    assert "LoopExit" not in out + err
    assert out.split() == [answer, "ConnectionLost"]
