"""A node of the campaigns, as a process of its own: `python -m tests.faults.node URL NAMESPACE NAME FOLDER OFF ROLES`.

Its wall clock is wrong by OFF seconds. Handlers write down when they begin, by the machine's clock, which is that of
the store.
"""

import asyncio
import sys
import time
from pathlib import Path

from duly import Context, Every, Scheduler, SchedulerConfig
from duly.model import shift
from duly.ports import SystemClock

LEASE = 3.0
LONG = 9.0


class Off(SystemClock):
    """A wall clock that is wrong."""

    def __init__(self, off: float) -> None:
        self.off = off

    def now(self):
        return shift(super().now(), self.off)


def make(url: str, namespace: str, name: str | None, folder: Path, off: float = 0.0, roles: str = "scheduler,worker"):
    config = SchedulerConfig(
        node_id=name,
        namespace=namespace,
        lock_ttl=LEASE,
        leader_ttl=2.0,
        roles=tuple(roles.split(",")),
        max_concurrent=30,
        accept_data_loss=True,
        shutdown_timeout=1.0,
    )
    scheduler = Scheduler(url, config, clock=Off(off))

    def began(ctx: Context) -> None:
        now = time.time()
        (folder / f"{ctx.job}-{ctx.run_id}-{ctx.fence}").write_text(f"{ctx.due.timestamp()} {now}")

    async def long(ctx: Context) -> None:
        began(ctx)
        await asyncio.sleep(LONG)

    for delivery in ("at_least_once", "at_most_once"):
        scheduler.job(name=delivery, delivery=delivery, timeout=None)(long)

    @scheduler.job(Every(seconds=1), overlap="allow", misfire="skip")
    async def beat(ctx: Context) -> None:
        began(ctx)

    @scheduler.job
    async def mail(ctx: Context) -> None:
        began(ctx)

    return scheduler


if __name__ == "__main__":
    url, namespace, name, folder, off, roles = sys.argv[1:]
    make(url, namespace, name, Path(folder), float(off), roles).run_forever(log_level="WARNING")
