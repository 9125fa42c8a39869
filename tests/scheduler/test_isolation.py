"""What one run leaves behind and another does not see: context variables, background tasks, a blocked loop."""

import asyncio
import contextvars
import sqlite3
import threading
import time

import pytest

from duly import Context, Scheduler, SchedulerConfig
from duly.model.event import LoopStalled, ServiceFailed

tenant = contextvars.ContextVar("tenant", default="nobody")


@pytest.mark.parametrize("sort", ["async", "sync"])
async def test_every_attempt_has_context_variables_of_its_own(url, sort):
    scheduler = Scheduler(url, SchedulerConfig(max_concurrent=1))

    @scheduler.job()
    async def visit(name: str) -> str:
        before = tenant.get()
        tenant.set(name)
        return before

    @scheduler.job()
    def visit_sync(name: str) -> str:
        before = tenant.get()
        tenant.set(name)
        return before

    handle = visit if sort == "async" else visit_sync
    async with scheduler:
        seen = [await (await handle.submit(name)).result(timeout=30) for name in ("ada", "bob", "eve")]
    assert seen == ["nobody"] * 3
    assert tenant.get() == "nobody"


async def test_a_task_that_a_handler_leaves_behind_goes_on_by_itself(url):
    scheduler = Scheduler(url)
    go_on, kept, done = asyncio.Event(), [], []

    async def later(run_id):
        await go_on.wait()
        done.append(run_id)

    @scheduler.job()
    async def starter(ctx: Context) -> str:
        kept.append(asyncio.create_task(later(ctx.run_id)))
        return "started"

    async with scheduler:
        run = await starter.submit()
        assert await run.result(timeout=30) == "started"
        assert done == []
        go_on.set()
        await asyncio.wait(kept, timeout=30)
    assert done == [run.id]


async def test_a_task_left_behind_that_fails_is_not_felt_by_the_node(url):
    scheduler = Scheduler(url)
    events, kept = [], []
    scheduler.subscribe(events.append, ServiceFailed)

    async def broken():
        raise LookupError("nobody waits for me")

    @scheduler.job()
    async def starter() -> str:
        kept.append(asyncio.create_task(broken()))
        return "started"

    async with scheduler:
        for _ in range(3):
            assert await (await starter.submit()).result(timeout=30) == "started"
    assert events == []
    assert [str(task.exception()) for task in kept] == ["nobody waits for me"] * 3


async def test_a_handler_that_cancels_its_own_task_later_hurts_only_itself(url):
    """The task is the attempt's: what a handler schedules against it must not reach what follows."""
    scheduler = Scheduler(url)

    @scheduler.job(retry=None)
    async def rash() -> str:
        asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)
        return "done"

    @scheduler.job()
    async def polite() -> str:
        return "still here"

    async with scheduler:
        assert await (await rash.submit()).result(timeout=30) == "done"
        assert await (await polite.submit()).result(timeout=30) == "still here"


async def test_a_blocked_loop_is_told_and_loses_no_lease(tmp_path):
    path = tmp_path / "duly.db"
    scheduler = Scheduler(f"sqlite:///{path}", SchedulerConfig(lock_ttl=0.6))
    stalls, stalled, attempts = [], threading.Event(), []

    def hear(event):
        stalls.append(event)
        stalled.set()

    scheduler.subscribe(hear, LoopStalled)

    def lease():
        own = sqlite3.connect(path)
        try:
            [(expires_at,)] = own.execute("SELECT expires_at FROM duly_claims").fetchall()
            return expires_at
        finally:
            own.close()

    @scheduler.job()
    async def blocking(ctx: Context) -> bool:
        attempts.append(ctx.attempt)
        first, deadline = lease(), time.monotonic() + 30
        assert stalled.wait(30)
        while lease() - first < 1_500_000 and time.monotonic() < deadline:  # twice the lease and more, in microseconds
            threading.Event().wait(0.01)
        return lease() > first

    async with scheduler:
        assert await (await blocking.submit()).result(timeout=60) is True
    assert attempts == [1]
    assert "blocking" in stalls[0].stack
