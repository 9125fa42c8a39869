"""A node with a handler that ends its process: `python -m tests.hostile.poison_node URL NAME FOLDER INNOCENT`."""

import asyncio
import os
import sys
from pathlib import Path

from duly import Context, Scheduler, SchedulerConfig

url, name, folder, innocents = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
config = SchedulerConfig(node_id=name, lock_ttl=2.0, leader_ttl=1.0, max_concurrent=innocents + 1)
scheduler = Scheduler(url, config)
running: set[str] = set()


@scheduler.job(retry=None)
async def innocent(ctx: Context) -> str:
    running.add(ctx.run_id)
    await asyncio.sleep(0.1 if (folder / "crowded").exists() else 3600)
    running.discard(ctx.run_id)
    return name


@scheduler.job(retry=None)
async def poison(ctx: Context) -> None:
    """The first time it waits until all others run beside it."""
    while len(running) < innocents and not (folder / "crowded").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    (folder / "crowded").touch()
    (folder / f"killed-{name}").write_text(str(len(running)))
    os._exit(1)


if __name__ == "__main__":
    scheduler.run_forever(log_level="ERROR")
