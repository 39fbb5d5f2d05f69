"""C31: a server that accepts and drops is not hammered: only an acknowledged hello sets the backoff back."""

from __future__ import annotations

import pytest

from muxws_green import Reconnect
from tests.seeds.scripted import Wire, polite

pytestmark = pytest.mark.case("C31")


def drops_at_once(wire: Wire) -> None:
    wire.reset()


def drops_after_the_hello(wire: Wire) -> None:
    wire.read()
    wire.reset()


def drops_after_talking(wire: Wire) -> None:
    """It says all sorts of things, only not the one that counts."""
    wire.read()
    wire.write("ping", nonce="n")
    wire.write("open", stream=2, payload="push", end=True)
    wire.write("data", stream=1, payload="welcome")
    while wire.read()["type"] != "pong":
        pass
    wire.close(1001)


@pytest.mark.parametrize("script", [drops_at_once, drops_after_the_hello, drops_after_talking])
@pytest.mark.parametrize("factor", [2.0, 3.0])
def test_gaps_grow_by_the_factor(clock, raw_server, dial, script, factor) -> None:
    server = raw_server(polite, *[script] * 6, polite)
    dial(
        server.url,
        hello=1,
        reconnect=Reconnect(initial_delay=0.5, factor=factor, max_delay=1_000.0, jitter=0.0),
        on_stream=lambda payload, stream: None,
    )
    server.wires[0].reset()
    clock.advance(1_000.0)
    assert server.gaps == [0.5 * factor**n for n in range(7)]
