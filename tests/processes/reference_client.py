"""The reference's dialer: `python -m tests.processes.reference_client URL`.

Connects with a hello and says what happens to it: connected, closed, reconnected, and each time what a call brought.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import muxws


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


async def main(url: str) -> None:
    peer = await muxws.connect(
        url,
        hello={"agent": 7},
        hello_headers={"kind": "reference"},
        reconnect=muxws.Reconnect(initial_delay=0.05, max_delay=0.2),
    )
    back: asyncio.Queue[int] = asyncio.Queue()
    peer.on_close(lambda reason: say(closed=reason.code, will_retry=reason.will_retry))
    peer.on_reconnect(lambda attempt, peer: back.put_nowait(attempt))
    say(connected=await peer.request("first"))
    while True:
        attempt = await back.get()
        say(reconnected=attempt, answer=await peer.request(f"call {attempt}"))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
