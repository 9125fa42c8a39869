"""The program of a rolling deploy: started with the code of any version, it is a node or a client of one store.

`rolling_app.py node` runs until it is stopped. `rolling_app.py client` answers calls of the test: a line of JSON on
standard input, a line on standard output. Only what every version has may be used here.
"""

import asyncio
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from duly import Context, Every, RetryPolicy, Scheduler, SchedulerConfig
from duly.scheduler.audit import Audit

FOLDER = Path(os.environ["ROLLING_FOLDER"])
NODE = os.environ.get("ROLLING_NODE")

scheduler = Scheduler(
    os.environ["ROLLING_URL"],
    SchedulerConfig(
        namespace=os.environ["ROLLING_NAMESPACE"],
        node_id=NODE,
        roles=os.environ["ROLLING_ROLES"].split(),
        queues=os.environ["ROLLING_QUEUES"].split(),
        lock_ttl=3.0,
        leader_ttl=2.0,
        tick_interval=1.0,
        shutdown_timeout=20,
        max_concurrent=8,
    ),
)


def note(*words: object) -> None:
    """Append one line; short appends of several processes do not mix."""
    line = " ".join(map(str, words)) + "\n"
    fd = os.open(FOLDER / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


@scheduler.job(Every(milliseconds=100), overlap="allow", queue="ticks")
async def tick(ctx: Context) -> None:
    note("done", ctx.run_id, ctx.fence, NODE)


@scheduler.job(Every(milliseconds=400), overlap="skip")
async def solo(ctx: Context) -> None:
    """Takes longer than its period now and then, so that instants are skipped."""
    note("begin", ctx.run_id, ctx.fence, NODE)
    await asyncio.sleep(0.6 if round(ctx.due.timestamp() / 0.4) % 4 == 0 else 0.01)
    note("done", ctx.run_id, ctx.fence, NODE)


@scheduler.job(Every(milliseconds=400), overlap="queue")
async def turns(ctx: Context) -> None:
    """The same, but those that come too early wait."""
    note("begin", ctx.run_id, ctx.fence, NODE)
    await asyncio.sleep(0.6 if round(ctx.due.timestamp() / 0.4) % 4 == 0 else 0.01)
    note("done", ctx.run_id, ctx.fence, NODE)


@scheduler.job()
async def count(ctx: Context, number: int) -> int:
    note("done", ctx.run_id, ctx.fence, NODE)
    return number


@scheduler.job(retry=RetryPolicy.fixed(3, 0.05))
async def flaky(ctx: Context, number: int) -> int:
    if ctx.attempt == 1:
        raise ValueError("the first attempt fails")
    note("done", ctx.run_id, ctx.fence, NODE)
    return number


@scheduler.job()
def slow(ctx: Context, name: str) -> str | None:
    """Waits until a file says that it may go on."""
    note("begin", ctx.run_id, ctx.fence, NODE)
    while not (FOLDER / f"go-{name}").exists():
        time.sleep(0.01)
    note("done", ctx.run_id, ctx.fence, NODE)
    return NODE


# --- the client


async def submit(handler: str, payload: dict[str, object], **options: object) -> str:
    return (await scheduler.submit(handler, payload, **options)).id


async def submit_many(handler: str, payloads: list[dict[str, object]]) -> list[str]:
    return [run.id for run in await scheduler.submit_many(handler, payloads)]


async def cancel(run_id: str) -> str:
    return (await scheduler.cancel(run_id)).value


async def nodes() -> list[str]:
    return [node.id for node in await scheduler.nodes()]


async def leader() -> str | None:
    return (await scheduler.health()).leader


async def states(run_ids: list[str]) -> list[str]:
    return [(await scheduler.get_run(run_id)).state.value for run_id in run_ids]


async def planned(job: str, since: float) -> list[tuple[str, str]]:
    """Id and state of the runs of a job that were planned after an instant, the earliest due first."""
    runs = [run for run in (await scheduler.runs(job)).runs if run.created_at.timestamp() > since]
    return [(run.id, run.state.value) for run in sorted(runs, key=lambda run: run.due)]


async def record(target: str) -> int:
    """Write into the audit log."""
    return await Audit((await scheduler.opened()).backend.store).record("test", "note", target, datetime.now(UTC))


CALLS = {call.__name__: call for call in (submit, submit_many, cancel, nodes, leader, states, planned, record)}


def answer(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def answer_calls() -> None:
    async with scheduler.client():
        answer("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, args, options = json.loads(line)
            answer(await CALLS[name](*args, **options))


if __name__ == "__main__":
    if sys.argv[1] == "client":
        asyncio.run(answer_calls())
    else:
        scheduler.run_forever(log_level="INFO")
