"""Executing: retries, timeouts, hooks, threads, cancellation, results and history, as a user sees them."""

import asyncio
import threading

import pytest
from tests.conftest import eventually

from duly import Context, GiveUp, Retry, RetryPolicy, RunFailed, Scheduler, SchedulerConfig, State
from duly.errors import ClaimLost, RunCancelled
from duly.model import OutcomeKind
from duly.model.event import Event, HookFailed, SlotLeaked

FAST = RetryPolicy.fixed(3, 0.01)


async def outcomes(scheduler, run):
    return [attempt.outcome for attempt in await scheduler.attempts(run.id)]


async def test_a_flaky_handler_is_retried_until_it_succeeds(url):
    scheduler = Scheduler(url)
    tries = []

    @scheduler.job(retry=FAST)
    async def flaky(ctx: Context) -> int:
        tries.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ConnectionError("not yet")
        return ctx.attempt

    async with scheduler:
        run = await flaky.submit()
        assert await run.result(timeout=30) == 3
        assert await outcomes(scheduler, run) == [OutcomeKind.FAILED, OutcomeKind.FAILED, OutcomeKind.SUCCEEDED]
    assert tries == [1, 2, 3]


async def test_max_retries_of_three_are_four_attempts(url):
    scheduler = Scheduler(url)
    tries = []

    @scheduler.job(retry=FAST)
    def broken() -> None:
        tries.append(1)
        raise ValueError

    async with scheduler:
        run = await broken.submit()
        with pytest.raises(RunFailed, match="after 4 attempts"):
            await run.result(timeout=30)
    assert len(tries) == 4


async def test_exceptions_decide_by_class_and_handlers_by_themselves(url):
    scheduler = Scheduler(url)
    tries = {}

    @scheduler.job(retry=RetryPolicy.fixed(2, 0.01, retry_on=(OSError,), give_up_on=(PermissionError,)))
    async def picky(kind: str) -> None:
        tries[kind] = tries.get(kind, 0) + 1
        match kind:
            case "os":
                raise ConnectionResetError
            case "permission":
                raise PermissionError
            case "value":
                raise ValueError
            case "give up":
                raise GiveUp("no such user")
            case "retry":
                raise Retry(after=0)

    async with scheduler:
        for kind, expected in (("os", 3), ("permission", 1), ("value", 1), ("give up", 1), ("retry", 3)):
            with pytest.raises(RunFailed) as caught:
                await (await picky.submit(kind)).result(timeout=30)
            assert tries[kind] == expected, kind
            if kind == "give up":
                assert (caught.value.error_type, caught.value.message) == ("GiveUp", "no such user")


@pytest.mark.parametrize("sort", ["async", "sync"])
async def test_hooks_see_errors_and_may_decide(url, sort):
    seen = []

    def decide(run, job, exc):
        seen.append((job.name, type(exc).__name__, run.attempt))
        return {1: Retry(after=0), 2: GiveUp("enough")}[run.attempt]

    async def decide_later(run, job, exc):
        return decide(run, job, exc)

    scheduler = Scheduler(url)

    @scheduler.job(retry=RetryPolicy.fixed(5, 60), on_error=decide if sort == "sync" else decide_later)
    async def broken() -> None:
        raise ValueError

    async with scheduler:
        with pytest.raises(RunFailed):
            await (await broken.submit()).result(timeout=30)
    assert seen == [("broken", "ValueError", 1), ("broken", "ValueError", 2)]


async def test_a_global_hook_is_asked_after_the_jobs_own():
    asked = []
    scheduler = Scheduler("memory://", SchedulerConfig(on_error=lambda run, job, exc: asked.append("global")))

    @scheduler.job(retry=None, on_error=lambda run, job, exc: asked.append("own"))
    async def silent() -> None:
        raise ValueError

    @scheduler.job(retry=FAST, on_error=lambda run, job, exc: GiveUp())
    async def decided() -> None:
        raise ValueError

    async with scheduler:
        with pytest.raises(RunFailed):
            await (await silent.submit()).result(timeout=30)
        assert asked == ["own", "global"]
        with pytest.raises(RunFailed):
            await (await decided.submit()).result(timeout=30)
    assert asked == ["own", "global"]


async def test_a_failing_hook_is_an_event_not_a_crash(url):
    events: list[Event] = []
    scheduler = Scheduler(url)
    scheduler.subscribe(events.append, HookFailed)

    def bad(run, job, exc):
        raise KeyError("hook")

    @scheduler.job(retry=RetryPolicy.fixed(1, 0.01), on_error=bad, on_failure=bad)
    async def broken() -> None:
        raise ValueError

    async with scheduler:
        run = await broken.submit()
        with pytest.raises(RunFailed, match="ValueError"):
            await run.result(timeout=30)
    assert [event.hook for event in events] == ["on_error", "on_error", "on_failure"]
    assert events[0].failure.type == "KeyError"


async def test_on_failure_is_called_once_when_the_run_has_failed(url):
    told = []

    async def on_failure(run, job, exc):
        told.append((run.state, run.failures, job.name, type(exc).__name__))

    scheduler = Scheduler(url, SchedulerConfig(on_failure=on_failure))

    @scheduler.job(retry=FAST)
    async def broken() -> None:
        raise ValueError

    async with scheduler:
        with pytest.raises(RunFailed):
            await (await broken.submit()).result(timeout=30)
    assert told == [(State.FAILED, 4, "broken", "ValueError")]


async def test_an_async_handler_is_cancelled_at_its_timeout(url):
    scheduler = Scheduler(url)
    cleaned_up = asyncio.Event()

    @scheduler.job(timeout=0.02, retry=None)
    async def slow() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned_up.set()

    async with scheduler:
        run = await slow.submit()
        with pytest.raises(RunFailed, match=r"timeout of 0\.02 s") as caught:
            await run.result(timeout=30)
        assert caught.value.error_type == "TimeoutError"
        assert await outcomes(scheduler, run) == [OutcomeKind.TIMED_OUT]
    assert cleaned_up.is_set()


async def test_timeouts_are_retried(url):
    scheduler = Scheduler(url)

    @scheduler.job(timeout=0.02, retry=FAST)
    async def slow_at_first(ctx: Context) -> int:
        if ctx.attempt < 3:
            await asyncio.sleep(3600)
        return ctx.attempt

    async with scheduler:
        assert await (await slow_at_first.submit()).result(timeout=30) == 3


async def test_a_handler_that_swallows_its_cancellation_has_still_timed_out():
    scheduler = Scheduler("memory://")

    @scheduler.job(timeout=0.02, retry=None)
    async def stubborn() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "never mind"

    async with scheduler:
        with pytest.raises(RunFailed, match="timeout"):
            await (await stubborn.submit()).result(timeout=30)


async def test_a_thread_that_outlives_its_timeout_keeps_its_slot(url):
    events = []
    scheduler = Scheduler(url, SchedulerConfig(max_concurrent=1))
    scheduler.subscribe(events.append, SlotLeaked)
    let_go = threading.Event()
    told = threading.Event()

    @scheduler.job(timeout=0.02, retry=None)
    def hang(ctx: Context) -> None:
        let_go.wait(30)
        if ctx.cancelled:
            told.set()

    @scheduler.job()
    async def quick() -> str:
        return "done"

    async with scheduler:
        run = await hang.submit()
        with pytest.raises(RunFailed, match="timeout"):
            await run.result(timeout=30)
        assert [event.job for event in events] == ["hang"]
        waiting = await quick.submit()
        with pytest.raises(TimeoutError):
            await waiting.result(timeout=0.1)
        let_go.set()
        assert await waiting.result(timeout=30) == "done"
    assert told.is_set()


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
@pytest.mark.parametrize("sort", ["async", "thread"])
async def test_whatever_a_handler_raises_the_worker_lives_on(raised, sort):
    scheduler = Scheduler("memory://")

    @scheduler.job(name="rude", retry=None)
    async def rude_async() -> None:
        raise raised

    @scheduler.job(name="rude_thread", retry=None)
    def rude_thread() -> None:
        raise raised

    @scheduler.job()
    async def polite() -> str:
        return "still here"

    async with scheduler:
        run = await (rude_async if sort == "async" else rude_thread).submit()
        with pytest.raises(RunFailed, match=type(raised).__name__):
            await run.result(timeout=30)
        assert await (await polite.submit()).result(timeout=30) == "still here"


async def test_recursion_and_exceptions_without_text_are_failures_like_others():
    scheduler = Scheduler("memory://")

    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    @scheduler.job(retry=None)
    async def deep() -> None:
        def down():
            down()

        down()

    @scheduler.job(retry=None)
    async def mute() -> None:
        raise Mute

    async with scheduler:
        with pytest.raises(RunFailed, match="RecursionError"):
            await (await deep.submit()).result(timeout=30)
        with pytest.raises(RunFailed, match="whose text raised RuntimeError"):
            await (await mute.submit()).result(timeout=30)


async def test_a_running_run_is_cancelled_on_request(url):
    scheduler = Scheduler(url)
    started = asyncio.Event()

    @scheduler.job()
    async def long() -> None:
        started.set()
        await asyncio.sleep(3600)

    async with scheduler:
        run = await long.submit()
        await started.wait()
        await scheduler.cancel(run.id, "by ada")
        with pytest.raises(RunCancelled, match="by ada"):
            await run.result(timeout=30)
        assert await outcomes(scheduler, run) == [OutcomeKind.CANCELLED]


async def test_a_thread_is_told_of_its_cancellation(url):
    scheduler = Scheduler(url)
    started = threading.Event()

    @scheduler.job()
    def long(ctx: Context) -> None:
        started.set()
        while True:
            ctx.check()
            threading.Event().wait(0.005)

    async with scheduler:
        run = await long.submit()
        await asyncio.to_thread(started.wait, 30)
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=30)


async def test_a_failed_run_is_redriven_with_its_history(url):
    scheduler = Scheduler(url)
    broken = True

    @scheduler.job(retry=None)
    async def fragile() -> str:
        if broken:
            raise ValueError("broken")
        return "mended"

    async with scheduler:
        run = await fragile.submit()
        with pytest.raises(RunFailed):
            await run.result(timeout=30)
        broken = False
        again = await scheduler.redrive(run.id)
        assert again.id == run.id
        assert await again.result(timeout=30) == "mended"
        assert await outcomes(scheduler, run) == [OutcomeKind.FAILED, OutcomeKind.SUCCEEDED]
        with pytest.raises(ValueError, match="completed"):
            await scheduler.redrive(run.id)


async def test_progress_travels_with_the_heartbeat(url):
    scheduler = Scheduler(url, SchedulerConfig(lock_ttl=0.3))
    go_on = asyncio.Event()

    @scheduler.job()
    async def counting(ctx: Context) -> None:
        ctx.progress(3, 10, "rows")
        await go_on.wait()

    async with scheduler:
        run = await counting.submit()
        progress = await eventually(lambda: _progress(run))
        assert (progress.done, progress.total, progress.note) == (3, 10, "rows")
        go_on.set()
        await run.result(timeout=30)


async def _progress(run):
    return (await run.get()).progress


async def test_more_urgent_work_goes_first():
    scheduler = Scheduler("memory://", SchedulerConfig(max_concurrent=1))
    order = []

    @scheduler.job()
    async def note(n: int) -> None:
        order.append(n)

    runs = [await note.options(priority=priority).submit(priority) for priority in (0, 9, 5, 7, 1)]
    async with scheduler:
        for run in runs:
            await run.result(timeout=30)
    assert order == [9, 7, 5, 1, 0]


async def test_a_node_works_on_its_queues_only(url):
    scheduler = Scheduler(url, SchedulerConfig(queues=("mail",)))

    @scheduler.job(queue="mail")
    async def mine() -> str:
        return "mine"

    @scheduler.job(queue="other")
    async def foreign() -> None: ...

    async with scheduler:
        other = await foreign.submit()
        assert await (await mine.submit()).result(timeout=30) == "mine"
        assert (await other.get()).state is State.QUEUED


async def test_weighted_queues_are_all_served():
    scheduler = Scheduler("memory://", SchedulerConfig(queues={"a": 1, "b": 9}))

    @scheduler.job()
    async def note(n: int) -> int:
        return n

    async with scheduler:
        runs = [await note.options(queue="ab"[n % 2]).submit(n) for n in range(40)]
        assert [await run.result(timeout=30) for run in runs] == list(range(40))


async def test_a_transaction_outside_of_exactly_once_is_refused():
    scheduler = Scheduler("memory://")

    @scheduler.job(retry=None)
    async def pay(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    async with scheduler:
        with pytest.raises(RunFailed, match="delivery='exactly_once'"):
            await (await pay.submit()).result(timeout=30)


async def test_an_unknown_handler_waits_and_is_reported(url):
    scheduler = Scheduler(url)

    @scheduler.job()
    async def known() -> str:
        return "ok"

    async with scheduler:
        stranger = await scheduler.submit("stranger")
        assert await (await known.submit()).result(timeout=30) == "ok"
        run = await eventually(lambda: _held(stranger))
        assert run.hold == "handler:stranger"


async def _held(handle):
    run = await handle.get()
    return run if run.hold else None


def test_claim_lost_is_a_duly_error():
    assert ClaimLost.__mro__[1].__name__ == "DulyError"
