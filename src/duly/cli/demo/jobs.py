"""The jobs of `duly demo`: a small shop, written as users write their jobs.

The demo runs two nodes of them. They can also be run with `duly run duly.cli.demo.jobs`.
"""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime, timedelta

from duly import Command, Context, Cron, Every, GiveUp, Job, Once, RetryPolicy, Scheduler, SchedulerConfig

# Claims are short, so that the runs of a node that was killed start again after three seconds instead of fifteen.
# Progress is sent with the heartbeat; commands must be allowed.
config = SchedulerConfig(
    allow_commands=True,
    max_concurrent=20,
    lock_ttl=3.0,
    lock_refresh_interval=0.5,
    shutdown_timeout=10.0,
    publish_events=True,
)
scheduler = Scheduler(config=config)


@scheduler.job(Cron("*/2 * * * * *"), tags=["stock"])
async def watch_the_shelves() -> int:
    """Run at every even second: cron with a field for seconds."""
    return random.randint(80, 120)


@scheduler.job(Every(seconds=3), retry=RetryPolicy.exponential(3, 0.3))
async def fetch_exchange_rates(ctx: Context) -> float:
    """Call a service that answers only the third attempt."""
    if ctx.attempt < 3:
        raise ConnectionError("the bank hung up")
    return round(random.uniform(1.05, 1.15), 4)


@scheduler.job(Every(seconds=10), timeout=30)
async def pack_the_parcels(ctx: Context) -> int:
    """Take a few seconds, and report progress."""
    parcels = 8
    for packed in range(parcels):
        ctx.check()
        ctx.progress(packed, parcels, f"parcel {packed + 1}")
        await asyncio.sleep(0.5)
    return parcels


@scheduler.job(Every(seconds=1), overlap="skip", tags=["stock"])
async def count_the_stock() -> int:
    """Take longer than the interval: runs that are due in between are recorded as skipped."""
    await asyncio.sleep(2.3)
    return random.randint(1000, 2000)


@scheduler.job(Every(seconds=3), tags=["stock"])
def print_the_labels() -> int:
    """An ordinary function: it runs in a thread and does not block others."""
    time.sleep(0.4)
    return random.randint(1, 9)


@scheduler.job(Every(seconds=6), retry=RetryPolicy.fixed(1, 0.5))
async def fax_the_supplier(ctx: Context) -> None:
    """Fail after one retry (see `duly runs --state failed` and `duly redrive`)."""
    if ctx.attempt > 1:
        raise GiveUp("nobody has a fax any more")
    raise TimeoutError("no answer")


@scheduler.job(queue="vans")
async def drive_a_van(ctx: Context, van: int) -> str:
    """Take a few seconds, on any node. If the node is killed, another one starts it again."""
    stops = 10
    for stop in range(stops):
        ctx.progress(stop, stops, f"van {van}")
        await asyncio.sleep(0.5)
    return f"van {van} is back"


@scheduler.job(Every(seconds=7))
async def load_the_vans() -> None:
    """Submit four runs at once."""
    await drive_a_van.submit_many([{"van": van} for van in range(1, 5)])


@scheduler.job(queue="orders")
async def handle_an_order(number: int, express: bool = False) -> str:
    """Run when submitted: it has no schedule."""
    await asyncio.sleep(0.05 if express else 0.3)
    return f"order {number} is on its way"


@scheduler.job(Every(milliseconds=700))
async def let_customers_in() -> None:
    """Submit orders; express orders have priority 9."""
    for _ in range(random.randint(0, 3)):
        express = random.random() < 0.3
        order = handle_an_order.options(priority=9 if express else 0)
        await order.submit(number=random.randint(100, 999), express=express)


scheduler.add(Job(name="ask_the_system", handler=Command(["uptime"]), schedule=Every(seconds=5)))


async def open_the_shop() -> str:
    """Run once."""
    return "good morning"


def opening() -> Job:
    """Runs once, in a moment. The first node of the demo adds it: each process would compute another time."""
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    return Job(handler=open_the_shop, schedule=Once(soon))


async def book_the_sales(ctx: Context) -> None:
    """Write to your own table exactly once, in the transaction that completes the run."""
    async with ctx.transaction() as tx:
        await tx.execute("CREATE TABLE IF NOT EXISTS demo_sales (run TEXT PRIMARY KEY, amount INTEGER NOT NULL)")
        await tx.execute("INSERT INTO demo_sales VALUES (?, ?)", (ctx.run_id, random.randint(5, 500)))


# The demo adds it if the store has transactions. In your program you know the store, and decorate the function.
exactly_once = Job(handler=book_the_sales, schedule=Every(seconds=4), delivery="exactly_once")
