"""The ways to call: request, notify, open."""

from muxws_green import Server, connect


def handle(payload, stream):
    """Answer as the payload asks."""
    match payload:
        case {"add": [a, b]}:
            stream.reply(a + b)
        case {"note": text}:
            print("the server notes:", text)
        case {"count": limit}:
            for number in range(limit):
                stream.send(number)


server = Server(("127.0.0.1", 0), handle, log=None)
server.start()
with connect(f"ws://127.0.0.1:{server.server_port}/") as peer:
    print("request:", peer.request({"add": [2, 3]}, timeout=5.0))
    peer.notify({"note": "no answer is wanted"})
    for number in peer.open({"count": 3}, end=True):
        print("iteration:", number)
    print("result:", peer.open({"count": 3}, end=True).result(timeout=5.0))
server.stop()
