"""A server that tells its clients what is new, and asks one of them."""

from gevent.queue import Queue

from muxws_green import PeerRegistry, Server, WSGIApp, connect

rooms = PeerRegistry()
heard = Queue()


def on_connect(peer):
    """Called in the server with each new peer."""

    def join(payload, stream):
        """The hello of a client says which room it is in."""
        peer.tags["room"] = payload["room"]
        rooms.register(peer)

    peer.on_stream(join)


def enter(name, room):
    """Connect a client, which is in its room again after every loss, since the hello is sent again."""

    def pushed(payload, stream):
        """Called in the client for each stream that the server opens."""
        match payload:
            case {"news": text}:
                heard.put(f"{name} hears: {text}")
            case {"question": text}:
                stream.reply(f"{name} is well")

    return connect(url, hello={"room": room}, on_stream=pushed)


server = Server(("127.0.0.1", 0), WSGIApp(None, on_connect=on_connect), log=None)
server.start()
url = f"ws://127.0.0.1:{server.server_port}/"
clients = [enter("ann", "red"), enter("bob", "red"), enter("cleo", "blue")]

print(rooms.notify_all({"news": "tea is ready"}, room="red"))
print(sorted(heard.get(timeout=5.0) for _ in range(2)))
(cleo,) = rooms.peers_for(room="blue")
print(cleo.request({"question": "how are you?"}, timeout=5.0))
for client in clients:
    client.close()
server.stop()
