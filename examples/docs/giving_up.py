"""A client that stops dialling: its credentials are no longer good."""

from gevent.event import Event

from muxws_green import HandshakeRefused, Reconnect, Server, connect

over = Event()


def handle(payload, stream):
    """Answer at once."""
    stream.reply(payload)


def refuse(environ, start_response):
    """Let nobody in."""
    start_response("401 Unauthorized", [("Content-Length", "0")])
    return []


def worth_another_try(error):
    """Whether a failed attempt is to be followed by another."""
    return not (isinstance(error, HandshakeRefused) and error.status in (401, 403))


def on_close(reason):
    """Called at each loss, and once more when it is over."""
    print(f"on_close: {reason.code} {reason.reason!r}, will_retry={reason.will_retry}")
    if not reason.will_retry:
        over.set()


server = Server(("127.0.0.1", 0), handle, log=None)
server.start()
port = server.server_port
peer = connect(
    f"ws://127.0.0.1:{port}/",
    reconnect=Reconnect(initial_delay=0.05),
    retry_if=worth_another_try,
    on_close=on_close,
)
server.stop()
server = Server(("127.0.0.1", port), refuse, log=None)
server.start()

over.wait(timeout=5.0)
print(peer.supervisor.state.value, peer.is_closed)
print(peer.supervisor.last_error)
server.stop()
