"""A server that stops while somebody works with it."""

import gevent
from gevent.event import Event

from muxws_green import ConnectionGoingAway, Reconnect, Server, connect

working, closed = Event(), Event()


def handle(payload, stream):
    """Work for a while."""
    working.set()
    gevent.sleep(0.2)
    stream.reply(f"{payload} is done")


def on_close(reason):
    """Called in the client at each loss."""
    print(f"on_close: {reason.code} {reason.reason!r}, will_retry={reason.will_retry}")
    closed.set()


server = Server(("127.0.0.1", 0), handle, log=None)
server.start()
peer = connect(
    f"ws://127.0.0.1:{server.server_port}/", reconnect=Reconnect(initial_delay=60.0, jitter=0.0), on_close=on_close
)
job = peer.open("the job", end=True)
working.wait(timeout=5.0)
draining = gevent.spawn(server.drain, 10.0)  # in a program of its own: gevent.signal_handler(signal.SIGTERM, ...)

gevent.sleep(0.05)
try:
    peer.request("another job")
except ConnectionGoingAway as error:
    print("ConnectionGoingAway:", error)
print(job.result(timeout=5.0))
draining.join(timeout=5.0)
print("the server is gone:", draining.dead and not server.peers)
closed.wait(timeout=5.0)
closed.clear()
peer.close()
server.stop()
