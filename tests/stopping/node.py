"""A node with handlers that do not mind being told to stop, as a process of its own.

`python -m tests.stopping.node URL NAME FOLDER SHUTDOWN_TIMEOUT LOCK_TTL`. Each handler leaves a file when it begins.
"""

import asyncio
import sys
import time
from pathlib import Path

from duly import Command, Context, Job, Scheduler, SchedulerConfig

SLOTS = 16
ENDLESS = """
folder=$(echo "$DULY_PAYLOAD" | sed 's/.*:"//; s/"}//')
trap '' TERM
touch "$folder/$DULY_RUN_ID-$DULY_FENCE"
while :; do sleep 1; done
"""


def began(folder, ctx):
    (Path(folder) / f"{ctx.run_id}-{ctx.fence}").touch()


async def stubborn(ctx: Context, folder: str) -> None:
    """Swallows every cancellation."""
    began(folder, ctx)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


def endless(ctx: Context, folder: str) -> None:
    """A thread that never looks up."""
    began(folder, ctx)
    while True:
        time.sleep(0.05)


def polite(ctx: Context, folder: str) -> str:
    """A thread that stops when it is told."""
    began(folder, ctx)
    while True:
        time.sleep(0.01)
        ctx.check()


async def patient(ctx: Context, folder: str) -> None:
    """Lets itself be cancelled."""
    began(folder, ctx)
    await asyncio.sleep(3600)


async def in_a_pool(ctx: Context, folder: str) -> None:
    """Waits for a thread of asyncio's own pool, which keeps an interpreter from exiting."""
    began(folder, ctx)
    await asyncio.to_thread(time.sleep, 3600)


async def blocking(ctx: Context, folder: str) -> None:
    """Blocks the event loop."""
    began(folder, ctx)
    time.sleep(3600)  # noqa: ASYNC251  # that is the point


async def hooked(ctx: Context, folder: str) -> None:
    """Fails, and its hook hangs."""
    began(folder, ctx)
    raise ValueError("now the hook is asked")


async def quick(ctx: Context, folder: str) -> None:
    """Ends by itself, after a moment."""
    await asyncio.sleep(0.002)


def endless_process(ctx: Context, folder: str) -> None:
    """A process that never looks up."""
    began(folder, ctx)
    while True:
        time.sleep(0.05)


async def hangs(run, job, exc):
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


def hangs_in_a_thread(run, job, exc):
    time.sleep(3600)


HANDLERS = (stubborn, endless, polite, patient, in_a_pool, blocking, quick)


def make(url, name, shutdown_timeout, lock_ttl):
    config = SchedulerConfig(
        node_id=name,
        lock_ttl=lock_ttl,
        leader_ttl=2.0,
        max_concurrent=SLOTS,
        shutdown_timeout=shutdown_timeout,
        allow_commands=True,
        accept_data_loss=True,
    )
    scheduler = Scheduler(url, config)
    for handler in HANDLERS:
        scheduler.add(Job(handler=handler))
    scheduler.add(Job(handler=hooked, retry=1, on_error=hangs))
    scheduler.add(Job(handler=hooked, name="hooked_in_a_thread", retry=1, on_error=hangs_in_a_thread))
    scheduler.add(Job(handler=patient, name="patient_once", delivery="at_most_once"))
    scheduler.add(Job(handler=endless, name="endless_once", delivery="at_most_once"))
    scheduler.add(Job(handler=endless_process, executor="process"))
    scheduler.add(Job(handler=Command(["sh", "-c", ENDLESS]), name="command"))
    return scheduler


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2], float(sys.argv[4]), float(sys.argv[5])).run_forever(log_level="INFO")
