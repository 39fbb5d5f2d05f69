"""A remote that is frozen: its socket stays open and nothing comes of it."""

from gevent.event import Event

from muxws_green import IdleHeartbeat, Server, connect
from muxws_green.testing import Relay

lost = Event()


def handle(payload, stream):
    """Answer at once."""
    stream.reply(payload)


server = Server(("127.0.0.1", 0), handle, log=None)
server.start()
with Relay(f"ws://127.0.0.1:{server.server_port}/") as relay:
    peer = connect(relay.url, heartbeat=IdleHeartbeat(interval=0.2, timeout=0.2))
    print("alive:", peer.request("ping", timeout=5.0))

    @peer.on_close
    def on_close(reason):
        """Called at each loss."""
        print(f"on_close: {reason.code} {reason.reason!r}, will_retry={reason.will_retry}")
        lost.set()

    relay.both.stall()
    lost.wait(timeout=5.0)
    print("cause:", type(peer.close_cause).__name__)
    lost.clear()
    peer.close()
    lost.wait(timeout=5.0)
server.stop()
