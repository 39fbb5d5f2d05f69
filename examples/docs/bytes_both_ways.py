"""Payloads with bytes in them, which JSON cannot carry."""

from muxws_green import CodecMismatch, Server, connect, register_codec
from muxws_green.codecs import MsgpackCodec

register_codec("msgpack", MsgpackCodec())


def thumbnail(payload, stream):
    """Answer bytes with bytes."""
    stream.reply({"name": payload["name"], "picture": payload["picture"][:4]})


server = Server(("127.0.0.1", 0), thumbnail, log=None, codec="msgpack")
server.start()
with connect(f"ws://127.0.0.1:{server.server_port}/", codec="msgpack") as peer:
    print(peer.request({"name": "cat", "picture": b"\x89PNG and so on"}, timeout=5.0))
try:
    connect(f"ws://127.0.0.1:{server.server_port}/", codec="json")
except CodecMismatch as error:
    print(str(error).partition(":")[0])
server.stop()
