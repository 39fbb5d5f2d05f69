"""The contracts of the project: what each replaceable part owes the others.

Each contract is written once, as a class of annotated methods. `contract` makes two things of that one source: a
type checker sees a `typing.Protocol` and checks every use of it; at run time the name is a zope interface, which
classes declare with `@implementer` and tests verify. The docstrings state the duty of an implementer; how to *use* an
object is told by its class.

There is no component registry and no look-up by interface.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from zope.interface.interface import Attribute, InterfaceClass, fromFunction

if TYPE_CHECKING:
    from muxws_green.errors import StreamReset
    from muxws_green.protocol.frames import Frame
    from muxws_green.protocol.streams import LiveStream

T = TypeVar("T")

#: The tag under which a method of an interface keeps its whole signature, keyword-only parameters included
#: (zope compares positional ones only).
SIGNATURE_TAG = "muxws_green.signature"


def contract(source: type[T]) -> type[T]:
    """Make a zope interface of a `Protocol` class; type checkers go on seeing the class itself."""
    members: dict[str, Any] = {}
    for name, annotation in source.__annotations__.items():
        members[name] = Attribute(name, str(annotation))
    for name, member in vars(source).items():
        if not name.startswith("_") or name == "__call__":
            method = fromFunction(member, imlevel=1, name=name)
            method.setTaggedValue(SIGNATURE_TAG, inspect.signature(member))
            members[name] = method
    interface = InterfaceClass(source.__name__, (), members, __doc__=source.__doc__, __module__=source.__module__)
    return cast("type[T]", interface)


@contract
class ICodec(Protocol):
    """Turns frames into WebSocket messages and back. One codec serves many connections; it keeps no state.

    A value that cannot be encoded raises TypeError, ValueError (UnicodeEncodeError is one), OverflowError or
    RecursionError; a message that cannot be decoded raises `ProtocolError` and nothing else.
    """

    #: The last part of the subprotocol `muxws.v1.<name>`.
    name: str
    #: True where messages are binary. Declared, never guessed from a value.
    binary: bool

    def encode(self, frame: Frame) -> str | bytes:
        """The whole message for `frame`: str for a text codec, bytes for a binary one. Absent fields are omitted."""

    def decode(self, message: str | bytes) -> Frame:
        """The frame of one message; unknown fields are dropped."""

    def encode_payload(self, value: Any) -> str | bytes:
        """`value` alone, exactly as it would stand in a message."""

    def decode_payload(self, data: str | bytes) -> Any:
        """The inverse of `encode_payload`; `data` comes from a remote."""


@contract
class IEnvelopeCodec(Protocol):
    """What a codec offers besides `ICodec` so that each payload is encoded once and no frame object is built.

    A codec without it works too: `codecs.envelopes` supplies these operations by way of `ICodec`, more slowly.
    """

    def wrap(
        self,
        kind: str,
        stream: int,
        encoded: str | bytes | None,
        headers: Mapping[str, Any] | None = None,
        end: bool = False,
        trailers: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The message of an `open` or `data` frame around a payload in its encoded form; None: no payload.

        Returns the bytes of the message, UTF-8 under a text codec.
        """

    def wrap_fragment(
        self,
        kind: str,
        stream: int,
        piece: bytes | memoryview,
        more: bool,
        headers: Mapping[str, Any] | None = None,
        end: bool = False,
        trailers: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The message of a fragment. `piece` is a slice of the encoded payload, in whole code points if text.

        A codec that offers `IBulkCodec` gets it as a memoryview too.
        """

    def unwrap(self, message: str | bytes) -> dict[str, Any]:
        """The envelope of one message as a fresh dict of whatever fields it has, unchecked; `ProtocolError` if none.

        Checks the message's kind (text or binary), the nesting and the numbers, as `ICodec.decode` does.
        """


@contract
class IBulkCodec(Protocol):
    """What a binary codec offers besides, so that long bytes are not copied more often than they must be.

    These stand in for the encoding and decoding of long payloads and of most fragments. A codec without them works too:
    its payloads are encoded, cut and decoded whole. So does one whose class has inherited them and encodes or decodes
    payloads or messages in a way of its own: it is not asked for these.
    """

    def bytes_header(self, length: int) -> bytes:
        """What `encode_payload` puts before a payload that is so many bytes, which follow as they are."""

    def unwrap_fragment(self, message: memoryview) -> tuple[str, int, memoryview] | None:
        """The type, the stream and the piece of a fragment that has nothing besides but that more follow.

        None for any other message, and wherever a closer look is needed; `unwrap` is asked then. The piece is a view
        into `message`.
        """

    def decode_pieces(self, pieces: Sequence[bytes | memoryview]) -> Any:
        """As `decode_payload` of all pieces joined; there is at least one."""


@contract
class IClock(Protocol):
    """The only source of time in the runtime."""

    def now(self) -> float:
        """Monotonic seconds since an arbitrary moment."""

    def sleep(self, seconds: float) -> None:
        """Let other greenlets run and return after `seconds`; 0 yields once."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> ITimerHandle:
        """Run `callback` in the hub after `seconds` (0: at the next turn); it must not block."""

    def watch(self, pending: Callable[[], int | None]) -> ITimerHandle:
        """A hint until the handle is cancelled: `pending` tells how many of our bytes the remote has not taken yet.

        A clock of real time ignores it; a fake one does not jump while they go down. `pending` must not block or raise.
        """


@contract
class ITimerHandle(Protocol):
    """One scheduled call of an `IClock`."""

    def cancel(self) -> None:
        """Make sure that the callback does not run any more; any number of times, also after it ran."""


@contract
class ITransport(Protocol):
    """One open socket that carries whole WebSocket messages. Batch-shaped, since a system call costs more than a frame.

    One greenlet receives, one sends; neither may wait for the other.
    """

    #: Bytes that have been received so far, framing included. They grow while a message arrives piece by piece, which
    #: the heartbeat takes for life; and bytes that have been handed over to be sent, those of a write that is not over
    #: included.
    received_bytes: int
    sent_bytes: int
    #: True where `receive` has ended because the remote broke a WebSocket rule: this end is to close with the code it
    #: gave.
    violated: bool

    def attach(self, wake: Callable[[], None]) -> None:
        """Called once, before anything else. Call `wake` whenever the transport itself has something to write, such as
        a pong or the answer to a close frame; `send` is called then, if need be without messages.
        """

    def receive(self) -> Sequence[str | bytes]:
        """Wait for messages and return those that are there, oldest first: str for text, bytes for binary, at least
        one.

        Messages longer than the bound that it was built with end the connection. Raises `ConnectionClosed` with the
        code and reason of the remote's close frame, 1005 for an empty one, 1006 where there was none, or the code that
        this end is to close with after a violation (1002, 1007, 1009); and again on every later call.
        """

    def send(self, messages: Sequence[bytes], binary: bool) -> None:
        """Write what the transport itself has to say and then all `messages`, in one system call where it can.

        Returns when the kernel has taken them; raises `ConnectionClosed` where it will not.
        """

    def send_at_once(self, messages: Sequence[bytes], binary: bool) -> None:
        """Write as `send` does, and never wait; only while nobody is inside `send` or `close`.

        What the kernel does not take now is kept for the next `send`, for which `wake` is called. Raises
        `ConnectionClosed` as `send` does.
        """

    def close(self, code: int, reason: str) -> None:
        """Write a close frame after everything sent so far, like `send`. Reading goes on. Later calls do nothing.

        Args:
            code: Any code that RFC 6455 §7.4 allows on the wire.
            reason: Cut to 123 bytes of UTF-8 on a character boundary.
        """

    def abort(self, code: int | None = None) -> None:
        """End it now and never block: shut down and close the descriptor, wake `receive` and `send` of other greenlets.

        Args:
            code: Try once, without blocking and only at a frame boundary, to send a close frame with this code, or the
                answer to the remote's; None sends nothing but that answer.
        """

    def disown(self) -> None:
        """In a child process, forked from the one that owns the connection: close this copy of the descriptor.

        Writes nothing, shuts nothing down and never blocks, since all of that would happen to the parent's connection.
        """

    def unacknowledged(self) -> int | None:
        """How many bytes the remote's kernel has not acknowledged yet; None where that cannot be known."""


@contract
class IDialer(Protocol):
    """Opens sockets to one place, again and again."""

    def dial(self) -> ITransport:
        """A new open transport whose subprotocol is agreed. Resolves names anew each time.

        Raises `CodecMismatch` for status 400 or another subprotocol, `HandshakeRefused` for any other answer,
        TimeoutError past the deadline, OSError for the network. What it opened it closes on every failure.
        """


@contract
class IBackoffPolicy(Protocol):
    """How long to wait before which attempt. Pure: the same arguments give the same answer but for the draw."""

    def delay(self, attempts: int, draw: Callable[[], float]) -> float:
        """Seconds to wait after `attempts` failures; `draw` gives a number in [-1, 1). Total: never raises for any
        count from 0, never negative.
        """

    def should_retry(self, attempts: int) -> bool:
        """Whether another attempt is allowed after `attempts` failures."""


@contract
class IHeartbeatPolicy(Protocol):
    """Decides when to ping and when a silent remote is dead. Arithmetic only: it is told the time."""

    def start(self, now: float, nonces: Callable[[], str]) -> IHeartbeat:
        """The state for one connection that is established at `now`. `nonces` gives a random one for each ping."""


@contract
class IHeartbeat(Protocol):
    """A heartbeat policy's state for one connection. Times are `IClock.now()`."""

    def received(self, now: float) -> None:
        """Something has arrived from the remote."""

    def sent(self, now: float) -> None:
        """Frames other than our pings have been handed to the socket."""

    def leaving(self, now: float) -> None:
        """Bytes queued before the outstanding ping, or the ping itself, were still leaving at `now`, or this end's
        reader stood still: the wait begins anew there.
        """

    def due(self) -> float | None:
        """When to look again, at the latest; None: only after the next `received` or `sent`.

        `look` may make it earlier. `received`, `sent` and `leaving` never do, unless it was None.
        """

    def look(self, now: float) -> str | None:
        """What is to be done at `now`: a nonce means that a ping with it is to be queued, None that nothing is.

        Raises `HeartbeatTimeoutError` where the remote is dead, and changes nothing then: before it is believed, the
        reader gets a turn, since an answer may lie in the socket of a hub that was blocked, and one looks once more.
        """


@contract
class IRegistry(Protocol):
    """Finds live peers by their tags."""

    def register(self, peer: IPeer) -> None:
        """Index `peer` by its tags as they are now, replacing what was known, until it is lost or deregistered."""

    def deregister(self, peer: IPeer) -> None:
        """Forget `peer`; nothing happens if it is unknown."""

    def peers_for(self, **tags: Any) -> list[IPeer]:
        """The live registered peers that match all `tags`, in a stable order; all without tags."""


@contract
class IErrorSerializer(Protocol):
    """Turns a handler's exception into the payload of its reset."""

    def __call__(self, error: BaseException) -> Any:
        """A payload for the remote, or None for none. May redact. An exception from it sends none."""


@contract
class IOriginPolicy(Protocol):
    """Says which web pages may connect."""

    def allows(self, origin: str | None, host: str | None, forwarded_host: str | None) -> bool:
        """Whether a request may be upgraded.

        Args:
            origin: The `Origin` header, None where the request has none.
            host: The `Host` header.
            forwarded_host: The `X-Forwarded-Host` header.
        """


@contract
class IStream(Protocol):
    """One independent, cancellable, two-way exchange of payloads (PROTOCOL §6)."""

    #: The id on the wire.
    id: int

    def send(self, payload: Any, *, end: bool = False, headers: Mapping[str, Any] | None = None) -> None:
        """Queue one payload; wait while there is no room."""

    def end(
        self, payload: Any = ..., *, trailers: Mapping[str, Any] | None = None, headers: Mapping[str, Any] | None = None
    ) -> None:
        """End this side, with a last payload if one is given."""

    def reply(
        self, payload: Any, *, trailers: Mapping[str, Any] | None = None, headers: Mapping[str, Any] | None = None
    ) -> None:
        """The only payload of an answer, and its end."""

    def send_headers(self, headers: Mapping[str, Any]) -> None:
        """This side's leading headers without a payload."""

    def result(self, timeout: float | None = None) -> Any:
        """The first payload; the same again on each call."""

    def receive(self, timeout: float | None = None) -> Any:
        """The next payload."""

    def cancel(self, reason: str | None = None) -> None:
        """`reset(CANCELLED)`."""

    def reset(self, code: int, reason: str | None = None) -> None:
        """End both directions at once; nothing on a closed stream."""


@contract
class IPeer(Protocol):
    """One end of a connection; both ends are alike (PROTOCOL §1)."""

    #: Names the socket in logs; a new one for each.
    id: str
    #: The application's; never read here.
    tags: dict[str, Any]

    def open(
        self,
        payload: Any = None,
        *,
        headers: Mapping[str, Any] | None = None,
        end: bool = False,
        wait: bool = True,
    ) -> IStream:
        """Open a stream with its first payload."""

    def request(
        self, payload: Any = None, *, headers: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Any:
        """One payload out, exactly one back."""

    def notify(self, payload: Any = None, *, headers: Mapping[str, Any] | None = None, wait: bool = True) -> None:
        """One payload out, nothing back."""

    def ping(self, timeout: float = 5.0) -> float:
        """The round trip in seconds."""

    def close(self, code: int = 0, reason: str | None = None, drain: float = 10.0) -> None:
        """Goaway, drain, close."""

    def serve(self) -> Any:
        """Wait until the connection is over."""


@contract
class IConnectionSink(Protocol):
    """What the protocol's state machine tells the runtime about one connection.

    Each call comes when the machine has made its changes, from inside `receive` or `take_batch`; it must not wait. It
    may call the machine back.
    """

    def opening(self, live: LiveStream, headers: dict[str, Any] | None) -> None:
        """The first frame of a stream that the remote opens; its payload may not be whole yet."""

    def opened(self, live: LiveStream, payload: Any) -> None:
        """The opening payload is whole; None where there was none."""

    def answered(self, live: LiveStream, headers: dict[str, Any] | None) -> None:
        """The remote's first frame on a stream that this end opened."""

    def payload(self, live: LiveStream, payload: Any, size: int) -> None:
        """A payload is whole. `size` is what it weighs, in encoded bytes."""

    def ended(self, live: LiveStream, trailers: dict[str, Any] | None) -> None:
        """The remote will send nothing more on this stream."""

    def failed(self, live: LiveStream, error: StreamReset) -> None:
        """The stream is closed by a reset: the remote's, or one for a fault found here."""

    def pong(self, nonce: str) -> None:
        """A pong has arrived."""

    def goaway(self, code: int, reason: str | None) -> None:
        """The remote is going away."""

    def queued(self) -> None:
        """A frame has been queued that no call of this end asked for; the writer is to be woken."""

    def report(self, text: str) -> None:
        """Something odd that changes nothing, at most a few dozen times a connection."""
