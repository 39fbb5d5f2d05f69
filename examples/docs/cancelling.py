"""What a cancelled handler does with work that is half done, and one that must not be cut."""

import gevent
from gevent.event import Event

from muxws_green import Server, WSGIApp, connect

begun, over = Event(), Event()


def import_rows(payload, stream):
    """Copy row by row; where the caller has left, undo what was copied."""
    copied = []
    try:
        for row in payload["rows"]:
            copied.append(row)
            begun.set()
            gevent.sleep(0.01)  # stands for a query; HandlerStopped is raised at a wait
        stream.reply(len(copied))
    except BaseException as error:
        print(f"undone: {type(error).__name__}, {error.cause}")
        raise
    finally:
        over.set()


def pay(payload, stream):
    """Do two things that belong together."""
    print("money taken")
    begun.set()
    gevent.sleep(0.05)
    print("receipt written, though the caller is gone:", stream.closed.is_set())
    over.set()


def run(handler, stop):
    """Have a client begin something and leave it."""
    begun.clear()
    over.clear()

    def on_connect(peer):
        peer.on_stream(handler, stop=stop)

    server = Server(("127.0.0.1", 0), WSGIApp(None, on_connect=on_connect), log=None)
    server.start()
    with connect(f"ws://127.0.0.1:{server.server_port}/") as peer:
        stream = peer.open({"rows": list(range(1000))}, end=True)
        begun.wait(timeout=5.0)
        stream.cancel("the user pressed stop")
        over.wait(timeout=5.0)
    server.stop()


run(import_rows, stop=True)
run(pay, stop=False)
