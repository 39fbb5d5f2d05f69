"""A relay on the loopback interface that stands between a client and a server and makes a bad network of it.

Bytes pass unchanged; when they pass, and whether, is for the test to say. `to_server` and `to_client` are the two
directions, `both` is both. The switches of a `Relay` hold for the connections that are there and for those to come,
those of one `RelayedConnection` for that one alone.

What ends on one side ends on the other, behind the bytes that were sent before: an end of file as an end of file, a
reset as a reset. Where the server cannot be reached, the client's connection is reset, since its kernel has been told
already that it is connected. A relay lives in the hub that made it.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import gevent
from gevent.event import Event
from gevent.socket import socket as GeventSocket  # noqa: N812

from muxws_green.interfaces import IClock
from muxws_green.runtime.clock import default_clock
from muxws_green.testing.flow import Conditions, Faults, Flow, tell_end
from muxws_green.testing.listener import Address, Listener, url_place
from muxws_green.testing.raw import reset_on_close
from muxws_green.transports.deadline import Deadline
from muxws_green.transports.network import connect_tcp, connect_unix
from muxws_green.transports.urls import Target, parse_url
from muxws_green.websocket import parse_ws_uri

#: How many bytes of one direction of a connection are held unless a test says otherwise.
CAPACITY_BYTES = 262_144


class RelayedConnection:
    """One connection through a `Relay`.

    Attributes:
        opened_at: When it was accepted, by the relay's clock.
        to_server: The direction from the client to the server, with its switches and its counts.
        to_client: The other one.
        both: Both at once.
        over: An Event that is set once both sides have ended.
    """

    def __init__(
        self,
        client: GeventSocket,
        name: str,
        clock: IClock,
        capacity_bytes: int,
        to_server: Conditions,
        to_client: Conditions,
    ) -> None:
        self.opened_at = clock.now()
        self.over = Event()
        self._client = client
        self._server: GeventSocket | None = None
        #: To the server, or for good to nobody.
        self._connected = False
        self._dialling: gevent.Greenlet[..., None] | None = None

        def flow(direction: str, conditions: Conditions) -> Flow:
            return Flow(
                f"{name} {direction}",
                conditions,
                clock,
                capacity_bytes,
                ended=self._ended,
                broken=self._broken,
                cut=self._cut,
            )

        self.to_server = flow("to server", to_server)
        self.to_client = flow("to client", to_client)
        flows = (self.to_server, self.to_client)
        self.both = Faults(lambda: (each.conditions for each in flows), lambda: flows)

    def reset(self) -> None:
        """End it now with a RST to both sides; over Unix sockets with a plain close."""
        for sock in self._sockets():
            try:
                reset_on_close(sock)
            except OSError:
                # Closed, or a kind of socket that has no such option.
                pass
        self.close()

    def cut(self) -> None:
        """End it now with an end of file to both sides, which each may answer; what is held is thrown away."""
        self._cut(False)

    def close(self) -> None:
        """End it for good; any number of times. A side whose bytes are still unread sees a reset."""
        self._stop_dialling()
        self.to_server.stop()
        self.to_client.stop()
        for sock in self._sockets():
            sock.close()
        self.over.set()

    def _start(self, connect: Callable[[], GeventSocket]) -> None:
        """Connect to the server, and then let bytes pass."""
        self._dialling = gevent.Greenlet(self._dial, connect)
        self._dialling.name = f"relay dials for {self.to_server.name}"
        self._dialling.start()

    def _start_mute(self) -> None:
        """Take what comes, and say nothing."""
        self._connected = True
        self.to_client.over = True
        self.to_server.start(self._client, None)

    def _dial(self, connect: Callable[[], GeventSocket]) -> None:
        try:
            server = connect()
        except OSError:
            self.reset()
            return
        if self._connected or self.over.is_set():
            # It came too late to be stopped.
            server.close()
            return
        self._connected = True
        self._server = server
        self.to_server.start(self._client, self._server)
        self.to_client.start(self._server, self._client)

    def _stop_dialling(self) -> None:
        if self._dialling is not None and self._dialling is not gevent.getcurrent():
            self._dialling.kill(block=False)

    def _ended(self, flow: Flow, by_reset: bool) -> None:
        if by_reset:
            self.reset()
        elif self.to_server.over and self.to_client.over:
            self.close()

    def _broken(self, flow: Flow) -> None:
        """One side takes nothing any more: the other side learns it once it has what was said before."""
        back = self.to_client if flow is self.to_server else self.to_server
        if back.over:
            self.reset()
        else:
            back.ends_by_reset = True

    def _cut(self, by_reset: bool) -> None:
        if by_reset:
            self.reset()
            return
        if not self._connected:
            self._stop_dialling()
            self._start_mute()
        # Bytes that are unread when a socket is closed turn the end of file into a reset, so they are still read.
        self.to_server.deafen()
        self.to_client.deafen()
        for sock in self._sockets():
            tell_end(sock)

    def _sockets(self) -> list[GeventSocket]:
        return [self._client] if self._server is None else [self._client, self._server]


class Relay:
    """Listens from the moment that it is made. As a context manager it is closed on leaving.

    Args:
        target: The server: a URL as `connect` takes it, `(host, port)`, or the path of a Unix socket.
        listen: Where clients are to connect: `(host, port)` with a numeric host and 0 for a port from the kernel, or
            the path of a Unix socket; None: the loopback interface, or a Unix socket in a new directory where the
            server has one.
        capacity_bytes: How many bytes of one direction of a connection are held at most.
        socket_buffer_bytes: SO_SNDBUF and SO_RCVBUF of its sockets, for a stall that is to be felt early; None leaves
            them to the kernel, which takes megabytes.
        clock: Tells the time of delays and throttles and stamps connections; a `FakeClock` works.

    Attributes:
        connections: All connections that have been accepted, in order, those that are over included.
        to_server: The direction from clients to the server, with its switches and its counts.
        to_client: The other one.
        both: Both at once.

    Raises:
        TransportUrlError: The URL cannot be dialled.
        ValueError: `capacity_bytes` is less than 1.
        OSError: One cannot listen there.
    """

    def __init__(
        self,
        target: Address,
        *,
        listen: Address | None = None,
        capacity_bytes: int = CAPACITY_BYTES,
        socket_buffer_bytes: int | None = None,
        clock: IClock = default_clock,
    ) -> None:
        if capacity_bytes < 1:
            raise ValueError(f"capacity_bytes must be at least 1, not {capacity_bytes!r}")
        self._target = parse_url(target) if isinstance(target, str) and "://" in target else _as_target(target)
        self._capacity_bytes = capacity_bytes
        self._socket_buffer_bytes = socket_buffer_bytes
        self._clock = clock
        self._admission: Callable[[RelayedConnection], None] = self._relay
        self.connections: list[RelayedConnection] = []
        later = (Conditions(), Conditions())
        self._later = later
        self.to_server = Faults(
            lambda: [later[0], *(one.to_server.conditions for one in self.connections)],
            lambda: [one.to_server for one in self.connections],
        )
        self.to_client = Faults(
            lambda: [later[1], *(one.to_client.conditions for one in self.connections)],
            lambda: [one.to_client for one in self.connections],
        )
        self.both = Faults(
            lambda: [*self.to_server._all_conditions(), *self.to_client._all_conditions()],
            lambda: [*self.to_server._flows(), *self.to_client._flows()],
        )
        if listen is None and self._target.socket_path is not None:
            listen = ""
        self._listener = Listener(listen, self._accepted, receive_buffer_bytes=socket_buffer_bytes)

    @property
    def address(self) -> Address:
        """Where clients connect: `(host, port)`, or the path of the Unix socket."""
        return self._listener.address

    @property
    def url(self) -> str:
        """What clients dial: the target's URL with this place in it; `ws://` and `/` where the target was no URL.

        A target at `localhost` keeps that name, so that its certificate is good for the relay too.
        """
        parts = urlsplit(self._target.uri)
        route = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if isinstance(self.address, str):
            return f"ws+unix://{self.address}:{route}"
        user_info, at, _ = parts.netloc.rpartition("@")
        place = url_place(self.address)
        if self._target.host == "localhost":
            place = f"localhost:{self.address[1]}"
        return f"{parts.scheme}://{user_info}{at}{place}{route}"

    @property
    def live(self) -> list[RelayedConnection]:
        """The connections that are not over."""
        return [one for one in self.connections if not one.over.is_set()]

    @property
    def gaps(self) -> list[float]:
        """The seconds between one connection and the next."""
        return [after.opened_at - before.opened_at for before, after in pairwise(self.connections)]

    # What becomes of new connections

    def admit(self) -> None:
        """Relay new connections, as at first: ends `refuse`, `mute` and `hang_up` for those to come."""
        self._admission = self._relay
        self._listener.admit()

    def refuse(self) -> None:
        """Listen no more, as if the server's program had ended: connecting fails. What is connected goes on.

        Connections that have not been accepted yet are reset.
        """
        self._listener.refuse()

    def mute(self) -> None:
        """Accept new connections and take what they send, but never say a word; the server does not see them."""
        self._admission = RelayedConnection._start_mute
        self._listener.admit()

    def hang_up(self, *, reset: bool = False) -> None:
        """Accept new connections and end them at once, by an end of file or a reset; the server does not see them."""
        self._admission = RelayedConnection.reset if reset else RelayedConnection.cut
        self._listener.admit()

    # What becomes of those that are there

    def reset(self) -> None:
        """End every connection now with a RST to both sides; new ones are relayed."""
        for one in self.live:
            one.reset()

    def cut(self) -> None:
        """End every connection now with an end of file to both sides; new ones are relayed."""
        for one in self.live:
            one.cut()

    def close(self) -> None:
        """Stop listening and end every connection; any number of times."""
        self._listener.close()
        for one in self.live:
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Inside

    def _accepted(self, sock: GeventSocket) -> None:
        self._tune(sock)
        name = f"connection {len(self.connections) + 1}"
        to_server, to_client = map(replace, self._later)
        one = RelayedConnection(sock, name, self._clock, self._capacity_bytes, to_server, to_client)
        self.connections.append(one)
        self._admission(one)

    def _relay(self, one: RelayedConnection) -> None:
        one._start(self._connect)

    def _connect(self) -> GeventSocket:
        target = self._target
        if target.socket_path is not None:
            sock: GeventSocket = connect_unix(target.socket_path, default_clock)
        else:
            with Deadline(default_clock, math.inf, "") as forever:
                sock = connect_tcp(target.host, target.port, default_clock, forever)
        self._tune(sock)
        return sock

    def _tune(self, sock: GeventSocket) -> None:
        sock.settimeout(None)
        if sock.family != socket.AF_UNIX:
            # The delay of this relay is the test's, and not what the kernel adds to small packets.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._socket_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._socket_buffer_bytes)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._socket_buffer_bytes)


def _as_target(place: Address) -> Target:
    if isinstance(place, str):
        return Target("ws://localhost/", parse_ws_uri("ws://localhost/"), place)
    return parse_url(f"ws://{url_place(place)}/")
