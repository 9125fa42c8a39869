"""The janitor: keeps the store tidy while this node leads.

Purges what retention no longer keeps and dedupe keys whose time has passed, retires jobs that nobody can run, brings
them back, puts back runs whose hold has lost its reason, and notices when the store's settings no longer keep what they
promised.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime

from duly.model import JobChange, JobRecord, State, shift
from duly.model.config import RETAINED
from duly.model.event import JobSaved, PromisesChanged
from duly.model.holds import held_job, hold_for_job
from duly.model.job import JOB_SHARD
from duly.ports import Backend
from duly.rules import job_changes, purging
from duly.rules.schedules import Schedule, ScheduleInCode, schedule_of
from duly.runtime.elector import MAIN, Elector
from duly.runtime.environment import Environment, NodeService
from duly.runtime.next_due import NextDue

_PERIOD = 10.0
_REVIEW = 300.0  # all jobs are looked at when the nodes' handlers change, and periodically
_BEYOND = 60.0  # how long what is kept for a time may be kept beyond it, at most
_PROMISES = 60.0  # how long a change of the server's settings may go unnoticed
_SLICE = 1000


class Janitor(NodeService):
    """Works on the leader, in slices; on others it brings back only what nobody else can."""

    name = "janitor"

    def __init__(
        self,
        env: Environment,
        backend: Backend,
        elector: Elector,
        schedules: ScheduleInCode,
        next_due: NextDue,
        changed: Callable[[], None],
    ) -> None:
        super().__init__(env)
        self._backend = backend
        self._queue = backend.queue
        self._store = backend.store
        self._coordinator = backend.coordinator
        self._elector = elector
        self._schedules = schedules
        self._kept = env.config.retention
        self._changed = changed
        # A short deploy must not cost a run (late is better than never): a handler may be missing for the grace period.
        self._missing_since: dict[str, float] = {}
        self._known: set[str] = set()
        self._review_at = 0.0
        self._purge_at: dict[State | None, float] = {}
        self._next_due = next_due
        self._step = purging.FIRST_STEP
        self._purging = False
        self._purged_at = self._rest_at = 0.0
        self._durable_start = backend.capabilities.durable_start
        self._look_at = env.clock.monotonic() + _PROMISES

    async def tick(self) -> float:
        if self._purging and self._clock.monotonic() < self._rest_at:
            return await self._go_on_purging()
        self._rest_at = self._clock.monotonic() + _PERIOD
        await self._revive_own()
        if not self._elector.leads:
            self._missing_since.clear()
            return _PERIOD
        pause = await self._go_on_purging()
        await self._review_jobs()
        await self._release_holds()
        await self._look_at_promises()
        return pause

    # --- retention

    async def _go_on_purging(self) -> float:
        """Delete one step, unless a run is due at any moment; seconds until the next."""
        now = self._clock.monotonic()
        if not self._elector.leads:
            self._purging = False
            return _PERIOD
        if self._next_due.left(purging.CLEAR) < purging.CLEAR and now - self._purged_at < purging.PATIENCE:
            self._purging = True
            return purging.CLEAR
        self._purging = await self._purge()
        self._purged_at = self._clock.monotonic()
        return purging.pause_after(self._purged_at - now) if self._purging else _PERIOD

    async def _purge(self) -> bool:
        """Delete one step of one state, or of dedupe keys whose time has passed; whether there may be more."""
        now = self._clock.now()
        keep = self._live.config.retention
        if keep != self._kept:
            self._kept, self._purge_at = keep, {}
        for name in RETAINED:
            age, most = getattr(keep, name), getattr(keep, f"max_{name}")
            if await self._purge_state(State(name), age, most, now):
                return True
        return await self._expire_keys()

    async def _purge_state(self, state: State, age: float | None, most: int | None, now: datetime) -> bool:
        if self._waits(state):
            return False
        began = self._clock.monotonic()
        before = None if age is None else shift(now, -age)
        purged = await self._store.purge(state, before, most, self._step)
        full = purged >= self._step
        if not full:
            self._wait(state, _BEYOND if age is None else min(_BEYOND, age / 10), counted=most is not None)
        elif purged:
            self._step = purging.next_step(self._step, self._clock.monotonic() - began)
        return full

    async def _expire_keys(self) -> bool:
        if self._waits(None):
            return False
        expired = await self._store.expire(_SLICE)
        if expired < _SLICE:
            self._wait(None, _BEYOND)
        return expired >= _SLICE

    def _waits(self, state: State | None) -> bool:
        """Whether what is kept for a time was looked at just now (None: dedupe keys)."""
        return self._clock.monotonic() < self._purge_at.get(state, 0.0)

    def _wait(self, state: State | None, seconds: float, *, counted: bool = False) -> None:
        """Look again then. What is bounded by number is looked at in each period."""
        self._purge_at[state] = self._clock.monotonic() + (min(seconds, _PERIOD / 2) if counted else seconds)

    # --- jobs whose handler nobody has

    async def _revive_own(self) -> None:
        """Bring back the jobs whose schedules only code can compute: the leader may not have it."""
        led = set(self._elector.led()) - {MAIN}
        names = [shard.removeprefix(JOB_SHARD) for shard in led]
        retired = [record for record in await self._store.jobs(names) if record.retired_at] if names else []
        if retired:
            known = await self._handlers()
            for record in retired:
                if record.spec.handler in known:
                    await self._revive(record)

    async def _handlers(self) -> set[str]:
        """The handlers that live nodes announce."""
        known: set[str] = set()
        for node in await self._coordinator.nodes():
            known |= node.handlers
        return known

    async def _review_jobs(self) -> None:
        known = await self._handlers()
        now = self._clock.monotonic()
        if known == self._known and not self._missing_since and now < self._review_at:
            return
        self._known, self._review_at = known, now + _REVIEW
        grace = self._live.config.grace.total_seconds()
        missing: dict[str, float] = {}
        async for record in self._jobs():
            handler = record.spec.handler
            if record.spec.schedule is None or record.removed_at is not None:
                continue
            if handler in known:
                await self._revive(record)
            elif record.retired_at is None:
                missing[handler] = self._missing_since.get(handler, now)
                if now - missing[handler] >= grace:
                    await self._save(record, job_changes.retire(record, self._clock.now()), "retired")
        self._missing_since = missing

    async def _jobs(self) -> AsyncIterator[JobRecord]:
        """All jobs, a slice at a time: thousands of records at once would stay with the process as memory."""
        after = ""
        while part := await self._store.jobs(after=after, limit=_SLICE):
            for record in part:
                yield record
            after = part[-1].name

    async def _revive(self, record: JobRecord) -> None:
        if record.retired_at is None:
            return
        schedule = self._schedule(record)
        if schedule is not None:
            await self._save(record, job_changes.revive(record, schedule, self._clock.now()), "back")

    def _schedule(self, record: JobRecord) -> Schedule | None:
        try:
            return schedule_of(record, self._schedules)
        except ValueError:
            return None  # a node that has the code brings it back

    async def _save(self, record: JobRecord, change: JobChange | None, what: str) -> None:
        if change is None:
            return
        [saved] = await self._store.save([change])
        if saved is not None:
            self._emit(JobSaved.of(saved, what))
            self._changed()

    # --- holds

    async def _release_holds(self) -> None:
        """A resume that was cut off between its two steps leaves runs held for a job that is not paused."""
        names = [name for key in await self._queue.holds() if (name := held_job(key)) is not None]
        if not names:
            return
        stopped = {record.name for record in await self._store.jobs(names) if _stops(record)}
        for name in names:
            if name not in stopped:
                await self._queue.unhold(hold_for_job(name), _SLICE)

    # --- what the store promises

    async def _look_at_promises(self) -> None:
        """Notice that somebody has changed the settings of the store's server."""
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _PROMISES
        before, self._durable_start = self._durable_start, (await self._backend.refresh()).durable_start
        if self._durable_start is not before:
            self._emit(PromisesChanged(self._durable_start))


def _stops(record: JobRecord) -> bool:
    return record.paused is not None or record.removed_at is not None
