"""An executor of one's own: blocking handlers share one pool of two threads instead of having a thread each.

Try it: `duly run own_executor:scheduler`, then `duly submit resize picture=cat.png --wait`.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from duly import HandlerCall, Scheduler


class Pool:
    """Fits `duly.Executor`: it has `execute`. At most two handlers run at a time, however many slots the node has."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="pool")

    async def execute(self, call: HandlerCall) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


scheduler = Scheduler(executors={"pool": Pool(2)})


@scheduler.job(executor="pool")
def resize(picture: str) -> str:
    return f"small-{picture}"
