"""The same service and client on named calls."""

import logging

from muxws_green import RemoteError
from muxws_green.messaging import connect, serve

# A server logs what its methods raise; here that is not wanted.
logging.getLogger("muxws.peer").setLevel(logging.CRITICAL)


def setup(peer):
    """What can be called; once for each connection."""

    @peer.on("price")
    def price(message):
        return {"tea": 3.5}[message.body]

    @peer.on("stock")
    def stock(message):
        for number in range(message.body):
            yield f"box {number}"


def main():
    """Run both ends."""
    server = serve("127.0.0.1", 0, setup)
    with connect(f"ws://127.0.0.1:{server.port}/", lambda peer: None) as client:
        print(client.request("price", "tea", timeout=5.0).body)
        print(*client.stream("stock", 3))
        try:
            client.request("price", "gold", timeout=5.0)
        except RemoteError as error:
            print(error.payload["type"])
    server.stop()


main()
