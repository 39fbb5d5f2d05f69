"""One log line for each frame of a client."""

import logging
import sys

from muxws_green import Server, connect


def handle(payload, stream):
    """Fail for one payload, echo the others."""
    if payload == "fail":
        stream.reset(2, "not today")
    else:
        stream.reply(payload, trailers={"took": 0.1})


server = Server(("127.0.0.1", 0), handle, log=None)
server.start()
with connect(f"ws://127.0.0.1:{server.server_port}/") as peer:
    log = logging.StreamHandler(sys.stdout)
    # The server is in this process too, and its lines are left out here.
    log.addFilter(lambda record: f"conn={peer.id} " in record.getMessage())
    frames = logging.getLogger("muxws.frames")
    frames.addHandler(log)
    frames.setLevel(logging.DEBUG)
    peer.request("secret", headers={"trace": "71"}, timeout=5.0)
    peer.request("x" * 70_000, timeout=5.0)
    peer.open("fail", end=True).closed.wait(timeout=5.0)
    frames.setLevel(logging.INFO)
server.stop()
