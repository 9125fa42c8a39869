"""The harness: a scheduler in a user's tests, on memory, with a clock that only the test moves.

Services are stepped, not run: nothing happens in the background, nothing sleeps, and it works in any event loop.
Between two calls the harness holds no loop at all.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from duly.backends.memory import MemoryBackend, open_url
from duly.model import Run, SchedulerConfig
from duly.model.holds import UNPLACED
from duly.ports import Opening
from duly.runtime.node import Node
from duly.scheduler import Scheduler
from duly.scheduler.running_node import RunningNode
from duly.testing.clock import ManualClock

T = TypeVar("T")

_ROUNDS = 100_000


class Harness:
    """Drives a scheduler's jobs by hand.

    `await h.drain()` runs all that is due; an exception of a handler is raised in the test. `await h.travel(hours=24)`
    moves the clock from due instant to due instant. `h.runs("job")` lists what happened. `h.sync` has the same for
    tests without an event loop. Use it as a context manager, or call `close`.
    """

    def __init__(self, scheduler: Scheduler, now: datetime | None = None, *, raises: bool = True) -> None:
        self.scheduler = scheduler
        self.clock = ManualClock(now)
        self.sync = SyncHarness(self)
        self._raises = raises
        self._errors: list[BaseException] = []
        url = f"memory://harness-{id(self)}"
        self._backend: MemoryBackend = open_url(url, Opening(scheduler.config.namespace, self.clock))
        self._override = scheduler.override(url, config=self._config(scheduler.config), clock=self.clock)
        self._override.__enter__()

    def _config(self, config: SchedulerConfig) -> SchedulerConfig:
        """The scheduler's settings, with a listener for every error."""
        users = config.on_error

        async def on_error(run: Run, job: Any, exc: BaseException) -> Any:
            self._errors.append(exc)
            answer = None if users is None else users(run, job, exc)
            return await answer if asyncio.iscoroutine(answer) else answer

        return replace(config, on_error=on_error, node_id=config.node_id or "harness", publish_events=False)

    @property
    def now(self) -> datetime:
        """The current time of the clock."""
        return self.clock.now()

    async def drain(self) -> list[Run]:
        """Run everything that is due, and what becomes due immediately because of it; returns the runs that ended."""
        before = {run.id for run in self._all() if run.final}
        running = await self._begin()
        try:
            await self._until_quiet(running.node)
        finally:
            await self._finish(running)
        self._raise()
        return [run for run in self.runs() if run.final and run.id not in before]

    async def travel(self, delta: timedelta | None = None, *, to: datetime | None = None, **units: float) -> list[Run]:
        """Let time pass: `travel(hours=24)`, `travel(timedelta(…))` or `travel(to=…)`. Returns the runs that ended."""
        before = {run.id for run in self._all() if run.final}
        target = to if to is not None else self.now + (delta if delta is not None else timedelta(**units))
        running = await self._begin()
        try:
            await self._until_quiet(running.node)
            while self.now < target:
                self.clock.set(min(self._next_stop(target), target))
                await self._until_quiet(running.node)
                self._raise()
        finally:
            await self._finish(running)
        self._raise()
        return [run for run in self.runs() if run.final and run.id not in before]

    def runs(self, job: str | None = None) -> list[Run]:
        """All runs so far, or those of one job, by due instant."""
        chosen = [run for run in self._all() if job is None or run.job == job]
        return sorted(chosen, key=lambda run: (run.due, run.id))

    def _all(self) -> list[Run]:
        return list(self._backend.contents.runs.by_id.values())

    # --- stepping

    async def _begin(self) -> RunningNode:
        client = await self.scheduler._client()  # noqa: SLF001  # the harness is the scheduler's other driver
        running = self.scheduler._build(client, random.Random(0))  # noqa: SLF001
        await running.deploy()
        await self._backend.coordinator.announce(running.node.card_now(), 1e9)
        return running

    async def _until_quiet(self, node: Node) -> None:
        for _ in range(_ROUNDS):
            await self._plan(node)
            node.worker.look()
            await node.worker.tick()
            lives = [live.task for live in node.active_runs if live.task is not None]
            if not lives:
                return
            await asyncio.wait(lives)
            await node.settler.flush()
        raise RuntimeError("the jobs never become idle: more work is always due at the same instant")

    async def _plan(self, node: Node) -> None:
        await node.elector.tick()
        while await node.planner.tick() <= 0:
            pass
        while await node.assigner.tick() <= 0:
            pass

    def _next_stop(self, target: datetime) -> datetime:
        """The next instant at which anything is to be done."""
        runs = self._backend.contents.runs
        pending = runs.next_pending()
        stops = [] if pending is None else [pending.ready_at]
        stops += [run.ready_at for run in runs.held(UNPLACED)]
        stops += [
            record.plan_at
            for record in self._backend.contents.jobs.values()
            if record.plannable and record.plan_at is not None and record.plan_at > self.now
        ]
        return min([*(stop for stop in stops if stop > self.now), target])

    async def _finish(self, running: RunningNode) -> None:
        await running.dispose()
        await self.scheduler.close()

    def _raise(self) -> None:
        errors, self._errors = self._errors, []
        if errors and self._raises:
            raise errors[0]

    # --- life

    def close(self) -> None:
        """Restore the scheduler as it was."""
        self._override.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class SyncHarness:
    """The harness for tests without an event loop."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness

    def drain(self) -> list[Run]:
        """As `Harness.drain`."""
        return asyncio.run(self._harness.drain())

    def travel(self, delta: timedelta | None = None, *, to: datetime | None = None, **units: float) -> list[Run]:
        """As `Harness.travel`."""
        return asyncio.run(self._harness.travel(delta, to=to, **units))

    def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run any coroutine of the scheduler, such as a submission."""
        return asyncio.run(_run(make))


async def _run(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return await make()
