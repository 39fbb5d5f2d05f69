"""A client whose server turns up late, then restarts on the same port.

Prints:

    request while down: NotConnectedError
    client: connected
    echo: hello
    server: restarting
    client: disconnected
    client: reconnected
    echo: hello again
    client: disconnected

The last line comes from `stop`, which closes the connection.
"""

from __future__ import annotations

import gevent
from gevent.event import Event

from muxws_green import NotConnectedError
from muxws_green.messaging import ConnectionEvent, Message, MessagePeer, ReconnectingClient, serve

HOST = "127.0.0.1"


def server_setup(peer: MessagePeer) -> None:
    """What the server can do."""

    @peer.on("echo")
    def echo(message: Message) -> object:
        return message.body


def main() -> None:
    """Run both."""
    # Find a free port and let it go: the server will turn up there later.
    probe = serve(HOST, 0, server_setup)
    port = probe.port
    probe.stop()

    reconnected = Event()
    client = ReconnectingClient(f"ws://{HOST}:{port}/", initial_backoff=0.05, max_backoff=0.4)

    @client.on_event
    def show(event: ConnectionEvent) -> None:
        print("client:", event)
        if event is ConnectionEvent.RECONNECTED:
            reconnected.set()

    client.start()
    try:
        client.request("echo", "too early")
    except NotConnectedError:
        print("request while down: NotConnectedError")

    gevent.sleep(0.2)  # the client dials again meanwhile and is refused
    server = serve(HOST, port, server_setup)
    client.wait_connected(timeout=5.0)
    print("echo:", client.request("echo", "hello").body)

    print("server: restarting")
    server.stop()
    gevent.sleep(0.2)
    server = serve(HOST, port, server_setup)
    reconnected.wait(5.0)
    print("echo:", client.request("echo", "hello again").body)

    client.stop()
    server.stop()


if __name__ == "__main__":
    main()
