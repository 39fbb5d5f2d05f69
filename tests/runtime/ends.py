"""What the runtime's tests use to talk to a peer: the other end as a peer, as bare frames, and gates for handlers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import gevent
from gevent.event import Event
from zope.interface import implementer

from muxws_green import Peer, Reconnect
from muxws_green.interfaces import IDialer
from muxws_green.runtime.options import Options
from muxws_green.runtime.plan import Hello, Plan
from muxws_green.runtime.supervisor import Supervisor
from muxws_green.testing import established_peer, peer_pair
from muxws_green.transports.memory import MemoryTransport, memory_pair

#: Never reached where the code is right, in seconds.
PATIENCE = 5.0


@dataclass(frozen=True)
class Ends:
    """A pair seen from the end under test."""

    near: Peer
    far: Peer
    near_transport: MemoryTransport
    far_transport: MemoryTransport

    def drop(self) -> None:
        """The connection dies without a close frame."""
        self.near_transport.drop()

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The frames that the near end has sent."""
        return [json.loads(message) for message in self.near_transport.sent]

    def sent_of(self, kind: str) -> list[dict[str, Any]]:
        """Those of one type."""
        return [frame for frame in self.sent if frame["type"] == kind]

    def inject(self, **fields: Any) -> None:
        """Let the near end receive a frame that no peer has sent."""
        self.near_transport.inject(json.dumps(fields))

    @property
    def far_id(self) -> int:
        """The first stream id of the far end's parity."""
        return 1 if self.far.is_dialer else 2


MakeEnds = Callable[..., Ends]


def make_ends(
    near: str, *, near_options: dict[str, Any] | None = None, far_options: Any = None, **options: Any
) -> Ends:
    """A pair; `near_options` and `far_options` are of one end alone, whichever role it has."""
    far = "acceptor" if near == "dialer" else "dialer"
    pair = peer_pair(**{near: near_options, far: far_options}, **options)
    both = [(pair.dialer, pair.dialer_transport), (pair.acceptor, pair.acceptor_transport)]
    if near == "acceptor":
        both.reverse()
    (near_peer, near_transport), (far_peer, far_transport) = both
    return Ends(near_peer, far_peer, near_transport, far_transport)


def echo(payload: Any, stream: Any) -> None:
    stream.reply(payload)


#: Those that some handler still stands at, and whose tests keep them.
_gates: WeakSet[Gate] = WeakSet()


def open_gates() -> None:
    """Let go of every handler that still stands still: one whose stream has ended normally is stopped by nobody."""
    for gate in list(_gates):
        gate.open.set()


class Gate:
    """A handler that stands still until it is let go, and tells what became of it."""

    def __init__(self) -> None:
        _gates.add(self)
        self.entered = Event()
        self.open = Event()
        self.ended = Event()
        self.stream: Any = None
        self.error: BaseException | None = None

    def __call__(self, payload: Any, stream: Any) -> None:
        self.stream = stream
        self.entered.set()
        try:
            self.open.wait()
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.ended.set()

    def reached(self) -> Any:
        """Wait until the handler runs; its stream."""
        assert self.entered.wait(PATIENCE), "the handler has not run"
        return self.stream


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> gevent.Greenlet[..., Any]:
    """Run it in a greenlet of its own whose value is what it returned or raised, whichever it was."""

    def run() -> Any:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            return error

    return gevent.spawn(run)


@implementer(IDialer)
class MemoryDialer:
    """Dials in memory; `accepted` is told of each far end before its connection is used.

    Args:
        options: Those of both ends.
        accepted: Called with the far peer.
    """

    def __init__(self, options: Options, accepted: Callable[[Peer], object] = lambda peer: None) -> None:
        self.options = options
        self.accepted = accepted
        #: The near and the far transport, and the far peer, of each socket so far.
        self.dials: list[tuple[MemoryTransport, MemoryTransport, Peer]] = []
        #: What the next dials raise; None: they succeed.
        self.error: Exception | None = None

    def dial(self) -> MemoryTransport:
        if self.error is not None:
            raise self.error
        near, far = memory_pair()
        peer = established_peer(far, self.options, dialer=False)
        self.dials.append((near, far, peer))
        self.accepted(peer)
        return near


def dialled(dialer: MemoryDialer, *, reconnect: Any = None, hello: Any = None, first_dial: str = "raise") -> Peer:
    """A peer that `dialer` dials, with its Supervisor started; established unless `first_dial` is `"retry"`."""
    peer = Peer(dialer.options, dialer=True)
    greeting = None if hello is None else Hello(dialer.options.codec.encode_payload(hello), None, 10.0)
    policy = Reconnect(jitter=0.0) if reconnect is None else reconnect
    peer._supervisor = Supervisor(peer, Plan(dialer.options, dialer, policy, greeting), first_dial=first_dial)
    peer._supervisor.start()
    if first_dial == "raise":
        peer._supervisor.wait_first()
    return peer
