"""The greenlets of one connection, seen from inside a handler."""

import gc

import gevent

from muxws_green import Server, connect

JOBS = ("reader", "writer", "heartbeat", "supervisor", "handler")


def handle(payload, stream):
    """Name every greenlet of both ends."""
    names = [each.name for each in gc.get_objects() if isinstance(each, gevent.Greenlet) and not each.dead]
    stream.reply(sorted(name for name in names if name.split()[0] in JOBS))


def main():
    """Run both ends."""
    server = Server(("127.0.0.1", 0), handle, log=None)
    server.start()
    with connect(f"ws://127.0.0.1:{server.server_port}/") as peer:
        for name in peer.request(timeout=5.0):
            print(name)
    server.stop()


main()
