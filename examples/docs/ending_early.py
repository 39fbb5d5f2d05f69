"""Five ways in which a stream ends early, and what its handler hears of them."""

import gevent
from gevent.queue import Queue

from muxws_green import HandlerStopped, Server, StreamTimeout, connect

heard = Queue()


def tick(payload, stream):
    """Send every 10 ms until the stream is gone, or only wait."""
    try:
        while True:
            if payload == "ticks":
                stream.send("tick")
            gevent.sleep(0.01)
    except HandlerStopped as stopped:
        heard.put(f"{stopped.cause.code.name}, {stopped.cause.reason}")
        raise


server = Server(("127.0.0.1", 0), tick, log=None)
server.start()
with connect(f"ws://127.0.0.1:{server.server_port}/") as peer:
    stream = peer.open("ticks")
    stream.receive(timeout=5.0)
    stream.cancel("enough")
    print("cancel:", heard.get(timeout=5.0))

    for _ in peer.open("ticks", end=True):
        break
    print("break:", heard.get(timeout=5.0))

    with peer.open("ticks") as stream:
        stream.receive(timeout=5.0)
    print("with:", heard.get(timeout=5.0))

    try:
        peer.request("silence", timeout=0.1)
    except StreamTimeout as error:
        print("StreamTimeout:", error)
    print("timeout:", heard.get(timeout=5.0))

    patience = gevent.Timeout(0.1)
    try:
        with patience:
            peer.request("silence")
    except gevent.Timeout as error:
        print("the caller's own object:", error is patience)
    print("gevent.Timeout:", heard.get(timeout=5.0))
server.stop()
