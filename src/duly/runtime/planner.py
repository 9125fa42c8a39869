"""The planner: turns the schedules of the shards this node leads into runs, a little ahead of time.

Cost follows what is planned, not what is registered. It works in slices of a few milliseconds, so that firing goes on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from duly.errors import BackendUnavailable
from duly.model import Fired, Firing, JobRecord, State, seconds_between
from duly.model.event import PlanFailed, RecordUnreadable
from duly.model.node import PROTOCOL
from duly.ports import Coordinator, JobStore
from duly.rules.planning import Outlook, plan, postpone
from duly.rules.schedules import ScheduleInCode, schedule_of
from duly.rules.shards import homeward, is_shared, relocation, shard_names
from duly.runtime.elector import Elector
from duly.runtime.environment import Environment, NodeService
from duly.runtime.failures import failure_of
from duly.runtime.isolation import Refused, send_isolated
from duly.runtime.next_due import NextDue
from duly.runtime.shard_layout import ShardLayout

_SLICE = 200
_PAUSE_AFTER = 0.003
_SOONEST = 0.05
_LOOK_AROUND = 5.0  # how old the list of nodes may be
_FAR = datetime.max.replace(tzinfo=UTC)


class Planner(NodeService):
    """Plans while this node leads."""

    name = "planner"

    def __init__(
        self,
        env: Environment,
        store: JobStore,
        coordinator: Coordinator,
        elector: Elector,
        layout: ShardLayout,
        schedules: ScheduleInCode,
        next_due: NextDue,
        to_place: Callable[[], None],
    ) -> None:
        super().__init__(env)
        self._store = store
        self._coordinator = coordinator
        self._elector = elector
        self._layout = layout
        self._schedules = schedules
        self._next_due = next_due
        self._to_place = to_place
        self._legacy = False
        self._look_at = -math.inf

    async def tick(self) -> float:
        led = self._elector.led()
        if led:
            await self._look_around()
        delays = [await self._plan(shard) for shard in led]
        return min([self._live.config.safety_tick, *delays])

    async def _look_around(self) -> None:
        """Learn whether nodes of an earlier version are alive; planning then takes them into account."""
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        with suppress(BackendUnavailable):  # keep the previous answer
            nodes = await self._coordinator.nodes()
            self._legacy = any(node.protocol < PROTOCOL for node in nodes)
            self._layout.agree(nodes)
            self._look_at = now + _LOOK_AROUND

    async def _plan(self, shard: str) -> float:
        """Plan one slice of a shard; the seconds until there is more to plan."""
        epoch = self._elector.epoch(shard)
        if epoch is None:
            return math.inf
        if is_shared(shard) and shard not in shard_names(self._layout.count):
            return await self._empty(shard, epoch)
        records, next_at = await self._store.due(shard, _SLICE)
        firings = await self._decide(records)
        if firings:
            await self._fire(firings, records, shard, epoch)
        if len(records) == _SLICE:
            return 0.0
        if next_at is None:
            return math.inf
        # The store's clock decides, and it may be behind ours: then asking again at once would return nothing.
        return max(_SOONEST, seconds_between(self._clock.now(), next_at))

    async def _empty(self, shard: str, epoch: int) -> float:
        """Move one slice of a shard that is no longer used to the shards that are; they are planned there."""
        records, _ = await self._store.due(shard, _SLICE, now=_FAR)
        count = self._layout.count
        if records:
            await self._fire([relocation(record, count) for record in records], records, shard, epoch)
        return 0.0 if records else math.inf

    async def _decide(self, records: list[JobRecord]) -> list[Firing]:
        now, config = self._clock.now(), self._live.config
        outlook = Outlook(config.horizon, config.grace, config.placement, self._legacy)
        firings: list[Firing] = []
        count = self._layout.count
        since = self._clock.monotonic()
        for record in records:
            firings.append(homeward(self._decide_one(record, now, outlook), record, count))
            if self._clock.monotonic() - since > _PAUSE_AFTER:
                await asyncio.sleep(0)
                since = self._clock.monotonic()
        return firings

    def _decide_one(self, record: JobRecord, now: datetime, outlook: Outlook) -> Firing:
        if record.damage is not None:
            self._emit(RecordUnreadable("job", record.name, record.damage))
            return postpone(record, now)
        try:
            schedule = schedule_of(record, self._schedules)
            return postpone(record, now) if schedule is None else plan(record, schedule, now, outlook)
        except Exception as exc:  # noqa: BLE001  # one broken schedule must not keep the others from being planned
            self._emit(PlanFailed(record.name, failure_of(exc)))
            return postpone(record, now)

    async def _fire(self, firings: list[Firing], records: list[JobRecord], shard: str, epoch: int) -> None:
        fired = await send_isolated(lambda some: self._store.fire(some, shard, epoch), firings)
        if Fired.STALE_EPOCH in fired:
            self._elector.doubt(shard)
        refused: list[JobRecord] = []
        for firing, record, result in zip(firings, records, fired, strict=True):
            if isinstance(result, Refused):
                self._emit(PlanFailed(record.name, failure_of(result.error)))
                refused.append(record)
            elif result is Fired.APPLIED:
                waiting = [run.ready_at for run in firing.runs if run.state is State.PENDING and run.hold is None]
                if waiting:
                    self._next_due.expect(min(waiting))
                if any(run.assignable for run in firing.runs):
                    self._to_place()
        if refused:
            now = self._clock.now()
            await self._store.fire([postpone(record, now) for record in refused], shard, epoch)
