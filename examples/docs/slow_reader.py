"""A handler that does not read, and what its client feels of that."""

import gevent
from gevent.event import Event

from muxws_green import Server, connect

CHUNK = "x" * 60_000
begin = Event()


def store(payload, stream):
    """Read nothing before it is told to."""
    begin.wait(timeout=5.0)
    stream.reply(sum(len(chunk) for chunk in stream))


def send_all(stream):
    """Send 24 MB, which is more than all buffers on the way take."""
    for _ in range(400):
        stream.send(CHUNK)
    stream.end()


server = Server(("127.0.0.1", 0), store, log=None, receive_buffer_bytes=1_000_000)
server.start()
with connect(f"ws://127.0.0.1:{server.server_port}/", send_buffer_bytes=500_000) as peer:
    stream = peer.open("upload")
    sender = gevent.spawn(send_all, stream)
    sender.join(timeout=1.0)
    print("sender is done:", sender.dead)
    try:
        for _ in range(10):
            peer.notify("y" * 100_000, wait=False)
    except BlockingIOError:
        print("and soon there is no room for further big payloads")

    begin.set()
    print("stored:", stream.result(timeout=30.0))
    print("sender is done:", sender.dead)
server.stop()
