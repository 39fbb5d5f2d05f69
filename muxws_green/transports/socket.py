"""A WebSocket over a gevent socket: TCP, TLS or Unix, dialled or accepted; the handshake has been made by others.

The invariant is the frame boundary. Bytes leave only through `_write`, and from its first byte to its last the
transport counts as being inside a frame. A write that is cut short, by an exception thrown into its greenlet or by the
network, leaves it there for good: nothing more is written, no close frame either, since it would be read as a piece of
the message that was cut (C11). On the reading side no timeout exists, so a frame that comes in pieces is never given up
half way (C12).

One greenlet calls `receive`, one calls `send` and `close`; `abort` and `unacknowledged` may be called from any greenlet
of the same hub.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

import gevent
from gevent import getcurrent
from gevent.exceptions import ConcurrentObjectUseError, InvalidSwitchError
from gevent.socket import socket as GeventSocket  # noqa: N812
from gevent.ssl import SSLSocket
from zope.interface import implementer

from muxws_green.errors import ConnectionClosed
from muxws_green.interfaces import ITransport
from muxws_green.runtime.turns import Turns, turns_of
from muxws_green.transports.descriptors import make_room_behind
from muxws_green.transports.tuning import BACKLOG_AFTER_BYTES, bound_backlog, tune, unacknowledged_bytes
from muxws_green.websocket import MessageReader, encode_close, encode_messages, encode_pong

#: A message of the longest kind, with its frame around it, fits one read. From 256 KiB on, each read costs three times
#: as much: the allocator goes to the kernel for the buffer.
READ_BYTES = 66_048

#: OpenSSL tells of a longer write only when all of it has gone, and sends each record by itself in any case.
_TLS_RECORD_BYTES = 16_384

#: How many reads `abort` spends on what nobody will read.
_DISCARDED_READS = 64

_LOST = (1006, "connection lost without a close frame")


def wait_to_read(sock: GeventSocket, turns: Turns) -> None:
    """Wait until there is something to read on a plain socket of which the last read took all there was.

    gevent's own `recv` would ask the kernel once more before it waits, and be told so by an exception. It is waited as
    it does then, except that who is due has the turn.

    Raises:
        ConcurrentObjectUseError: Somebody reads the socket already, or has closed it.
    """
    watcher: Any = sock._read_event  # type: ignore[attr-defined]
    if watcher is None or watcher.callback is not None:
        raise ConcurrentObjectUseError("the socket is read, or has been closed, by another greenlet")
    watcher.start(getcurrent().switch)
    try:
        given = turns.wait()
    finally:
        watcher.stop()
    if given != ():
        raise InvalidSwitchError(f"switched to with {given!r} while waiting for a socket")


@implementer(ITransport)
class SocketTransport:
    """One open WebSocket on `sock`, which belongs to this object from now on.

    Args:
        sock: A connected gevent socket, `gevent.ssl.SSLSocket` included. Its options and timeout are set here (`tune`).
        client: True on the dialling side: what is sent is masked, what is received must not be (RFC 6455 §5.1).
        max_message_bytes: A message, continuation frames summed up, that is longer ends the connection with 1009. It is
            judged from the announced length and not read.
        leftover: What was read behind the head of the handshake; it is received first.
    """

    def __init__(self, sock: GeventSocket, *, client: bool, max_message_bytes: int, leftover: bytes = b"") -> None:
        tune(sock)
        make_room_behind(sock.fileno())
        self._sock = sock
        self._turns = turns_of(sock.hub)  # type: ignore[attr-defined]
        secure = isinstance(sock, SSLSocket)
        self._piece_bytes = _TLS_RECORD_BYTES if secure else sys.maxsize
        # What a TLS socket has decrypted already the kernel does not know of.
        self._kernel_knows = not secure
        # Whoever has made the handshake has read all there was, or nearly always.
        self._drained = True
        self._backlog_bound = False
        #: Bytes of frames received and sent so far; see `ITransport`.
        self.received_bytes = 0
        self.sent_bytes = 0
        self.violated = False
        self._masked = client
        self._reader = MessageReader(client=client, max_message_bytes=max_message_bytes)
        self._leftover = leftover
        self._read_since_yield = 0
        self._wake: Callable[[], None] = lambda: None
        self._pong: bytes | None = None
        self._answer: bytes | None = None
        self._close_sent = False
        self._end: tuple[int, str] | None = None
        self._aborted = False
        self._in_frame = False
        # What `send_at_once` could not write, and how much of that and of a write under way is still to be written.
        self._rest = b""
        self._unsent_bytes = 0

    def attach(self, wake: Callable[[], None]) -> None:
        """Name the function that gets the writer going when a pong or the answer to a close frame is due."""
        self._wake = wake

    def receive(self) -> Sequence[str | bytes]:
        """Wait for messages and return those of one read; see `ITransport.receive`.

        Lets other greenlets run after each 64 KiB, whether or not it had to wait for them: a remote that sends faster
        than it is read would otherwise have the hub for itself.
        """
        while self._end is None:
            if self._read_since_yield >= READ_BYTES:
                self._read_since_yield = 0
                gevent.sleep(0)
            data, self._leftover = self._leftover or self._read(), b""
            if not data:
                self._end = self._end or _LOST
                break
            size = len(data)
            self._read_since_yield += size
            self.received_bytes += size
            self._drained = size < READ_BYTES
            if self.received_bytes >= BACKLOG_AFTER_BYTES and not self._backlog_bound:
                self._backlog_bound = True
                bound_backlog(self._sock)
            messages = self._reader.feed(data)
            if self._reader.noticed:
                self._notice()
            if messages:
                return messages
        raise self._closed()

    def send(self, messages: Sequence[bytes], binary: bool) -> None:
        """Write a pong or the answer to a close frame where one is due, then `messages`, all in one piece.

        Raises:
            ConnectionClosed: The connection is gone, an earlier write was cut short, or a close frame has been sent,
                after which no data may follow (RFC 6455 §5.5.1).
        """
        own = b"" if self._pong is None and self._answer is None else self._take_own()
        if messages and not self._close_sent:
            self._write(own + encode_messages(messages, binary, self._masked))
            return
        if own or self._rest:
            self._write(own)
        if messages:
            raise self._closed("nothing can be sent after a close frame")

    def send_at_once(self, messages: Sequence[bytes], binary: bool) -> None:
        """Write as much as the kernel takes; see `ITransport.send_at_once`.

        Raises:
            ConnectionClosed: As `send` does.
        """
        if self._aborted or self._close_sent or (self._in_frame and not self._rest):
            raise self._closed("nothing can be sent after a close frame" if self._close_sent else "")
        data = encode_messages(messages, binary, self._masked)
        self.sent_bytes += len(data)
        # What the transport itself has to say is the writer's to write, and so is what TLS makes of this.
        if self._kernel_knows and not self._rest:
            try:
                taken = self._sock._sock.send(data)  # type: ignore[attr-defined]
            except BlockingIOError:
                taken = 0
            except OSError as error:
                self._in_frame = True
                raise self._closed() from error
            if taken == len(data):
                return
            self._in_frame = taken > 0
            data = data[taken:]
        self._rest += data
        self._unsent_bytes = len(self._rest)
        self._wake()

    def close(self, code: int, reason: str) -> None:
        """Write a close frame, or the answer to the remote's where that is due; once.

        Raises:
            ConnectionClosed: As `send` does.
            ValueError: `code` may not be on the wire (RFC 6455 §7.4).
        """
        frame = encode_close(code, reason, self._masked)
        own = self._take_own()
        if not self._close_sent:
            self._close_sent = True
            own += frame
        if own:
            self._write(own)

    def abort(self, code: int | None = None) -> None:
        """End the connection at once; see `ITransport.abort`. Later calls do nothing."""
        if self._aborted:
            return
        self._aborted = True
        self._end = self._end or _LOST
        try:
            if not self._in_frame:
                self._say_goodbye(code)
        except OSError:
            # No room, or the remote has gone before us. Either way there is nobody to tell.
            pass
        finally:
            try:
                self._sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                # Not connected any more; that is what was wanted.
                pass
            self._sock.close()

    def disown(self) -> None:
        """Leave the connection to the process that this one was forked from; see `ITransport.disown`."""
        self._aborted = True
        self._end = self._end or _LOST
        self._sock.close()

    def unacknowledged(self) -> int | None:
        """Bytes that a waiting `send` still holds and that the kernel reports (Linux); None elsewhere."""
        queued = unacknowledged_bytes(self._sock)
        return None if queued is None else queued + self._unsent_bytes

    def _read(self) -> bytes:
        sock = self._sock
        try:
            if self._drained and self._kernel_knows:
                wait_to_read(sock, self._turns)
            return sock.recv(READ_BYTES)
        except OSError:
            return b""
        except Exception:
            # A TLS socket that another greenlet has shut down says so with all sorts of exceptions.
            if not self._aborted:
                raise
            return b""

    def _notice(self) -> None:
        """Look at what the reader found besides messages."""
        ping = self._reader.take_ping()
        if ping is not None:
            # Only the latest needs an answer (RFC 6455 §5.5.3), so that pings cannot pile up here.
            self._pong = ping
        if self._reader.violation is not None:
            self.violated = True
            self._end = self._reader.violation
        elif self._reader.close is not None:
            code, reason = self._reader.close
            self._end = (code, reason)
            self._answer = encode_close(None if code == 1005 else code, reason, self._masked)
        self._wake()

    def _take_own(self) -> bytes:
        """The control frames that are due, as bytes to be written now."""
        if self._close_sent:
            return b""
        own = b"" if self._pong is None else encode_pong(self._pong, self._masked)
        self._pong = None
        if self._answer is not None:
            self._close_sent = True
            own += self._answer
        return own

    def _write(self, data: bytes) -> None:
        if self._aborted or (self._in_frame and not self._rest):
            raise self._closed()
        self._in_frame = True
        self.sent_bytes += len(data)
        if self._rest:
            data, self._rest = self._rest + data, b""
        self._unsent_bytes = len(data)
        try:
            if len(data) <= self._piece_bytes:
                self._unsent_bytes -= self._sock.send(data)
            if self._unsent_bytes:
                view = memoryview(data)
                while self._unsent_bytes:
                    start = len(data) - self._unsent_bytes
                    self._unsent_bytes -= self._sock.send(view[start : start + self._piece_bytes])
        except Exception as error:
            if self._aborted or isinstance(error, OSError):
                raise self._closed() from error
            raise
        self._in_frame = False

    def _closed(self, message: str = "") -> ConnectionClosed:
        code, reason = self._end or _LOST
        return ConnectionClosed(message, code=code, reason=reason, was_clean=code == 1000)

    def _say_goodbye(self, code: int | None) -> None:
        """Try to make the remote see a close frame and not a broken line. Nothing in here waits."""
        sock = self._sock
        sock.settimeout(0.0)
        if not self._close_sent:
            frame = self._answer or (b"" if code is None else encode_close(code, "", self._masked))
            if frame:
                sock.send(frame)
                self._close_sent = True
        if self._close_sent:
            self._discard_unread()
        if isinstance(sock, SSLSocket):
            try:
                sock.unwrap()
            except ValueError:
                # The remote has ended TLS before.
                pass

    def _discard_unread(self) -> None:
        # A socket that is closed with bytes unread is reset, and a reset can overtake the close frame or erase it.
        try:
            for _ in range(_DISCARDED_READS):
                if not self._sock.recv(READ_BYTES):
                    return
        except OSError:
            # Nothing there, or no more to come.
            pass
