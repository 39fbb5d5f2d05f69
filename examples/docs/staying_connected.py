"""A client whose server is restarted."""

from gevent.event import Event

from muxws_green import ConnectionLost, Reconnect, Server, connect

lost, back = Event(), Event()


def handle(payload, stream):
    """Show what comes; the hello is a payload like any other."""
    print("server:", payload)
    stream.reply("done")


def on_close(reason):
    """Called at each loss."""
    print(f"on_close: {reason.code} {reason.reason!r}, will_retry={reason.will_retry}")
    lost.set()


def on_reconnect(attempt, peer):
    """Called when the hello has been acknowledged."""
    print("on_reconnect:", attempt)
    back.set()


def start(port):
    """Start a server there."""
    server = Server(("127.0.0.1", port), handle, log=None)
    server.start()
    return server


server = start(0)
port = server.server_port
peer = connect(
    f"ws://127.0.0.1:{port}/",
    hello={"agent": 7},
    reconnect=Reconnect(initial_delay=60.0, max_delay=60.0, jitter=0.0),
    on_close=on_close,
    on_reconnect=on_reconnect,
)
print("client:", peer.supervisor.state.value)

server.stop()
lost.wait(timeout=5.0)
print("client:", peer.supervisor.state.value, peer.supervisor.next_delay)
try:
    peer.request("too early")
except ConnectionLost as error:
    print("client:", error)

server = start(port)
print("client does not wait:", peer.reconnect_now())
back.wait(timeout=5.0)
print("client:", peer.request("now", timeout=5.0))

lost.clear()
peer.close(reason="all done")
lost.wait(timeout=5.0)
print("client:", peer.supervisor.state.value, peer.is_closed)
server.stop()
