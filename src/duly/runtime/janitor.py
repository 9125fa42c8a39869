"""The janitor: keeps the store tidy while this node leads.

Purges what retention no longer keeps and dedupe keys whose time has passed, retires jobs that no node can run and
restores them, releases runs whose hold is no longer justified, and notices when the settings of the store's server no
longer give the guarantees they gave before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from duly.model import JobChange, JobRecord, State, shift
from duly.model.config import RETAINED
from duly.model.event import JobSaved, PromisesChanged
from duly.model.holds import held_job, hold_for_job
from duly.model.job import DEPLOYED, JOB_SHARD
from duly.model.node import PROTOCOL
from duly.ports import Backend
from duly.rules import job_changes, purging
from duly.rules.schedules import Schedule, ScheduleInCode, schedule_of
from duly.rules.shards import is_shared
from duly.runtime.elector import Elector
from duly.runtime.environment import Environment, NodeService
from duly.runtime.next_due import NextDue

_PERIOD = 10.0
_REVIEW = 300.0  # jobs are reviewed when the nodes' handlers change, and periodically
_TOGETHER = 100  # jobs changed with one call
_BEYOND = 60.0  # how long records may be kept beyond their retention time, at most
_PROMISES = 60.0  # how long a change of the server's settings may go unnoticed
_SLICE = 1000

Decide = Callable[[JobRecord], JobChange | None]


class Janitor(NodeService):
    """Works on the leader, in slices; on other nodes it only restores jobs that the leader cannot."""

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
        self._index_check = _IndexCheck()
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
        more = await self._review_jobs()
        more |= await self._check_index()
        await self._release_holds()
        await self._look_at_promises()
        return 0.0 if more else pause

    # --- retention

    async def _go_on_purging(self) -> float:
        """Delete one step, unless a run is about to be due; return the seconds until the next step."""
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
        """Delete one step of one state, or of expired dedupe keys; return whether there may be more."""
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
        """Whether the records of this state that expire were checked recently (None: dedupe keys)."""
        return self._clock.monotonic() < self._purge_at.get(state, 0.0)

    def _wait(self, state: State | None, seconds: float, *, counted: bool = False) -> None:
        """Check again at that time. Records that are bounded by number are checked in each period."""
        self._purge_at[state] = self._clock.monotonic() + (min(seconds, _PERIOD / 2) if counted else seconds)

    # --- jobs whose handler no node has

    async def _revive_own(self) -> None:
        """Restore the jobs whose schedules only code can compute: the leader may not have that code."""
        names = [shard.removeprefix(JOB_SHARD) for shard in self._elector.led() if not is_shared(shard)]
        retired = [record for record in await self._store.jobs(names) if record.retired_at] if names else []
        if retired:
            known = await self._handlers()
            back = [record for record in retired if record.spec.handler in known]
            await self._save([(record, self._revival(record)) for record in back], "back")

    async def _handlers(self) -> set[str]:
        """The handlers that live nodes announce."""
        nodes = await self._coordinator.nodes()
        self._index_check.look(any(node.protocol < PROTOCOL for node in nodes), self._clock.monotonic())
        return set().union(*(node.handlers for node in nodes))

    async def _review_jobs(self) -> bool:
        """Compare the handlers of jobs with those of nodes, and read only jobs of which one has gone or come back.

        Changes at most a slice of them; returns whether there may be more.
        """
        known = await self._handlers()
        now = self._clock.monotonic()
        if known == self._known and not self._missing_since and now < self._review_at:
            return False
        missing = await self._store.handlers(retired=False) - known
        self._missing_since = {handler: self._missing_since.get(handler, now) for handler in missing}
        grace = self._live.config.grace.total_seconds()
        gone = sorted(handler for handler, since in self._missing_since.items() if now - since >= grace)
        back = sorted(await self._store.handlers(retired=True) & known)
        left = await self._change(back, retired=True, what="back", decide=self._revival, most=_SLICE)
        left = await self._change(gone, retired=False, what="retired", decide=self._retirement, most=left)
        if left <= 0:
            return True
        self._known, self._review_at = known, now + _REVIEW
        return False

    async def _change(self, handlers: Sequence[str], *, retired: bool, what: str, decide: Decide, most: int) -> int:
        """Change at least `most` jobs of these handlers, if there are that many; return `most` minus their number."""
        for handler in handlers:
            after = ""
            while most > 0 and (
                part := await self._store.jobs_of(handler, retired=retired, after=after, limit=_TOGETHER)
            ):
                most -= await self._save([(each, decide(each)) for each in part], what)
                after = part[-1].name
        return most

    def _revival(self, record: JobRecord) -> JobChange | None:
        schedule = self._schedule(record)
        return None if schedule is None else job_changes.revive(record, schedule, self._clock.now())

    def _retirement(self, record: JobRecord) -> JobChange | None:
        return job_changes.retire(record, self._clock.now())

    def _schedule(self, record: JobRecord) -> Schedule | None:
        try:
            return schedule_of(record, self._schedules)
        except ValueError:
            return None  # a node that has the code brings it back

    async def _save(self, wanted: Sequence[tuple[JobRecord, JobChange | None]], what: str) -> int:
        """Save changes; return how many there were. One that loses a race is decided again at the next review."""
        changes = [change for _, change in wanted if change is not None]
        saved = [record for record in await self._store.save(changes) if record is not None] if changes else []
        for record in saved:
            self._emit(JobSaved.of(record, what))
        if saved:
            self._changed()
        return len(changes)

    # --- the index of jobs

    async def _check_index(self) -> bool:
        """Compare a slice of the index of jobs with their records; return whether to continue at once.

        Nodes of an earlier version do not make others forget which definitions are deployed, either.
        """
        if self._index_check.begins:
            await self._store.put(*DEPLOYED, b"")
        self._index_check.cursor = await self._store.reindex(self._index_check.cursor or "")
        return self._index_check.hurries

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

    # --- the store's guarantees

    async def _look_at_promises(self) -> None:
        """Notice changed settings of the store's server."""
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _PROMISES
        before, self._durable_start = self._durable_start, (await self._backend.refresh()).durable_start
        if self._durable_start is not before:
            self._emit(PromisesChanged(self._durable_start))


def _stops(record: JobRecord) -> bool:
    return record.paused is not None or record.removed_at is not None


class _IndexCheck:
    """How far the index of jobs has been compared with their records.

    A node of an earlier version may not keep the index: while one is alive it is compared as a whole with each review,
    and once more when the last has gone. Otherwise the comparison goes on by one slice with each tick, in case a client
    of an earlier version has written.
    """

    def __init__(self) -> None:
        self.cursor: str | None = ""
        self._legacy = False
        self._full_at = 0.0
        self._full = False

    def look(self, legacy: bool, now: float) -> None:
        """Note whether nodes of an earlier version are alive."""
        if (legacy and now >= self._full_at) or (self._legacy and not legacy):
            self.cursor, self._full, self._full_at = "", True, now + _REVIEW
        self._legacy = legacy

    @property
    def begins(self) -> bool:
        """Whether the comparison of the whole index is at its beginning."""
        return self._full and self.cursor == ""

    @property
    def hurries(self) -> bool:
        """Whether the comparison of the whole index is not yet at its end."""
        self._full = self._full and self.cursor is not None
        return self._full
