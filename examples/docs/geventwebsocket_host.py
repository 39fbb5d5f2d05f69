"""Old clients and new ones at one address, in the host that the old ones have."""

import gevent
from geventwebsocket.server import WebSocketServer
from websockets.sync.client import connect as connect_old

from muxws_green import WSGIApp, connect
from muxws_green.transports.hosts.geventwebsocket import leave_upgrade_to_app


def old(environ, start_response):
    """What the application did before: echo on a bare WebSocket."""
    socket = environ["wsgi.websocket"]
    while (text := socket.receive()) is not None:
        socket.send(f"old: {text}")
    return []


def handle(payload, stream):
    """What it does for new clients."""
    stream.reply(f"new: {payload}")


def application(environ, start_response):
    """New clients offer a subprotocol of muxws, old ones do not."""
    return (old if "wsgi.websocket" in environ else peers)(environ, start_response)


peers = WSGIApp(handle)
server = WebSocketServer(("127.0.0.1", 0), application, pre_start_hook=leave_upgrade_to_app, log=None)
server.start()
url = f"ws://127.0.0.1:{server.server_port}/"


def talk_as_an_old_client():
    """Blocks, and this process is not monkey-patched, so it runs in a thread."""
    with connect_old(url) as socket:
        socket.send("hello")
        return socket.recv(timeout=5.0)


with connect(url) as peer:
    print(peer.request("hello", timeout=5.0))
print(gevent.get_hub().threadpool.apply(talk_as_an_old_client))
server.stop()
