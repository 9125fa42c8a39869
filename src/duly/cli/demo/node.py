"""One node of the demo: a process that runs until its standard input is closed.

It ends with the demo, however the demo ends. Its last line of output says what became of its runs.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec
from msgspec.structs import replace

from duly.cli.demo.jobs import exactly_once, opening, scheduler

FIRST = "first"


def main(url: str, node_id: str, *words: str) -> None:
    """Run a node on this store."""
    scheduler.configure(url, config=replace(scheduler.config, node_id=node_id))
    if url.startswith("sqlite:"):
        scheduler.add(exactly_once)
    if FIRST in words:
        scheduler.add(opening())
    sys.stdout.buffer.write(asyncio.run(_run()))


async def _run() -> bytes:
    await scheduler.start()
    await asyncio.to_thread(sys.stdin.buffer.read)
    return msgspec.json.encode(await scheduler.stop())


if __name__ == "__main__":
    main(*sys.argv[1:])
