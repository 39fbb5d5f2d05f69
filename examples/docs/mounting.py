"""A web application with peers at one of its addresses."""

from urllib.request import urlopen

import gevent
from gevent.pywsgi import WSGIServer

from muxws_green import HandshakeRefused, WSGIApp, connect


def handle(payload, stream):
    """Called for each stream of each peer."""
    stream.reply(f"{len(peers.peers)} connected")


def pages(environ, start_response):
    """What the application did before there were peers."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"a page\n"]


def application(environ, start_response):
    """All of it."""
    if environ["PATH_INFO"] == "/ws":
        return peers(environ, start_response)
    return pages(environ, start_response)


peers = WSGIApp(handle, max_peers=10_000, allowed_origins=lambda origin: origin in (None, "https://app.example"))
server = WSGIServer(("127.0.0.1", 0), application, log=None)
server.start()
address = f"127.0.0.1:{server.server_port}"

with connect(f"ws://{address}/ws") as peer:
    print(peer.request(timeout=5.0))
# This process is not monkey-patched, so what blocks goes to the pool of threads.
print(gevent.get_hub().threadpool.apply(lambda: urlopen(f"http://{address}/", timeout=5.0).read()))
try:
    connect(f"ws://{address}/ws", headers={"Origin": "https://evil.example"})
except HandshakeRefused as error:
    print(error)
server.stop()
