"""A service and a client of zerorpc."""

import logging

import gevent
import zerorpc

# A server logs what its methods raise; here that is not wanted.
logging.getLogger("zerorpc").setLevel(logging.CRITICAL)


class Shop:
    """What can be called."""

    def price(self, item):
        """Answer, or fail."""
        return {"tea": 3.5}[item]

    @zerorpc.stream
    def stock(self, count):
        """Answer with one item after another."""
        return (f"box {number}" for number in range(count))


def main():
    """Run both ends."""
    server = zerorpc.Server(Shop())
    server.bind("inproc://shop")
    gevent.spawn(server.run)
    client = zerorpc.Client("inproc://shop", timeout=5)
    print(client.price("tea"))
    print(*client.stock(3))
    try:
        client.price("gold")
    except zerorpc.RemoteError as error:
        print(error.name)
    client.close()
    server.close()


main()
