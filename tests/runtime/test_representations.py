"""What objects look like in logs and debuggers."""

from __future__ import annotations

import re

from muxws_green.testing import settle
from tests.runtime.ends import Gate


def test_each_says_which_it_is_and_how_it_is(make) -> None:
    made = make()
    made.far.on_stream(Gate())
    peer, link, stream = made.near, made.near._link, made.near.open(1)
    assert repr(peer) == f"<Peer {peer.id} dialer open>"
    assert repr(made.far) == f"<Peer {made.far.id} acceptor open>"
    assert peer.id in repr(link)
    assert "open" in repr(link)
    assert repr(stream) == f"<Stream 1 open of {peer.id}>"
    assert re.fullmatch(rf'<OwnGreenlet "reader {peer.id}" at 0x[0-9a-f]+: read>', repr(link._reader))
    made.drop()
    settle()
    assert repr(peer) == f"<Peer {peer.id} dialer closed>"
    assert repr(peer.close_cause) in repr(link)
    assert repr(stream) == f"<Stream 1 closed of {peer.id}>"
