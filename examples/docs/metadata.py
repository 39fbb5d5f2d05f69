"""Headers of the opener, reply headers and trailers."""

from muxws_green import Server, connect


def export(payload, stream):
    """Say what comes before it comes, and afterwards how much it was."""
    print("the server sees", stream.headers)
    stream.send_headers({"kind": "csv"})
    stream.send("a,b")
    stream.send("1,2")
    stream.end(trailers={"lines": 2})


server = Server(("127.0.0.1", 0), export, log=None)
server.start()
with connect(f"ws://127.0.0.1:{server.server_port}/") as peer:
    stream = peer.open("export", headers={"language": "en"}, end=True)
    stream.reply_headers_arrived.wait(timeout=5.0)
    print("reply headers:", stream.reply_headers)
    print("payloads:", list(stream))
    print("trailers:", stream.trailers)
server.stop()
