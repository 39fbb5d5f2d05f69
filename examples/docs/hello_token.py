"""A server whose clients have to say a hello with a name that it knows, within ten seconds."""

import gevent

from muxws_green import RemoteError, Server, WSGIApp, connect

NAMES = {"agent-7", "agent-8"}


def on_connect(peer):
    """Called in the server with each new peer, which may do nothing before its hello is taken."""

    def handle(payload, stream):
        if "name" in peer.tags:
            stream.reply(f"done for {peer.tags['name']}")
        elif stream.headers.get("kind") == "hello" and payload in NAMES:
            peer.tags["name"] = payload
        else:
            gevent.spawn(peer.close, reason="a known name is wanted", drain=1.0)
            raise PermissionError("a known name is wanted")

    def send_away():
        if "name" not in peer.tags:
            peer.close(reason="no hello has come", drain=0.0)

    peer.on_stream(handle)
    timer = gevent.spawn_later(10.0, send_away)
    peer.on_close(lambda reason: timer.kill(block=False))


server = Server(("127.0.0.1", 0), WSGIApp(None, on_connect=on_connect), log=None)
server.start()
url = f"ws://127.0.0.1:{server.server_port}/"
with connect(url, hello="agent-7", hello_headers={"kind": "hello"}) as peer:
    print(peer.request("a job", timeout=5.0))
try:
    connect(url, hello="a stranger", hello_headers={"kind": "hello"})
except RemoteError as error:
    print(error.payload)
server.stop()
