"""A server of bare frames that tells what happens: `python -m tests.processes.raw_server PORT MODE`.

It writes one JSON object a line to its standard output: its port first, then each dial with its time, and each hello
with its bytes. MODE is `greets` (acknowledges, answers calls and pings) or `first-only` (so for the first connection;
on later ones it reads and says nothing).
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import gevent

from muxws_green.runtime.clock import default_clock
from tests.seeds.scripted import RawServer, Wire


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def greets(wire: Wire) -> None:
    say(dial=time.monotonic())
    hello = wire.greet()
    say(hello=wire.texts[0].decode(), payload=hello["payload"])
    wire.serve()


def says_nothing(wire: Wire) -> None:
    say(dial=time.monotonic())
    wire.read()
    say(hello=wire.texts[0].decode())
    wire.listen()


def main(port: str, mode: str) -> None:
    scripts = [greets] if mode == "greets" else [greets, says_nothing]
    server = RawServer(default_clock, *scripts, port=int(port))
    say(port=server.port)
    gevent.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
