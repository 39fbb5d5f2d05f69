"""A chat on gevent-websocket, with a message format and a loop of its own."""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402

from gevent.pywsgi import WSGIServer  # noqa: E402
from geventwebsocket.handler import WebSocketHandler  # noqa: E402
from websockets.sync.client import connect  # noqa: E402

members = set()


def application(environ, start_response):
    """Answer by number, and tell everybody what is said."""
    socket = environ["wsgi.websocket"]
    members.add(socket)
    try:
        while (text := socket.receive()) is not None:
            message = json.loads(text)
            for member in members if message["kind"] == "say" else ():
                member.send(json.dumps({"kind": "said", "text": message["text"]}))
            socket.send(json.dumps({"kind": "answer", "number": message["number"], "members": len(members)}))
    finally:
        members.discard(socket)
    return []


def main():
    """Run both ends."""
    server = WSGIServer(("127.0.0.1", 0), application, handler_class=WebSocketHandler, log=None)
    server.start()
    with connect(f"ws://127.0.0.1:{server.server_port}/") as socket:
        socket.send(json.dumps({"kind": "say", "number": 1, "text": "hello"}))
        while (message := json.loads(socket.recv(timeout=5)))["kind"] != "answer":
            print("said:", message["text"])
        print("members:", message["members"])
    server.stop()


main()
