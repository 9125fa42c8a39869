"""Threads for requests whose computation would block the event loop.

The number of waiting calls is limited. The caller must limit the time of each call, because a thread cannot be stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from duly.api.problems import Problem

T = TypeVar("T")

_THREADS = 2  # Python executes one thread at a time: more would only switch more often
_MOST_WAITING = 100


class RequestThreads:
    """Belongs to one event loop. The threads start on first use."""

    def __init__(self, most_waiting: int = _MOST_WAITING) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._most_waiting = most_waiting
        self._waiting = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function in a thread; raises a `Problem` if too many calls are waiting."""
        if self._waiting >= self._most_waiting:
            detail = "this process has too many computations waiting: try again"
            raise Problem(503, "busy", detail, headers=((b"retry-after", b"1"),))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="duly-api")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Let the threads end after their current calls."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
