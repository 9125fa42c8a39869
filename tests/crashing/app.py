"""A program whose processes are killed. Its handlers note when they begin, and where.

`CRASH_FOLDER` is the folder of the notes. A note is a line in the file `begun`: run, fence, process, time.
"""

import asyncio
import os
import time
from pathlib import Path

from duly import Command, Context, Job, Scheduler, SchedulerConfig

FOLDER = Path(os.environ.get("CRASH_FOLDER", "."))
LOCK_TTL = 30.0  # far longer than any test waits: what comes back earlier was given back

scheduler = Scheduler(
    config=SchedulerConfig(
        lock_ttl=LOCK_TTL,
        leader_ttl=3.0,
        max_concurrent=64,  # so that one node can take over all runs of another
        shutdown_timeout=5.0,
        allow_commands=True,
        accept_data_loss=True,
        on_failure=lambda run, job, exc: note("hooks", run.id, os.getpid()),
    )
)


def note(name: str, *words: object) -> None:
    """Append a line; one write is whole, whoever else writes."""
    descriptor = os.open(FOLDER / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())
    finally:
        os.close(descriptor)


def began(ctx: Context) -> None:
    note("begun", ctx.run_id, ctx.fence, os.getpid(), time.time())


async def exists(name: str) -> None:
    while not (FOLDER / name).exists():  # noqa: ASYNC110  # another process creates it
        await asyncio.sleep(0.01)


@scheduler.job(priority=9)  # a backlog of quick runs comes after it: that would be measured instead
async def hold(ctx: Context, until: str) -> int:
    """Goes on until a file exists."""
    began(ctx)
    await exists(until)
    return os.getpid()


@scheduler.job(delivery="at_most_once")
async def hold_once(ctx: Context, until: str) -> int:
    began(ctx)
    await exists(until)
    return os.getpid()


@scheduler.job
async def quick(ctx: Context) -> None:
    began(ctx)
    await asyncio.sleep(0.002)


@scheduler.job(retry=0)
async def crash(ctx: Context) -> None:
    """Ends its process, as a fault in an extension does."""
    began(ctx)
    os._exit(139)


# Holds a lock for as long as it runs: a second one that begins before the first is dead says so.
LOCKED = """
exec 9>"$CRASH_FOLDER/lock"
flock -n 9 || { echo overlap >> "$CRASH_FOLDER/overlaps"; exit 0; }
echo "$DULY_RUN_ID $DULY_FENCE $$ 0" >> "$CRASH_FOLDER/begun"
while [ ! -e "$CRASH_FOLDER/enough" ]; do sleep 0.05; done
"""
scheduler.add(Job(handler=Command(["sh", "-c", LOCKED], env={"CRASH_FOLDER": str(FOLDER)}), name="locked"))
