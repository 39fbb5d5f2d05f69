"""The same chat: what was a loop and a number on each message is a stream."""

from gevent.pywsgi import WSGIServer

from muxws_green import PeerRegistry, WSGIApp, connect

members = PeerRegistry()


def handle(payload, stream):
    """Tell everybody what is said, and answer."""
    members.notify_all({"said": payload["say"]})
    stream.reply({"members": len(members)})


def main():
    """Run both ends."""
    server = WSGIServer(("127.0.0.1", 0), WSGIApp(handle, on_connect=members.register), log=None)
    server.start()
    url = f"ws://127.0.0.1:{server.server_port}/"
    with connect(url, on_stream=lambda payload, stream: print("said:", payload["said"])) as peer:
        print("members:", peer.request({"say": "hello"}, timeout=5.0)["members"])
    server.stop()


main()
