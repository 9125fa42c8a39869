"""Sync handlers in threads: reuse, leaving behind, context variables, and what cannot be carried."""

import asyncio
import contextvars
import threading
from datetime import UTC, datetime

import pytest

from duly.model import Claim, Run
from duly.rules.retry import RetryPolicy
from duly.runtime.active_runs import ActiveRun
from duly.runtime.executors import ThreadExecutor
from duly.runtime.handler import ExecutorKind, Handler

NOW = datetime(2027, 1, 1, tzinfo=UTC)
variable = contextvars.ContextVar("variable", default="unset")


def live_of(target):
    handler = Handler("h", target, ExecutorKind.THREAD, False, lambda _: {}, lambda _: b"", RetryPolicy())
    return ActiveRun(Claim(Run("0a", "h", "h", NOW, NOW), 1, NOW), handler, 0.0, 1.0)


class Contexts:
    """What an executor is given; nobody takes a context here."""

    def begin(self, live):
        live.begin(0.0)


async def invoke(executor, target):
    live = live_of(target)
    return await executor.invoke(live, live.handler, Contexts(), {})


async def test_a_value_and_an_exception_come_back():
    executor = ThreadExecutor()

    def broken():
        raise LookupError("here")

    assert await invoke(executor, lambda: 42) == 42
    with pytest.raises(LookupError, match="here"):
        await invoke(executor, broken)
    await executor.close()


async def test_an_idle_thread_is_used_again():
    executor = ThreadExecutor()
    names = set()
    for _ in range(20):
        names.add(await invoke(executor, lambda: threading.current_thread().name))
    assert len(names) == 1
    await executor.close()


async def test_as_many_threads_as_calls_at_a_time():
    executor = ThreadExecutor()
    barrier = threading.Barrier(8)
    calls = [asyncio.create_task(invoke(executor, lambda: barrier.wait(30))) for _ in range(8)]
    assert sorted(await asyncio.gather(*calls)) == list(range(8))
    await executor.close()


async def test_threads_see_the_context_variables_of_the_attempt():
    executor = ThreadExecutor()
    variable.set("set")
    assert await invoke(executor, variable.get) == "set"
    await executor.close()


async def test_a_thread_that_is_left_behind_tells_when_it_ends():
    executor = ThreadExecutor()
    let_go = threading.Event()
    live = live_of(lambda: let_go.wait(30))
    call = asyncio.create_task(executor.invoke(live, live.handler, Contexts(), {}))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert live.residue is not None
    assert not live.residue.done()
    let_go.set()
    await asyncio.wait_for(live.residue, 30)
    await executor.close()


async def test_stop_iteration_is_carried_as_an_error():
    executor = ThreadExecutor()

    def stop():
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        await invoke(executor, stop)
    await executor.close()
