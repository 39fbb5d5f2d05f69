"""One deadline over several calls, in the plain way of gevent."""

import gevent

from muxws_green import Server, connect


def handle(payload, stream):
    """Take as long as asked."""
    gevent.sleep(payload)
    stream.reply(f"slept {payload} s")


server = Server(("127.0.0.1", 0), handle, log=None)
server.start()
with connect(f"ws://127.0.0.1:{server.server_port}/") as peer:
    with gevent.Timeout(0.5, False):
        print(peer.request(0.01))
        print(peer.request(60))
    print("the deadline has passed, live streams:", len(peer.streams))
    print(peer.request(0))
server.stop()
