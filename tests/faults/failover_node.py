"""A node of the failover campaign, as a process: `python -m tests.faults.failover_node URL NAMESPACE NAME FOLDER`.

Each start of a handler is appended to a file before anything else happens, without the help of Duly.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

from duly import Context, Scheduler, SchedulerConfig

LEASE = 9.0
TIMEOUT = 3.0
STARTS = "starts"


def make(url: str, namespace: str, name: str | None, folder: Path) -> Scheduler:
    config = SchedulerConfig(
        node_id=name,
        namespace=namespace,
        lock_ttl=LEASE,
        leader_ttl=3.0,
        max_concurrent=20,
        accept_data_loss=True,  # without replicas=, a start may be lost: the campaign counts what comes of it
        shutdown_timeout=1.0,
    )
    mark = "&" if "?" in url else "?"
    scheduler = Scheduler(f"{url}{mark}timeout={TIMEOUT:g}", config)

    def began(ctx: Context, number: int) -> None:
        line = f"{ctx.job} {number} {ctx.run_id} {ctx.fence} {time.time()}\n"
        file = os.open(folder / STARTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    @scheduler.job
    async def work(ctx: Context, number: int) -> None:
        began(ctx, number)
        await asyncio.sleep(0.02)

    @scheduler.job(delivery="at_most_once")
    async def once(ctx: Context, number: int) -> None:
        began(ctx, number)
        await asyncio.sleep(0.02)

    return scheduler


if __name__ == "__main__":
    url, namespace, name, folder = sys.argv[1:]
    make(url, namespace, name, Path(folder)).run_forever(log_level="WARNING")
