"""A trace id on every call, a count of frames, and the figures of a peer."""

from collections import Counter

from muxws_green import Server, connect

frames = Counter()


def handle(payload, stream):
    """Echo."""
    stream.reply(payload)


def add_trace(headers, payload):
    """Called for each stream that the client opens; it may change the headers."""
    headers["trace"] = "71"


def show_incoming(headers, stream):
    """Called with the first headers from the other end on each stream; it may look."""
    print(f"stream {stream.id} came with {dict(headers)}")


def on_connect(peer):
    """Called in the server with each new peer."""
    peer.intercept_incoming_headers(show_incoming)
    peer.intercept_reply_headers(lambda headers, stream: headers.update(server="eu-1"))


server = Server(("127.0.0.1", 0), handle, log=None, on_connect=on_connect)
server.start()
with connect(f"ws://127.0.0.1:{server.server_port}/", heartbeat=None) as peer:
    peer.intercept_open(add_trace)
    peer.on_frame(lambda direction, frame, byte_length: frames.update([f"{direction} {frame.type}"]))
    stream = peer.open("hello", end=True)
    print(stream.result(timeout=5.0), stream.reply_headers)
    print(dict(frames))
    print("sent", peer.stats.frames_sent, "received", peer.stats.frames_received, "live", peer.stats.live_streams)
server.stop()
