"""The life of a scheduler: client mode, starting, stopping, other loops, threads and forks."""

import asyncio
import os
import threading

import pytest

from duly import Context, Every, Job, Scheduler, SchedulerConfig, State
from duly.errors import BackendError, DulyError, LockUnavailable
from duly.model.event import NodeStarted, NodeStopped


def make(url, **config):
    scheduler = Scheduler(url, SchedulerConfig(**config))

    @scheduler.job()
    async def add(a: int, b: int) -> int:
        return a + b

    return scheduler


async def test_a_closed_scheduler_opens_as_a_client_and_runs_nothing(url):
    scheduler = make(url)
    run = await scheduler.submit("add", {"a": 1, "b": 2})
    assert not scheduler.is_running
    assert (await run.get()).state is State.QUEUED
    assert (await scheduler.health()).status == "healthy"
    assert await scheduler.nodes() == []
    await scheduler.close()
    assert (await scheduler.health()).status == "closed"


async def test_a_client_block_closes_what_it_opened(url):
    scheduler = make(url)
    async with scheduler.client() as client:
        assert client is scheduler
        await scheduler.submit("add", {"a": 1, "b": 2})
    assert (await scheduler.health()).status == "closed"


async def test_starting_and_stopping_twice_does_no_harm(url):
    scheduler = make(url)
    await scheduler.start()
    await scheduler.start()
    assert scheduler.is_running
    health = await scheduler.health()
    assert (health.running, health.slots, health.store) == (True, 10, "reachable")
    await scheduler.stop()
    await scheduler.stop()
    assert not scheduler.is_running


async def test_a_scheduler_can_be_started_again(url):
    scheduler = make(url)
    for n in range(3):
        async with scheduler:
            run = await scheduler.submit("add", {"a": n, "b": 1})
            assert await run.result(timeout=30) == n + 1


async def test_wait_returns_when_somebody_stops_it():
    scheduler = make("memory://")
    await scheduler.start()
    waiting = asyncio.create_task(scheduler.wait())
    await scheduler.stop()
    await asyncio.wait_for(waiting, 30)


async def test_a_graceful_stop_lets_handlers_finish(url):
    scheduler = make(url)
    started, let_go = asyncio.Event(), asyncio.Event()

    @scheduler.job()
    async def slow() -> str:
        started.set()
        await let_go.wait()
        return "finished"

    await scheduler.start()
    run = await slow.submit()
    await started.wait()
    stopping = asyncio.create_task(scheduler.stop())
    await asyncio.sleep(0)
    let_go.set()
    report = await stopping
    assert (report.drained, report.released) == (1, 0)
    assert (await run.get()).state is State.COMPLETED
    await scheduler.close()


async def test_what_does_not_finish_in_time_is_given_back_uncounted(url):
    scheduler = make(url)
    started = asyncio.Event()

    @scheduler.job()
    async def endless(ctx: Context) -> int:
        started.set()
        await asyncio.sleep(3600)
        return ctx.attempt

    await scheduler.start()
    run = await endless.submit()
    await started.wait()
    report = await scheduler.stop(timeout=0)
    assert (report.drained, report.released) == (0, 1)
    stored = await run.get()
    assert (stored.state, stored.failures, stored.losses) == (State.QUEUED, 0, 0)
    assert [attempt.outcome.value for attempt in await scheduler.attempts(run.id)] == ["interrupted"]
    await scheduler.close()


async def test_a_hurried_stop_does_not_wait_for_handlers():
    scheduler = make("memory://")
    started = asyncio.Event()

    @scheduler.job()
    async def endless() -> None:
        started.set()
        await asyncio.sleep(3600)

    await scheduler.start()
    await endless.submit()
    await started.wait()
    stopping = asyncio.create_task(scheduler.stop(timeout=3600))
    await asyncio.sleep(0)
    scheduler.hurry()
    assert (await asyncio.wait_for(stopping, 30)).released == 1


async def test_an_interrupted_at_most_once_run_is_lost():
    scheduler = make("memory://")
    started = asyncio.Event()

    @scheduler.job(delivery="at_most_once")
    async def once() -> None:
        started.set()
        await asyncio.sleep(3600)

    await scheduler.start()
    run = await once.submit()
    await started.wait()
    await scheduler.stop(timeout=0)
    assert (await run.get()).state is State.LOST


async def test_the_sync_form_works_from_threads_while_a_node_runs(url):
    scheduler = make(url)

    @scheduler.job()
    def outer(n: int) -> int:
        return scheduler.sync.submit("add", {"a": n, "b": 1}).result(timeout=30)

    async with scheduler:
        assert await (await outer.submit(41)).result(timeout=30) == 42


def test_the_sync_form_works_without_any_event_loop(url):
    scheduler = make(url)
    scheduler.sync.start()
    try:
        run = scheduler.sync.submit("add", {"a": 2, "b": 3})
        assert run.result(timeout=30) == 5
        assert run.get().state is State.COMPLETED
        assert [view.name for view in scheduler.sync.jobs()] == ["add"]
        assert len(scheduler.sync.runs("add").runs) == 1
        scheduler.sync.pause("add")
        assert scheduler.sync.get_job("add").status.value == "paused"
        scheduler.sync.resume("add")
    finally:
        scheduler.sync.stop()


async def test_the_sync_form_refuses_where_a_loop_runs():
    scheduler = make("memory://")
    with pytest.raises(DulyError, match=r"await ….submit\(\)"):
        scheduler.sync.submit("add", {"a": 1, "b": 1})


def test_every_event_loop_has_its_own_client(tmp_path):
    scheduler = make(f"sqlite:///{tmp_path}/duly.db")
    ids = [asyncio.run(_submit(scheduler)) for _ in range(3)]

    def in_thread():
        ids.append(asyncio.run(_submit(scheduler)))

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert len({run.id for run in asyncio.run(_all(scheduler))}) == len(set(ids)) == 4


async def _submit(scheduler):
    return (await scheduler.submit("add", {"a": 1, "b": 2})).id


async def _all(scheduler):
    return (await scheduler.runs()).runs


def test_a_forked_process_opens_afresh(tmp_path):
    scheduler = make(f"sqlite:///{tmp_path}/duly.db")
    scheduler.sync.submit("add", {"a": 1, "b": 2})
    child = os.fork()
    if child == 0:
        try:
            scheduler.sync.submit("add", {"a": 3, "b": 4})
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(scheduler.sync.runs().runs) == 2


def test_overriding_is_for_the_block_only():
    scheduler = make("memory://elsewhere")
    with scheduler.override("memory://"):
        scheduler.sync.submit("add", {"a": 1, "b": 2})
        assert len(scheduler.sync.runs().runs) == 1
    assert scheduler.sync.runs().runs == []


async def test_a_store_is_bound_later_by_configure():
    scheduler = Scheduler()
    scheduler.configure("memory://", config=SchedulerConfig(max_concurrent=3))
    async with scheduler:
        assert (await scheduler.health()).slots == 3


async def test_the_address_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("DULY_URL", "memory://from-env")
    async with Scheduler().client() as scheduler:
        await scheduler.submit("x")
    assert not (tmp_path / "duly.db").exists()
    monkeypatch.delenv("DULY_URL")
    monkeypatch.chdir(tmp_path)
    async with Scheduler().client() as scheduler:
        await scheduler.submit("x")
    assert (tmp_path / "duly.db").exists()


async def test_events_can_be_subscribed_to():
    scheduler = make("memory://")
    events = []
    stop = scheduler.subscribe(events.append, NodeStarted, NodeStopped)
    async with scheduler:
        pass
    stop()
    async with scheduler:
        pass
    assert [type(event) for event in events] == [NodeStarted, NodeStopped]


async def test_a_subscriber_that_fails_is_not_felt(caplog):
    scheduler = make("memory://")

    def bad(event):
        raise ValueError("bad subscriber")

    scheduler.subscribe(bad)
    async with scheduler:
        run = await scheduler.submit("add", {"a": 1, "b": 2})
        assert await run.result(timeout=30) == 3
    assert "a subscriber failed" in caplog.text


async def test_locks_exclude_each_other_and_their_fences_grow(url):
    scheduler = make(url)
    async with scheduler.client():
        async with scheduler.lock("till", ttl=30) as first:
            assert first.held
            first.check()
            with pytest.raises(LockUnavailable, match="'lock:till'"):
                async with scheduler.lock("till"):
                    pass
            async with scheduler.lock("other") as other:
                assert other.held
        async with scheduler.lock("till") as second:
            assert second.fence > first.fence


async def test_a_lock_is_waited_for():
    scheduler = make("memory://")
    held, order = asyncio.Event(), []

    async def holder():
        async with scheduler.lock("till"):
            held.set()
            order.append("first")
            await asyncio.sleep(0.02)

    async def waiter():
        await held.wait()
        async with scheduler.lock("till", wait=30):
            order.append("second")

    await asyncio.gather(holder(), waiter())
    assert order == ["first", "second"]


async def test_registering_and_removing_while_running(url):
    scheduler = make(url)

    async def extra(n: int = 1) -> int:
        return n

    async with scheduler:
        await scheduler.register(Job(handler=extra))
        assert await (await scheduler.submit("extra", {"n": 7})).result(timeout=30) == 7
        await scheduler.register(Job(handler=extra, schedule=Every(hours=1), queue="other"))
        assert (await scheduler.get_job("extra")).queue == "other"
        await scheduler.remove("extra")
        assert [view.name for view in await scheduler.jobs()] == ["add"]


async def test_an_unusable_store_is_told_at_start(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    scheduler = make(f"sqlite:///{tmp_path}/file/duly.db")
    with pytest.raises(BackendError, match="file"):
        await scheduler.start()
    assert not scheduler.is_running
