"""A client that follows prices for as long as it likes, on one stream, and one that falls behind."""

from gevent.event import Event
from gevent.queue import Queue

from muxws_green import Server, StreamReset, connect

BEHIND = 100
subscribers = {}
gone = Event()


def follow(payload, stream):
    """Send what is published from now on, until the subscriber leaves."""
    prices = subscribers[stream] = Queue()
    stream.send_headers({"following": payload["follow"]})
    try:
        for price in prices:
            stream.send(price)
    finally:
        del subscribers[stream]
        gone.set()


def publish(price):
    """Hand a price to everybody, and end those that are too far behind; this never waits."""
    for stream, prices in list(subscribers.items()):
        if prices.qsize() >= BEHIND:
            stream.cancel(f"{BEHIND} prices behind")
        else:
            prices.put(price)


def subscribe(peer):
    """Open a stream of prices and wait until the server knows."""
    stream = peer.open({"follow": "tea"}, end=True)
    stream.reply_headers_arrived.wait(timeout=5.0)
    return stream


server = Server(("127.0.0.1", 0), follow, log=None)
server.start()
with connect(f"ws://127.0.0.1:{server.server_port}/") as peer:
    stream = subscribe(peer)
    for price in (31, 32, 35, 30):
        publish(price)
    for price in stream:
        print("tea costs", price)
        if price > 33:
            break
    gone.wait(timeout=5.0)
    print("subscribers:", len(subscribers))

    stream = subscribe(peer)
    for price in range(1000):  # faster than anybody could send them
        publish(price)
    try:
        print(list(stream))
    except StreamReset as error:
        print(f"{error.code.name}: {error}")
server.stop()
