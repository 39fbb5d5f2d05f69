"""The code in docs/messaging.md is that of the programs under `examples/`, which run."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from muxws_green.messaging import MessagePeer
from tests.shared import ROOT

TEXT = (ROOT / "docs" / "messaging.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
FRAMES = [json.loads(frame) for frame in re.findall(r"^ {4}(\{.*?\})$", TEXT.replace(",\n     ", ", "), re.MULTILINE)]


def plain(code: str) -> str:
    """Its lines without indentation and without empty ones: a part of a program stands by itself on the page."""
    return "".join(f"{line.strip()}\n" for line in code.splitlines() if line.strip())


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_code_is_of_a_program(number: int) -> None:
    programs = [path.read_text() for path in sorted((ROOT / "examples").glob("*.py"))]
    assert any(plain(BLOCKS[number]) in plain(program) for program in programs)


def test_there_is_code_for_every_part() -> None:
    assert len(BLOCKS) == 4


def test_the_frames_that_are_shown(clock, service, raw_client) -> None:
    def setup(peer: MessagePeer) -> None:
        if not methods:
            methods.append("add")
            peer.on("add", lambda message: message.body["a"] + message.body["b"])

    methods: list[Any] = []
    call, answer, error = FRAMES
    server = service(setup)
    for expected in (answer, error):
        wire = raw_client(server.url)
        wire.write(**{"kind" if name == "type" else name: value for name, value in call.items()})
        clock.settle()
        assert [frame for _, frame in wire.log] == [expected]
