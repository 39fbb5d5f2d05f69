"""A client that follows prices for as long as it likes, on one stream."""

from gevent.event import Event
from gevent.queue import Queue

from muxws_green import Server, connect

subscribers = set()
gone = Event()


def follow(payload, stream):
    """Send what is published from now on, until the subscriber leaves."""
    prices = Queue(maxsize=100)
    subscribers.add(prices)
    stream.send_headers({"following": payload["follow"]})
    try:
        for price in prices:
            stream.send(price)
    finally:
        subscribers.remove(prices)
        gone.set()


def publish(price):
    """Hand a price to everybody, and drop those that are a hundred behind."""
    for prices in list(subscribers):
        if prices.full():
            prices.put_nowait(StopIteration)
        else:
            prices.put_nowait(price)


server = Server(("127.0.0.1", 0), follow, log=None)
server.start()
with connect(f"ws://127.0.0.1:{server.server_port}/") as peer:
    stream = peer.open({"follow": "tea"}, end=True)
    stream.reply_headers_arrived.wait(timeout=5.0)
    for price in (31, 32, 35, 30):
        publish(price)
    for price in stream:
        print("tea costs", price)
        if price > 33:
            break
    gone.wait(timeout=5.0)
    print("subscribers:", len(subscribers))
server.stop()
