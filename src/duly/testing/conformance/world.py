"""The world a conformance scenario plays in: one opened backend, a time that only the scenario moves, and builders.

Scenarios pass their own `now` to every port method that takes one, so they run the same on a store with its own
clock. `scenario` turns an async method into an ordinary test, whatever runs the tests.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from duly.model import (
    Assignment,
    Cause,
    Claim,
    CronSpec,
    EverySpec,
    Failed,
    Failure,
    Firing,
    Ids,
    JobChange,
    JobRecord,
    JobSpec,
    Lost,
    Origin,
    Outcome,
    Put,
    Run,
    Settlement,
    State,
    Succeeded,
    recurring_id,
    shift,
)
from duly.model.holds import UNPLACED
from duly.ports import Backend, Coordinator, Queue, Store
from duly.rules.settling import settle

LEASE = 15.0


class Suite(Protocol):
    """What a test class must offer: a new backend on an empty store, not yet opened."""

    def backend(self) -> Backend: ...


Scenario = Callable[[Any, "World"], Awaitable[None]]


def scenario(play: Scenario) -> Callable[[Suite], None]:
    """Play an async scenario on a fresh backend in its own event loop."""

    @functools.wraps(play)
    def test(self: Suite) -> None:
        async def on_stage() -> None:
            async with self.backend() as backend:
                await backend.store.migrate()
                await play(self, World(backend))

        asyncio.run(on_stage())

    del test.__wrapped__  # a runner would see the async function's parameters
    return test


Part = TypeVar("Part", bound=type)


def part(suite: Part) -> Part:
    """Give the tests of a part the part's name as a keyword: `pytest -k GroupSuite` selects them in any subclass."""
    for name, test in vars(suite).items():
        if name.startswith("test_"):
            setattr(test, suite.__name__, True)
    return suite


class World:
    """An opened backend seen through a hand-moved clock."""

    def __init__(self, backend: Backend, seed: int = 0) -> None:
        self.backend = backend
        self.now = datetime.now(UTC)
        self.ids = Ids(lambda: self.now, random.Random(seed))
        self._requests = 0

    @property
    def queue(self) -> Queue:
        return self.backend.queue

    @property
    def store(self) -> Store:
        return self.backend.store

    @property
    def coordinator(self) -> Coordinator:
        return self.backend.coordinator

    def advance(self, seconds: float) -> datetime:
        """Let time pass."""
        self.now = shift(self.now, seconds)
        return self.now

    def after(self, seconds: float) -> datetime:
        """The instant that many seconds from now."""
        return shift(self.now, seconds)

    # --- builders

    def run(self, job: str = "mail", *, delay: float = 0.0, **fields: Any) -> Run:
        """A submitted run of that job, ready after `delay` seconds."""
        due = self.after(delay)
        values: dict[str, Any] = {"id": self.ids.new(), "job": job, "handler": job, "due": due, "ready_at": due}
        return Run(**values | fields)

    def record(self, name: str = "report", *, every: float | None = 10.0, **fields: Any) -> JobRecord:
        """A new job of that name, its first instant one interval from now; every=None has no schedule."""
        schedule = None if every is None else EverySpec(timedelta(seconds=every))
        first = None if every is None else self.after(every)
        values: dict[str, Any] = {
            "uid": self.ids.new(),
            "spec": JobSpec(name=name, handler=name, schedule=schedule),
            "revision": 1,
            "origin": Origin.CODE,
            "created_at": self.now,
            "updated_at": self.now,
            "cursor": first,
            "plan_at": None if first is None else self.now,
        }
        return JobRecord(**values | fields)

    def planned(self, record: JobRecord, due: datetime, **fields: Any) -> Run:
        """The recurring run of a job for one due instant."""
        values: dict[str, Any] = {
            "id": recurring_id(record.uid, due),
            "job": record.name,
            "handler": record.spec.handler,
            "uid": record.uid,
            "revision": record.revision,
            "cause": Cause.SCHEDULE,
            "due": due,
            "ready_at": due,
        }
        return Run(**values | fields)

    def firing(self, record: JobRecord, instants: Sequence[datetime], cursor: datetime | None) -> Firing:
        """One step of planning: runs for these instants, the cursor beyond them."""
        assert record.cursor is not None
        runs = tuple(self.planned(record, due) for due in instants)
        return Firing(
            uid=record.uid,
            name=record.name,
            revision=record.revision,
            expect=record.cursor,
            cursor=cursor,
            plan_at=cursor,
            runs=runs,
        )

    # --- steps

    def request(self) -> int:
        """A new request number."""
        self._requests += 1
        return self._requests

    async def put(self, *runs: Run) -> list[Put]:
        return await self.queue.put(runs, now=self.now)

    async def claim(
        self,
        limit: int = 100,
        *,
        node: str = "node-1",
        queues: Sequence[str] | None = None,
        handlers: Collection[str] | None = None,
        lease: float = LEASE,
        request: int | None = None,
    ) -> list[Claim]:
        """Claim with a new request number."""
        if request is None:
            request = self.request()
        claimed = await self.queue.claim(node, queues, handlers, limit, lease, request, now=self.now)
        return claimed.claims

    def settlement(self, claim: Claim, outcome: Outcome | None = None) -> Settlement:
        """The settlement of a claim's run now, successful unless an outcome is given."""
        return settle(claim.run, claim.fence, Succeeded() if outcome is None else outcome, self.now, dice=0.5)

    async def settle(self, claim: Claim, outcome: Outcome | None = None) -> bool:
        """Settle one claim; whether it was accepted."""
        return await self.queue.settle([self.settlement(claim, outcome)]) == [True]

    async def state(self, run: Run | str) -> State | None:
        found = await self.store.run(run if isinstance(run, str) else run.id, now=self.now)
        return None if found is None else found.state

    async def stored(self, run: Run | str) -> Run:
        """The run as it is stored; it must exist."""
        found = await self.store.run(run if isinstance(run, str) else run.id, now=self.now)
        assert found is not None
        return found

    async def create(self, *records: JobRecord) -> None:
        """Save new jobs."""
        saved = await self.store.save([JobChange(record, None) for record in records], now=self.now)
        assert None not in saved


def to_place(world: World, job: str = "mail", **fields: Any) -> Run:
    """A run that waits to be placed."""
    return world.run(job, hold=UNPLACED, assignable=True, **fields)


async def give(world: World, run: Run | str, node: str) -> bool:
    """Assign one run; whether it was accepted."""
    run_id = run if isinstance(run, str) else run.id
    [given] = await world.queue.assign([Assignment(run_id, node)])
    return given


def failed(message: str = "boom", **fields: Any) -> Failed:
    """An outcome: the handler raised."""
    return Failed(Failure("ValueError", message, "Traceback …"), **fields)


LOST = Lost()
NIGHTLY = CronSpec("30 2 * * *", "Europe/Berlin")
