"""C32: after an established connection the backoff is at its beginning again."""

from __future__ import annotations

import pytest

from muxws_green import Reconnect
from tests.seeds.scripted import drops_hello, polite, resets_hello

pytestmark = pytest.mark.case("C32")


@pytest.mark.parametrize("failing", [resets_hello, drops_hello])
@pytest.mark.parametrize("jitter", [0.0, 0.2])
def test_three_failures_a_good_connection_and_a_drop(clock, raw_server, dial, failing, jitter) -> None:
    server = raw_server(polite, failing, failing, failing, polite)
    peer = dial(server.url, hello=1, reconnect=Reconnect(initial_delay=1.0, jitter=jitter))
    server.wires[0].reset()
    clock.advance(30.0)
    assert len(server.wires) == 5
    assert peer.is_open
    lost = clock.now()
    server.last.reset()
    clock.advance(30.0)
    assert len(server.wires) == 6
    assert 1.0 - jitter <= server.dials[-1] - lost <= 1.0 + jitter
