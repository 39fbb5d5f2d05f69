"""`PeerRegistry`: finds live peers by their tags, and tells many of them one thing (PROTOCOL §10)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from zope.interface import implementer

from muxws_green.errors import ConnectionGoingAway, ConnectionLost
from muxws_green.interfaces import ICodec, IRegistry
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
        self._tags: dict[Peer, dict[str, Any]] = {}
        self._index: dict[tuple[str, Any], dict[Peer, None]] = {}

    def __len__(self) -> int:
        """How many peers are registered."""
        return len(self._tags)

    def register(self, peer: Peer) -> None:
        """Index `peer` by every hashable tag that it has now, in place of what was known of it.

        A peer that is not open is not registered.
        """
        self.deregister(peer)
        if not peer.is_open:
            return
        tags = {name: value for name, value in peer.tags.items() if _is_hashable(value)}
        self._tags[peer] = tags
        for entry in tags.items():
            self._index.setdefault(entry, {})[peer] = None
        peer._on_loss(self.deregister)

    def deregister(self, peer: Peer) -> None:
        """Forget `peer`; nothing where it is unknown."""
        tags = self._tags.pop(peer, None)
        if tags is None:
            return
        for entry in tags.items():
            peers = self._index[entry]
            peers.pop(peer, None)
            if not peers:
                del self._index[entry]

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
            return [peer for peer in self._tags if peer.is_open]
        groups: list[Mapping[Peer, None]] = []
        for entry in tags.items():
            if not _is_hashable(entry[1]) or entry not in self._index:
                return []
            groups.append(self._index[entry])
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
        encoded: dict[ICodec, str | bytes] = {}
        for peer in peers:
            codec = peer._options.codec
            if codec not in encoded:
                encoded[codec] = codec.encode_payload(payload)
        queued = skipped = closed = 0
        for peer in peers:
            try:
                peer._notify_encoded(encoded[peer._options.codec], payload, headers)
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


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
