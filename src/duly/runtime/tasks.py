"""Tasks on the hot path: made without the frames of the event loop, and run at once where Python can do that."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial

TaskStarter = Callable[..., "asyncio.Task[None]"]


def task_starter(loop: asyncio.AbstractEventLoop) -> TaskStarter:
    """What makes a task of a coroutine: `start(coroutine, name=…)`.

    asyncio's `loop.create_task` adds half the cost of the task itself; a loop with its own `create_task`, or with a
    task factory, is respected. From Python 3.12 on the task runs up to its first pause before `start` returns, so that
    a handler that never pauses is not scheduled at all.
    """
    if type(loop).create_task is not asyncio.BaseEventLoop.create_task or loop.get_task_factory() is not None:
        return loop.create_task
    if sys.version_info >= (3, 12):
        return partial(asyncio.Task, loop=loop, eager_start=True)
    return partial(asyncio.Task, loop=loop)
