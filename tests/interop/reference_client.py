"""A reference dialer: `python -m tests.interop.reference_client <codec>`; obeys, and the first command is to dial."""

from __future__ import annotations

import asyncio
import sys

import muxws

from tests.interop.reference import Worker, obey


async def main(codec: str) -> None:
    muxws.settings.codec = codec
    worker = Worker()
    await obey(worker)
    if worker.peer is not None and worker.peer.is_open:
        await worker.peer.close(drain=0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
