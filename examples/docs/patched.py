"""An old application in a monkey-patched process, and what does and does not hold up its connections."""

from gevent import monkey

monkey.patch_all()

import threading  # noqa: E402
import time  # noqa: E402

import gevent  # noqa: E402

from muxws_green import Server, connect  # noqa: E402


def blocks_by_itself():
    """Stands for a library in C that waits where gevent cannot see it."""
    monkey.get_original("time", "sleep")(0.2)
    return "from another thread"


def handle(payload, stream):
    """Wait in one of three ways."""
    match payload:
        case "sleep":
            time.sleep(0.2)  # patched: others run meanwhile
            stream.reply("slept")
        case "lock":
            with lock:  # patched too
                stream.reply("locked")
        case "library":
            stream.reply(gevent.get_hub().threadpool.apply(blocks_by_itself))
        case "quick":
            stream.reply("quick")


lock = threading.Lock()
server = Server(("127.0.0.1", 0), handle, log=None)
server.start()
with connect(f"ws://127.0.0.1:{server.server_port}/") as peer:
    slow = [peer.open(way, end=True) for way in ("sleep", "library")]
    print(peer.request("quick", timeout=5.0), "while", len(peer.streams), "others wait")
    print(*(stream.result(timeout=5.0) for stream in slow), sep="\n")
    with lock:
        locked = peer.open("lock", end=True)
        print(peer.request("quick", timeout=5.0), "while the lock is held")
    print(locked.result(timeout=5.0))
server.stop()
