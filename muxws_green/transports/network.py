"""Connecting: from the name of a host, or the path of a file, to an open socket.

Names are resolved anew at each call, since hosts move (C39), and every address is tried in the order that the resolver
gives. Everything here waits for as long as it takes: the deadline is around it. Used by the dialer.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from typing import Any

from gevent import socket as gevent_socket
from gevent.monkey import get_original

from muxws_green.interfaces import IClock
from muxws_green.transports.deadline import Deadline

#: Between two attempts at a Unix listener whose queue is full; the kernel does not tell when there is room again.
_UNIX_RETRY_SECONDS = 0.05


_getaddrinfo = get_original("socket", "getaddrinfo")
#: Combined once: flags are enums, and those are slow to combine.
_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV

#: What a connect that does not wait says while it goes on.
_UNDER_WAY = frozenset({errno.EINPROGRESS, errno.EALREADY, errno.EWOULDBLOCK})

#: As `getaddrinfo` gives them: family, kind, protocol, canonical name, address.
_Address = tuple[int, int, int, str, Any]


def connect_tcp(host: str, port: int, clock: IClock, deadline: Deadline) -> gevent_socket.socket:
    """A socket that is connected to one of the addresses of `host`.

    An address that does not answer may use up its share of the time that is left, not all of it: with a dead network
    behind the first address the second is still tried.

    Args:
        host: A name, or an address without brackets, which is not given to the resolver.
        port: 1 to 65535.
        clock: Divides the time among the addresses.
        deadline: Around this call; tells how much time there is.

    Raises:
        OSError: No address could be connected to; the last failure, which names the place, with notes about the others.
            Of the resolver's kind (gaierror) where there is no address.
    """
    addresses = _resolve(host, port)
    failures: list[OSError] = []
    for position, (family, kind, protocol, _, sockaddr) in enumerate(addresses):
        left = deadline.remaining()
        last = position == len(addresses) - 1
        share = None if last or left is None else left / (len(addresses) - position)
        try:
            if share is None:
                # The deadline around all of it is enough.
                return _connect(family, kind, protocol, sockaddr)
            with Deadline(clock, share, f"{_place(host, port, sockaddr)} did not answer"):
                return _connect(family, kind, protocol, sockaddr)
        except OSError as error:
            failures.append(_named(error, _place(host, port, sockaddr)))
    failure = failures.pop()
    for earlier in failures:
        failure.add_note(f"before that: {earlier}")
    raise failure


def connect_unix(path: str, clock: IClock) -> gevent_socket.socket:
    """A socket that is connected to the listener at `path`; waits while its queue is full.

    Raises:
        OSError: There is none, or it may not be used; the message names the path.
    """
    sock = gevent_socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # gevent would wait for a socket that has not been connected to become writable, which it is at once and always.
        sock.settimeout(0.0)
        while True:
            try:
                sock.connect(path)
            except BlockingIOError:
                clock.sleep(_UNIX_RETRY_SECONDS)
            else:
                break
        sock.settimeout(None)
    except OSError as error:
        sock.close()
        raise _named(error, path) from error
    except BaseException:
        sock.close()
        raise
    return sock


def _resolve(host: str, port: int) -> Sequence[_Address]:
    if _is_ipv4(host):
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
    # Any other address is taken apart by the C library in no time too; gevent would ask a thread, which may be busy
    # with somebody's slow name.
    try:
        found: Sequence[_Address] = _getaddrinfo(host, port, 0, socket.SOCK_STREAM, 0, _NUMERIC)
    except socket.gaierror:
        try:
            found = gevent_socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
        except OSError as error:
            error.add_note(f"while resolving {host}")
            raise
    return found


def _place(host: str, port: int, sockaddr: Any) -> str:
    """How messages name an address of a host."""
    return f"{host} port {port}" if sockaddr[0] == host else f"{host} ({sockaddr[0]}) port {port}"


def _is_ipv4(host: str) -> bool:
    """Whether it is an address of four numbers, as a resolver would write it."""
    try:
        socket.inet_pton(socket.AF_INET, host)
    except (OSError, ValueError):
        return False
    return True


def _connect(family: int, kind: int, protocol: int, sockaddr: Any) -> gevent_socket.socket:
    sock = gevent_socket.socket(family, kind, protocol)
    try:
        # Whatever `socket.setdefaulttimeout` says: the deadline is around this.
        sock.settimeout(None)
        # On this machine, and with luck elsewhere, it is done as soon as it has been asked for, which gevent would find
        # out only after a turn of everybody else.
        connect_at_once = sock._sock.connect_ex  # type: ignore[attr-defined]
        failure = connect_at_once(sockaddr)
        if failure in _UNDER_WAY:
            failure = connect_at_once(sockaddr)
        if failure in _UNDER_WAY:
            sock.connect(sockaddr)
        elif failure and failure != errno.EISCONN:
            raise OSError(failure, os.strerror(failure))
    except BaseException:
        sock.close()
        raise
    return sock


def _named(error: OSError, place: str) -> OSError:
    """The same failure, of the same class, saying where."""
    if error.errno is None:
        return error
    return OSError(error.errno, f"{error.strerror or os.strerror(error.errno)}, connecting to {place}")
