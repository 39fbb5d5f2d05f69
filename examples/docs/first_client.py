"""A client that asks for numbers."""

from muxws_green import connect

with connect("ws://127.0.0.1:8000/") as peer:
    print("one answer:", peer.request({"count": 1}, timeout=5.0))
    for row in peer.open({"count": 3}, end=True):
        print("one of many:", row)
