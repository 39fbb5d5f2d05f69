"""The same server and client on gevent."""

import muxws_green


def handle(payload, stream):
    """Count."""
    for number in range(payload["count"]):
        stream.send(number)


def main():
    """Run both ends."""
    server = muxws_green.Server(("127.0.0.1", 0), handle, log=None)
    server.start()
    peer = muxws_green.connect(f"ws://127.0.0.1:{server.server_port}/")
    print(peer.request({"count": 1}, timeout=5.0))
    stream = peer.open({"count": 3}, end=True)
    for number in stream:
        print(number)
    peer.close()
    server.stop()


main()
