"""docs/testing.md shows the sample as it is, names every fixture and every switch, and what stands between runs."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

import gevent
import pytest

from muxws_green import Frame, IdleHeartbeat, JsonCodec, connect
from muxws_green.runtime.clock import GeventClock
from muxws_green.testing import FakeClock, Faults, LocalServer, Opcode, RawClient, RawServer, Relay, plugin
from muxws_green.transports.memory import memory_pair
from tests.docs.pages import page, rows
from tests.shared import ROOT

PAGE = page("testing")
SAMPLE = ROOT / "examples" / "testing_sample"
SHOWN = dict(
    re.findall(r"^`examples/testing_sample/(\w+\.py)`:\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
)
SNIPPETS = [
    textwrap.dedent(block)
    for block in re.findall(r"\n\n((?:(?:    .*)?\n)+)", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))
    if block.strip() and not block.lstrip().startswith("pytest ")
]


@pytest.fixture(autouse=True)
def _bounded():
    with gevent.Timeout(20, ref=False):
        yield


def snippet(start: str) -> str:
    (found,) = (text for text in SNIPPETS if start in text)
    return found


def handle(payload, stream) -> None:
    stream.reply(payload)


def names_of(cls: type) -> set[str]:
    return {name for name, member in vars(cls).items() if inspect.isfunction(member) and not name.startswith("_")}


def test_the_sample_is_shown_as_it_is() -> None:
    assert {path.name: path.read_text() for path in SAMPLE.glob("*.py")} == SHOWN


def test_every_fixture_is_there() -> None:
    fixtures = {name for name, value in vars(plugin).items() if type(value).__name__ == "FixtureFunctionDefinition"}
    assert {row[0].strip("`") for row in rows(PAGE, "## The pytest plugin")} == fixtures
    assert len(fixtures) == 5


def test_every_switch_is_there() -> None:
    told = {name for row in rows(PAGE, "## A bad network") for name in re.findall(r"`(\w+)\(", row[0])}
    assert told == names_of(Faults)


def test_every_call_of_a_relay_is_there() -> None:
    calls = rows(PAGE[PAGE.index("What becomes of connections:") - 1 :], "What becomes of connections:")
    told = {name for row in calls for name in re.findall(r"`relay\.(\w+)\(", row[0])}
    assert told == names_of(Relay) - {"close"}


def test_fake_time() -> None:
    exec(snippet("FakeClock()"), globals().copy())


def test_a_relay() -> None:
    with FakeClock() as clock, LocalServer(handle, clock=clock) as server:
        exec(snippet("with Relay"), {**globals(), "clock": clock, "server": server})


def test_a_script() -> None:
    names: dict[str, Any] = {**globals()}
    exec(snippet("def script"), names)
    with RawServer(names["script"]) as server, RawClient(server.url) as client:
        client.send(Frame("open", 1, payload="hello", end=True))
        client.expect("data", stream=1, end=True)
        client.expect("open", stream=2, payload="pushed")
        assert client.read_frame().payload == b'{"type":"data","stream":"two"}'
        frame = client.read_frame()
        assert (frame.opcode, frame.rsv) == (Opcode.TEXT, 4)
        client.send(Frame("ping", nonce="1"))
        client.send(Frame("goaway", code=3, last_stream=0))
        client.send_close(1002)
        client.shut_write()
        assert client.read_rest() == b"\x81\x03."


@pytest.mark.slow
def test_the_contract_suites() -> None:
    names = {
        **globals(),
        "MyCodec": JsonCodec,
        "MyPolicy": IdleHeartbeat,
        "MyClock": GeventClock,
        "make_pair": lambda: memory_pair(capacity_bytes=100_000),
    }
    exec(snippet("check_transport(make_pair)"), names)


def test_nothing_else_is_shown() -> None:
    assert len(SNIPPETS) == 4
    assert connect.__name__ in SNIPPETS[0]
