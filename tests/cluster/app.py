"""The program of the cluster tests: started several times on one store, it writes down what its handlers do."""

import os
import sys
import time
from pathlib import Path

from duly import Context, Every, RetryPolicy, Scheduler, SchedulerConfig

FOLDER = Path(os.environ["CLUSTER_FOLDER"])
NODE = os.environ["CLUSTER_NODE"]
URL = os.environ["CLUSTER_URL"]

scheduler = Scheduler(
    URL,
    SchedulerConfig(
        node_id=NODE,
        lock_ttl=1.5,
        leader_ttl=1.0,
        tick_interval=1.0,
        shutdown_timeout=20,
        max_concurrent=4,
        accept_data_loss="CLUSTER_MAY_LOSE" in os.environ,
        placement=os.environ["CLUSTER_PLACEMENT"],
    ),
    queue=os.environ.get("CLUSTER_QUEUE"),
    coordinator=os.environ.get("CLUSTER_COORDINATOR"),
)


def note(*words: object) -> None:
    """Append one line; short appends of several processes do not mix."""
    line = " ".join(map(str, words)) + "\n"
    fd = os.open(FOLDER / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


@scheduler.job(Every(milliseconds=200), overlap="allow")
async def beat(ctx: Context) -> None:
    note("beat", ctx.due.timestamp(), NODE)


@scheduler.job(retry=RetryPolicy.fixed(1, 0.01))
def slow(ctx: Context, name: str) -> str:
    """Waits until a file says that it may go on."""
    note("begin", name, NODE, ctx.attempt, ctx.fence)
    while not (FOLDER / f"go-{name}").exists():
        time.sleep(0.01)
    note("end", name, NODE)
    return NODE


@scheduler.job(delivery="at_most_once")
def once(ctx: Context, name: str) -> str:
    note("begin", name, NODE, ctx.attempt, ctx.fence)
    while not (FOLDER / f"go-{name}").exists():
        time.sleep(0.01)
    return NODE


@scheduler.job()
async def count(number: int) -> int:
    note("count", number)
    return number


if URL.startswith("sqlite:"):  # where there are transactions

    @scheduler.job(delivery="exactly_once", retry=RetryPolicy.fixed(50, 0.01))
    async def pay(ctx: Context, number: int) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("CREATE TABLE IF NOT EXISTS payments (number INTEGER, fence INTEGER)")
            await tx.execute("INSERT INTO payments VALUES (?, ?)", (number, ctx.fence))


if URL.startswith("postgresql:"):  # the table is the test's

    @scheduler.job(delivery="exactly_once", retry=RetryPolicy.fixed(50, 0.01))
    async def charge(ctx: Context, number: int) -> None:
        note("charge", number)
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO charges (number, fence) VALUES ($1, $2)", (number, ctx.fence))


if __name__ == "__main__":
    scheduler.run_forever(log_level="INFO")
    sys.exit(0)
