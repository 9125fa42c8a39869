"""Nothing is left behind: no descriptor, thread or task, however a scheduler is opened, started, stopped or dropped."""

import asyncio
import gc
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.conftest import eventually

from duly import Context, Scheduler, SchedulerConfig
from duly.errors import BackendError, ConfigurationError
from duly.model import State
from duly.testing import Harness


def held():
    """What this process has open: descriptors and threads."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def no_more_than(before, seconds=10.0):
    """Whether the process comes back to what it had; a thread that was told to end may take a moment."""
    deadline = time.monotonic() + seconds
    while True:
        now = held()
        clean = all(after <= earlier for after, earlier in zip(now, before, strict=True))
        if clean or time.monotonic() > deadline:
            return clean, (before, now)
        time.sleep(0.01)


def assert_nothing_left(before):
    clean, counts = no_more_than(before)
    assert clean, counts


def node_threads():
    """The threads that a node has besides those of its session, and what sessions write with."""
    names = ("duly-heartbeat", "duly-loop-watch", "duly-sqlite-writer")
    return sorted(thread.name for thread in threading.enumerate() if thread.name in names)


def make(url, **config):
    scheduler = Scheduler(url, SchedulerConfig(**config))

    @scheduler.job()
    async def add(a: int, b: int) -> int:
        return a + b

    return scheduler


async def submit(scheduler):
    return (await scheduler.submit("add", {"a": 1, "b": 2})).id


def test_loops_that_have_ended_leave_no_session_open(url):
    scheduler = make(url)
    asyncio.run(submit(scheduler))
    before = held()
    for _ in range(30):
        asyncio.run(submit(scheduler))
    assert_nothing_left(before)


def test_a_loop_that_was_only_closed_leaves_no_session_open(tmp_path, monkeypatch):
    """Without `asyncio.run` nobody is told that the loop ends: what is left over is found by itself."""
    monkeypatch.setattr("duly.backends.sqlite.threads._LOOK_UP", 0.05)
    scheduler = make(f"sqlite:///{tmp_path}/duly.db")
    asyncio.run(submit(scheduler))
    before = held()
    for _ in range(10):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(submit(scheduler))
        loop.close()
    asyncio.run(submit(scheduler))
    assert_nothing_left(before)


def test_blocks_clients_and_overrides_leave_nothing(url):
    scheduler = make(url)

    async def in_a_block():
        async with scheduler.client():
            await submit(scheduler)

    def overridden():
        with scheduler.override(url):
            asyncio.run(submit(scheduler))
            scheduler.sync.submit("add", {"a": 1, "b": 2})

    overridden()  # the thread of `.sync` stays
    before = held()
    for _ in range(5):
        asyncio.run(in_a_block())
        overridden()
    assert_nothing_left(before)


def test_configuring_again_closes_what_was_open(url):
    """A session may be opened before the one that it replaces is closed.

    SQLite then keeps the descriptor of the closed one for the next connection, because closing it would release the
    locks of the others: so there may be a few more, however often the scheduler is configured.
    """
    scheduler = make(url)
    scheduler.sync.submit("add", {"a": 1, "b": 2})
    descriptors, threads = held()
    for _ in range(20):
        scheduler.configure(config=SchedulerConfig(max_concurrent=3))
        scheduler.sync.submit("add", {"a": 1, "b": 2})
    assert_nothing_left((descriptors + 3, threads))


def test_harnesses_leave_nothing():
    scheduler = make("memory://")
    before = held()
    for _ in range(5):
        with Harness(scheduler) as harness:
            harness.sync.run(lambda: scheduler.submit("add", {"a": 1, "b": 2}))
            assert len(harness.sync.drain()) == 1
    assert_nothing_left(before)


def test_starts_and_stops_leave_nothing(url):
    scheduler = make(url)

    async def life():
        tasks = asyncio.all_tasks()
        async with scheduler:
            run = await scheduler.submit("add", {"a": 1, "b": 2})
            assert await run.result(timeout=30) == 3
        assert asyncio.all_tasks() == tasks

    asyncio.run(life())
    before = held()
    for _ in range(5):
        asyncio.run(life())
    assert_nothing_left(before)


# --- starts that do not come to their end


def test_a_refused_start_leaves_nothing(url):
    scheduler = make(url)

    @scheduler.job(delivery="exactly_once")
    async def never(ctx: Context) -> None: ...

    @scheduler.job(selector={"gpu": "yes"})
    async def nowhere() -> None: ...

    async def refused():
        tasks = asyncio.all_tasks()
        with pytest.raises(ConfigurationError):
            await scheduler.start()
        assert not scheduler.is_running
        assert asyncio.all_tasks() == tasks

    asyncio.run(refused())
    before = held()
    for _ in range(10):
        asyncio.run(refused())

    async def many_in_one_loop():
        await refused()
        before = held()
        for _ in range(10):
            await refused()
        assert_nothing_left(before)

    asyncio.run(many_in_one_loop())
    assert_nothing_left(before)


async def test_concurrent_starts_make_one_node(url):
    scheduler = make(url)
    await asyncio.gather(*(scheduler.start() for _ in range(5)))
    try:
        assert len(await scheduler.nodes()) == 1
        assert sum(thread.name == "duly-heartbeat" for thread in threading.enumerate()) <= 1
    finally:
        await scheduler.stop()
    async with scheduler.client():
        assert await scheduler.nodes() == []


def test_starts_from_two_loops_make_one_node(tmp_path):
    scheduler = make(f"sqlite:///{tmp_path}/duly.db")
    barrier, outcomes = threading.Barrier(2), []

    async def both():
        return len(outcomes) >= 2

    async def start():
        await asyncio.to_thread(barrier.wait)
        try:
            await scheduler.start()
        except Exception as exc:  # noqa: BLE001  # looked at below
            outcomes.append(type(exc).__name__)
            return
        outcomes.append("started")
        await eventually(both, "the other one has come back")
        outcomes.append(len(await scheduler.nodes()))
        await scheduler.stop()

    threads = [threading.Thread(target=lambda: asyncio.run(start())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, outcomes)) in (["1", "SchedulerRunning", "started"], ["1", "1", "started", "started"])


@asynccontextmanager
async def slow_announcements(monkeypatch, scheduler):
    """Lets a start get stuck right before it would have come to its end."""
    stuck = asyncio.Event()
    client = await scheduler.opened()
    announce = client.backend.coordinator.announce

    async def wait(*args, **kwargs):
        await announce(*args, **kwargs)
        stuck.set()
        await asyncio.sleep(3600)

    with monkeypatch.context() as patch:
        patch.setattr(client.backend.coordinator, "announce", wait)
        yield stuck


async def test_a_cancelled_start_leaves_nothing_behind(url, monkeypatch):
    scheduler = make(url)
    async with scheduler.client():
        tasks = asyncio.all_tasks()
        threads = node_threads()
        async with slow_announcements(monkeypatch, scheduler) as stuck:
            starting = asyncio.create_task(scheduler.start())
            await stuck.wait()
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
        assert not scheduler.is_running
        assert asyncio.all_tasks() == tasks
        assert node_threads() == threads
        assert await scheduler.nodes() == []
        run = await scheduler.submit("add", {"a": 1, "b": 2})
        await asyncio.sleep(0.1)
        assert (await run.get()).state is State.QUEUED
        await scheduler.start()
        assert await run.result(timeout=30) == 3
        await scheduler.stop()


@pytest.mark.parametrize("when", ["at once", "later"])
async def test_a_start_cancelled_at_any_step_leaves_nothing_behind(tmp_path, when):
    """After a number of turns of the loop that differs from time to time: whatever step that is."""
    scheduler = make(f"sqlite:///{tmp_path}/duly.db")
    async with scheduler.client():
        for turns in range(40):
            threads, tasks = node_threads(), asyncio.all_tasks()
            starting = asyncio.create_task(scheduler.start())
            for _ in range(turns):
                await asyncio.sleep(0 if when == "at once" else 0.002)
            starting.cancel()
            await asyncio.wait([starting])
            if starting.cancelled():
                assert not scheduler.is_running
                assert asyncio.all_tasks() == tasks
            else:
                await scheduler.stop()
            assert node_threads() == threads
        assert await scheduler.nodes() == []


async def test_a_failed_heartbeat_session_is_told_as_it_is(tmp_path, monkeypatch):
    scheduler = make(f"sqlite:///{tmp_path}/duly.db")
    client = await scheduler.opened()
    session = client.backend.session

    def broken(timeout=None):
        made = session(timeout)

        async def refuse():
            raise BackendError("no more connections")

        made.open = refuse
        return made

    monkeypatch.setattr(client.backend, "session", broken)
    threads = node_threads()
    with pytest.raises(BackendError, match="no more connections"):
        await scheduler.start()
    assert not scheduler.is_running
    assert node_threads() == threads


# --- nodes whose loop ends without a stop


def test_a_loop_that_ends_without_a_stop_takes_its_node_along(url):
    scheduler = make(url, lock_ttl=0.6)

    async def forgets_to_stop():
        await scheduler.start()
        assert scheduler.is_running

    async def submitted():
        run = await scheduler.submit("add", {"a": 1, "b": 2})
        return run.id

    asyncio.run(submitted())
    before = held()
    for _ in range(3):
        asyncio.run(forgets_to_stop())
        assert not scheduler.is_running
    assert_nothing_left(before)

    async def again():
        async with scheduler:
            return await (await scheduler.submit("add", {"a": 2, "b": 2})).result(timeout=30)

    assert asyncio.run(again()) == 4


def test_the_claims_of_a_loop_that_ended_are_not_renewed(tmp_path):
    scheduler = make(f"sqlite:///{tmp_path}/duly.db", lock_ttl=0.6, node_id="first")

    @scheduler.job()
    async def long() -> str:
        if scheduler.config.node_id == "first":
            await asyncio.sleep(3600)
        return "done"

    async def forgets_to_stop():
        await scheduler.start()
        run = await long.submit()

        async def began():
            return (await run.get()).state is State.RUNNING

        await eventually(began, "it runs")
        return run.id

    async def wait_for(run_id):
        async with scheduler:
            run = await scheduler.get_run(run_id)
            while not run.final:
                await asyncio.sleep(0.02)
                run = await scheduler.get_run(run_id)
            return run.state

    loop = asyncio.new_event_loop()
    run_id = loop.run_until_complete(forgets_to_stop())
    loop.close()
    scheduler.configure(config=SchedulerConfig(lock_ttl=0.6, node_id="second"))
    assert asyncio.run(asyncio.wait_for(wait_for(run_id), 30)) is State.COMPLETED
