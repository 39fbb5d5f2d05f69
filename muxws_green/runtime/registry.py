"""`PeerRegistry`: finds live peers by their tags, and tells many of them one thing (PROTOCOL §10)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from zope.interface import implementer

from muxws_green.errors import ConnectionGoingAway, ConnectionLost
from muxws_green.interfaces import IRegistry
from muxws_green.runtime.peer import Peer

logger = logging.getLogger("muxws.registry")


@dataclass(frozen=True)
class Notified:
    """What became of a `notify_all`.

    Args:
        queued: Peers for which the payload was queued.
        skipped: Peers that had no room for it.
        closed: Peers that could not be sent to: lost meanwhile, between sockets, or going away.
    """

    queued: int
    skipped: int
    closed: int


@implementer(IRegistry)
class PeerRegistry:
    """Live peers by tag. Peers leave by themselves at every loss; a dialer registers again from `on_reconnect`.

    It indexes the tags as they are when `register` is called and does not watch the dict.
    """

    def __init__(self) -> None:
        self._groups: dict[Peer, tuple[_Group, ...]] = {}
        self._index: dict[_Group, _Group] = {}
        # Each peer keeps it, and all of them the same object. It does not refer to the registry, which refers to it.
        self._forget = partial(_forget, self._groups, self._index)

    def __len__(self) -> int:
        """How many peers are registered."""
        return len(self._groups)

    def register(self, peer: Peer) -> None:
        """Index `peer` by every hashable tag that it has now, in place of what was known of it.

        A peer that is not open is not registered.
        """
        self.deregister(peer)
        if not peer.is_open:
            return
        groups: list[_Group] = []
        try:
            for name, value in (peer._tags or {}).items():
                asked = _group(name, value)
                if asked is not None:
                    groups.append(self._index.setdefault(asked, asked))
        except BaseException:
            # A value that cannot be compared: the peer is not registered by half.
            _drop_empty(self._index, groups)
            raise
        self._groups[peer] = tuple(groups)
        for group in groups:
            group.peers[peer] = None
        peer._on_loss(self._forget)

    def deregister(self, peer: Peer) -> None:
        """Forget `peer`; nothing where it is unknown."""
        self._forget(peer)

    @contextmanager
    def registered(self, peer: Peer) -> Iterator[Peer]:
        """Have `peer` registered inside a `with`."""
        self.register(peer)
        try:
            yield peer
        finally:
            self.deregister(peer)

    def peers_for(self, **tags: Any) -> list[Peer]:
        """The live registered peers that have all these tags, in the order of their registration.

        Args:
            tags: Names and values; none: all registered peers. A value that cannot be hashed matches nobody.
        """
        if not tags:
            return [peer for peer in self._groups if peer.is_open]
        groups: list[Mapping[Peer, None]] = []
        for name, value in tags.items():
            asked = _group(name, value)
            group = None if asked is None else self._index.get(asked)
            if group is None:
                return []
            groups.append(group.peers)
        smallest = min(groups, key=len)
        return [peer for peer in smallest if peer.is_open and all(peer in group for group in groups)]

    def notify_all(self, payload: Any, headers: Mapping[str, Any] | None = None, **tags: Any) -> Notified:
        """`notify` every peer that matches, encoding the payload once for each codec in use, and wait for none of them.

        Args:
            payload: Whatever the codecs can encode.
            headers: Metadata with str keys.
            tags: As in `peers_for`.

        Returns:
            How many peers it was queued for, and how many were skipped or closed.

        Raises:
            TypeError, ValueError: A codec cannot encode the payload; nobody was sent anything.
        """
        peers = self.peers_for(**tags)
        encoded: dict[int, str | bytes] = {}
        for peer in peers:
            codec = peer._options.codec
            if id(codec) not in encoded:
                encoded[id(codec)] = codec.encode_payload(payload)
        queued = skipped = closed = 0
        for peer in peers:
            try:
                peer._notify_encoded(encoded[id(peer._options.codec)], payload, headers)
            except BlockingIOError:
                skipped += 1
            except (ConnectionLost, ConnectionGoingAway):
                closed += 1
            except Exception:
                # An interceptor of that peer's raised; the others are not held up by it.
                logger.exception("muxws conn=%s notify_all failed for this peer", peer.id)
                skipped += 1
            else:
                queued += 1
        return Notified(queued, skipped, closed)


class _Group:
    """The peers that have one tag. It is hashed once, as the application's objects may change, or raise, later."""

    __slots__ = ("_hash", "_tag", "peers")

    def __init__(self, name: str, value: Any) -> None:
        self._tag = (name, value)
        self._hash = hash(self._tag)
        self.peers: dict[Peer, None] = {}

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Group) and self._tag == other._tag


def _forget(groups_of: dict[Peer, tuple[_Group, ...]], index: dict[_Group, _Group], peer: Peer) -> None:
    groups = groups_of.pop(peer, ())
    for group in groups:
        group.peers.pop(peer, None)
    _drop_empty(index, groups)


def _drop_empty(index: dict[_Group, _Group], groups: Iterable[_Group]) -> None:
    for group in groups:
        if not group.peers:
            index.pop(group, None)


def _group(name: str, value: Any) -> _Group | None:
    """An empty group for a tag; None where the value cannot be hashed."""
    try:
        return _Group(name, value)
    except Exception:  # a TypeError, or whatever an object of the application's raises
        return None
