"""One stream on which both ends send and receive."""

from muxws_green import Server, StreamClosed, connect


def running_sum(payload, stream):
    """Answer each number with the sum so far, and say at the end how many there were."""
    total, count = payload, 1
    stream.send(total)
    for number in stream:
        total, count = total + number, count + 1
        stream.send(total)
    stream.end(trailers={"numbers": count})


server = Server(("127.0.0.1", 0), running_sum, log=None)
server.start()
with connect(f"ws://127.0.0.1:{server.server_port}/") as peer:
    stream = peer.open(1)
    print(stream.state.value, stream.receive(timeout=5.0))
    stream.send(10)
    print(stream.state.value, stream.receive(timeout=5.0))
    stream.send(100, end=True)
    print(stream.state.value, stream.receive(timeout=5.0))
    try:
        stream.receive(timeout=5.0)
    except StreamClosed as error:
        print(stream.state.value, error)
    print(stream.trailers)
server.stop()
