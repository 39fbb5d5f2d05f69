"""What every socket of this library is set to, and what the kernel can tell about it.

The kernel would queue megabytes for a slow remote; then neither the order of the lanes nor a heartbeat would mean
anything, since a ping would wait behind all of it. So the unsent backlog is kept small, and small messages are not held
back for the remote's acknowledgement. Called by `SocketTransport` for sockets dialled, accepted or taken over.

What has arrived and was not read yet is a backlog too, of this end's kernel, and Linux lets it grow to many megabytes
for a remote that sends faster than is read. On a short path a small one is enough for any speed, so there it is kept
small once there is one; on a long path it bounds the speed, and is left to the kernel.
"""

from __future__ import annotations

import socket
import struct
import sys

from gevent.socket import socket as GeventSocket  # noqa: N812

#: Unsent bytes at which a TCP socket stops taking more.
UNSENT_LIMIT_BYTES = 131_072

#: Where there is no limit for the unsent part alone, the whole send buffer is asked to be this small; Linux doubles it.
SEND_BUFFER_BYTES = 65_536

#: What is asked for as the receive buffer on a short path; Linux doubles it.
RECEIVE_BUFFER_BYTES = 524_288

#: Once so much has been received the kernel's backlog is looked after.
BACKLOG_AFTER_BYTES = 65_536

#: Up to such a round trip a path is short: such a buffer lets 250 MiB/s through it, and more on a shorter one.
SHORT_PATH_SECONDS = 0.002

_INTERNET_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_TCP_NOTSENT_LOWAT: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)


def tune(sock: GeventSocket) -> None:
    """Send small messages at once, keep the kernel's backlog small, and let no timeout of the socket cut a frame.

    TCP: TCP_NODELAY, and TCP_NOTSENT_LOWAT or else SO_SNDBUF. Other families, Unix sockets that is: SO_SNDBUF. A
    timeout left on the socket by whoever had it before is taken away: deadlines belong to the waits of callers.
    """
    sock.settimeout(None)
    try:
        # Asked by trying: gevent makes an enum of the family, which takes longer.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        is_tcp = True
    except OSError:
        is_tcp = False
    try:
        if is_tcp and _TCP_NOTSENT_LOWAT is not None:
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_LIMIT_BYTES)
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    except OSError:
        # Some systems refuse options on a socket that the remote has reset already; the first read reports that.
        pass


def bound_backlog(sock: GeventSocket) -> None:
    """Keep what arrives faster than it is read from growing in the kernel: SO_RCVBUF, on TCP over a short path.

    For a remote that has sent a lot; most never do, and each of these calls takes as long as some frames.
    """
    if sock.family not in _INTERNET_FAMILIES:
        return
    round_trip = round_trip_seconds(sock)
    if round_trip is None or round_trip > SHORT_PATH_SECONDS:
        return
    # A buffer that is small already was somebody's choice.
    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= SEND_BUFFER_BYTES:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)


if sys.platform == "linux":
    import fcntl
    import termios

    _INT = struct.Struct("i")
    #: Where `tcpi_min_rtt` is in the kernel's `struct tcp_info`, in microseconds. `tcpi_rtt` holds the time that the
    #: other end waits with an acknowledgement, too.
    _ROUND_TRIP_AT = 148

    def round_trip_seconds(sock: GeventSocket) -> float | None:
        """The least that the kernel has measured on a TCP socket of late, first in its handshake; None where it cannot
        tell.
        """
        try:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ROUND_TRIP_AT + _INT.size)
            return int(_INT.unpack_from(info, _ROUND_TRIP_AT)[0]) / 1e6
        except (OSError, struct.error):
            return None

    def unacknowledged_bytes(sock: GeventSocket) -> int | None:
        """How much the remote's kernel has not acknowledged (TCP) or its program has not read (Unix sockets, there
        with the kernel's overhead); None where the kernel cannot tell, and once the socket is closed.
        """
        try:
            # TIOCOUTQ is the number of SIOCOUTQ, for which Python has no name.
            answer = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(_INT.size))
        except (OSError, ValueError):
            return None
        return int(_INT.unpack(answer)[0])

else:  # pragma: no cover - CI runs on Linux

    def round_trip_seconds(sock: GeventSocket) -> float | None:
        """None: only Linux is asked."""
        return None

    def unacknowledged_bytes(sock: GeventSocket) -> int | None:
        """None: only Linux can tell."""
        return None
