"""What a caller sees of the failures of the other end."""

import logging

from muxws_green import ConnectionLost, RemoteError, Server, StreamRefused, StreamTimeout, connect

# A server logs what its handlers raise; here that is not wanted.
logging.getLogger("muxws.peer").setLevel(logging.CRITICAL)


def handle(payload, stream):
    """Fail, wait, or answer."""
    match payload:
        case {"divide": [a, b]}:
            stream.reply(a / b)
        case "wait":
            stream.receive()


server = Server(("127.0.0.1", 0), handle, log=None, max_concurrent_streams=1)
server.start()
peer = connect(f"ws://127.0.0.1:{server.server_port}/")

try:
    peer.request({"divide": [1, 0]}, timeout=5.0)
except RemoteError as error:
    print("RemoteError:", error.payload)

try:
    peer.open("wait").result(timeout=0.1)
except StreamTimeout as error:
    print("StreamTimeout:", error.code.name)

waiting = peer.open("wait")
try:
    peer.request({"divide": [1, 2]}, timeout=5.0)
except StreamRefused as error:
    print("StreamRefused:", error)
waiting.cancel()
print("tried again:", peer.request({"divide": [1, 2]}, timeout=5.0))

peer.close()
try:
    peer.request({"divide": [1, 2]})
except ConnectionLost as error:
    print("ConnectionLost:", error, "/ cause:", repr(error.__cause__))
server.stop()
