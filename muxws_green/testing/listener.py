"""A listening socket that can stop to listen and begin again in the same place.

While it refuses, nobody listens: the kernel itself answers with a reset, as it does for a server that has crashed. The
port stays reserved meanwhile, so that neither another program nor the kernel's own choice of a source port takes it.
Used by the relay and the raw server.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable

import gevent
from gevent import socket as gevent_socket
from gevent.socket import socket as GeventSocket  # noqa: N812

#: How many connections may wait to be accepted.
BACKLOG = 512

#: What lets one socket listen in a place that another one only holds.
_SHARING = (socket.SO_REUSEADDR,) if sys.platform == "linux" else (socket.SO_REUSEADDR, socket.SO_REUSEPORT)

#: Where something listens: host and port, or the path of a Unix socket.
Address = tuple[str, int] | str


class Listener:
    """Listens, and hands every connection on.

    Args:
        place: Where to listen: `(host, port)` with a numeric host and 0 for a port from the kernel, or the path of a
            Unix socket; None: the loopback interface and a port from the kernel; "": a Unix socket in a new directory.
        accepted: Called with each connection; must not wait.
        receive_buffer_bytes: SO_RCVBUF of the connections; None leaves it to the kernel.

    Raises:
        OSError: One cannot listen there.
    """

    def __init__(
        self,
        place: Address | None,
        accepted: Callable[[GeventSocket], object],
        *,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        self._accepted = accepted
        self._receive_buffer_bytes = receive_buffer_bytes
        self._directory: str | None = None
        self._made_file = False
        self._holder: GeventSocket | None = None
        self._socket: GeventSocket | None = None
        self._loop: gevent.Greenlet[..., None] | None = None
        if place == "":
            self._directory = tempfile.mkdtemp(prefix="muxws-")
            place = os.path.join(self._directory, "s")
        #: Where it listens, the port that the kernel chose included.
        self.address: Address = ("127.0.0.1", 0) if place is None else place
        try:
            if not isinstance(self.address, str):
                self._holder = self._bound()
                self.address = self._holder.getsockname()[:2]
            self.admit()
        except BaseException:
            self.close()
            raise

    @property
    def family(self) -> int:
        """AF_INET, AF_INET6 or AF_UNIX."""
        if isinstance(self.address, str):
            return int(socket.AF_UNIX)
        return int(socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET)

    def admit(self) -> None:
        """Listen; nothing where it does already."""
        if self._socket is not None:
            return
        sock = self._bound()
        try:
            if self._receive_buffer_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
            sock.listen(BACKLOG)
        except BaseException:
            sock.close()
            raise
        self._socket = sock
        self._loop = gevent.Greenlet(self._accept, sock)
        self._loop.name = f"accepting at {self.address}"
        self._loop.start()

    def refuse(self) -> None:
        """Stop listening. What waits to be accepted is reset; what was accepted is not touched."""
        sock, self._socket = self._socket, None
        loop, self._loop = self._loop, None
        if sock is None or loop is None:
            return
        # gevent closes a descriptor that somebody waits for a turn later; nobody is to get in until then.
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()
        loop.kill(block=False)

    def close(self) -> None:
        """Stop listening for good, and tidy up; any number of times."""
        self.refuse()
        if self._holder is not None:
            self._holder.close()
            self._holder = None
        self._remove_file()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _bound(self) -> GeventSocket:
        sock = gevent_socket.socket(self.family)
        try:
            if isinstance(self.address, str):
                self._remove_file()
            else:
                for option in _SHARING:
                    sock.setsockopt(socket.SOL_SOCKET, option, 1)
            sock.bind(self.address)
        except BaseException:
            sock.close()
            raise
        self._made_file = isinstance(self.address, str)
        return sock

    def _remove_file(self) -> None:
        # A Unix listener leaves its file behind. One that somebody else made stays, and keeps us from listening.
        if self._made_file and isinstance(self.address, str):
            self._made_file = False
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.address)

    def _accept(self, listener: GeventSocket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                if self._socket is not listener:
                    return
                raise
            self._accepted(sock)


def url_place(address: tuple[str, int]) -> str:
    """Host and port as they stand in a URL."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
