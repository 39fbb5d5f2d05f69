"""Two ends that call each other by name.

Prints:

    2 + 3 = 5
    hello, Ada
    3
    2
    1
    liftoff
    UnknownMethodError: no method 'subtract'
    BadBodyError: two numbers are wanted, not 'x'
"""

from __future__ import annotations

from collections.abc import Iterator

from muxws_green.messaging import BadBodyError, Message, MessagePeer, UnknownMethodError, connect, serve


def server_setup(peer: MessagePeer) -> None:
    """What the server can do; called with each new connection."""

    @peer.on("add")
    def add(message: Message) -> int:
        match message.body:
            case {"a": int(a), "b": int(b)}:
                return a + b
        raise BadBodyError(f"two numbers are wanted, not {message.body!r}")

    @peer.on("greet")
    def greet(message: Message) -> str:
        # Whoever calls can be called.
        name = message.peer.request("name", timeout=5.0).body
        return f"hello, {name}"

    @peer.on("countdown")
    def countdown(message: Message) -> Iterator[object]:
        yield from range(message.body, 0, -1)
        yield "liftoff"


def client_setup(peer: MessagePeer) -> None:
    """What the client can do."""
    peer.on("name", lambda message: "Ada")


def main() -> None:
    """Run both."""
    server = serve("127.0.0.1", 0, server_setup)
    with connect(f"ws://127.0.0.1:{server.port}/", client_setup) as peer:
        print("2 + 3 =", peer.request("add", {"a": 2, "b": 3}, timeout=5.0).body)
        print(peer.request("greet").body)
        for step in peer.stream("countdown", 3):
            print(step)
        for name in ("subtract", "add"):
            try:
                peer.request(name, "x")
            except (UnknownMethodError, BadBodyError) as error:
                print(f"{type(error).__name__}: {error}")
    server.stop()


if __name__ == "__main__":
    main()
