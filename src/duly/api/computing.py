"""Computing: work for a request that takes more than a moment, beside the event loop.

It runs in threads of its own, a bounded number of calls at a time. Whoever hands work over bounds the time it takes:
a thread cannot be stopped from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from duly.api.problems import Problem

T = TypeVar("T")

_THREADS = 2  # Python computes one thing at a time: more would only take turns more often
_MOST_WAITING = 100


class Computing:
    """Belongs to one event loop. Threads are started when they are first needed."""

    def __init__(self, most_waiting: int = _MOST_WAITING) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._most_waiting = most_waiting
        self._waiting = 0

    async def run(self, work: Callable[[], T]) -> T:
        """What the work returns or raises; a `Problem` if too much is waiting."""
        if self._waiting >= self._most_waiting:
            detail = "this process has more to compute than it can: try again"
            raise Problem(503, "busy", detail, headers=((b"retry-after", b"1"),))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="duly-api")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Let the threads end when they have done what they were given."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
