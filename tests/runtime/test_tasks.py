"""How the worker makes its tasks."""

import asyncio
import sys

from duly.runtime.tasks import task_starter


async def test_a_task_has_a_name_and_runs_to_its_end():
    async def work() -> None:
        await asyncio.sleep(0)

    task = task_starter(asyncio.get_running_loop())(work(), name="a run")
    assert task.get_name() == "a run"
    await task
    assert task in asyncio.all_tasks() or task.done()


async def test_a_task_begins_at_once_where_python_can_do_that():
    begun: list[bool] = []

    async def work() -> None:
        begun.append(True)
        await asyncio.sleep(0)

    task = task_starter(asyncio.get_running_loop())(work(), name="a run")
    assert bool(begun) is (sys.version_info >= (3, 12))
    await task


async def test_a_task_factory_is_respected():
    made: list[str] = []

    def factory(loop, coroutine, **kwargs):
        made.append("task")
        return asyncio.Task(coroutine, loop=loop, **kwargs)

    async def work() -> None: ...

    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)
    try:
        await task_starter(loop)(work(), name="a run")
    finally:
        loop.set_task_factory(None)
    assert made == ["task"]
