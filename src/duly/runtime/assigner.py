"""The assigner: while this node leads, it gives unplaced runs to nodes and takes back the runs of dead ones.

It decides by `rules.placement`; the store gives a run to one node only, and a fenced claim starts it, so a second
leader costs only work. It serves assignable runs whatever its own `placement` is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from duly.model import Node, Run, Share, seconds_between
from duly.model.event import RunsPlaced, RunsTakenBack
from duly.model.holds import UNPLACED
from duly.ports import Backend
from duly.rules.placement import Placing, Room, Selector, lapsed, place, rooms_of
from duly.runtime.elector import Elector
from duly.runtime.environment import Environment, NodeService

_SMALLEST, _LARGEST = 32, 500  # how many runs are considered at once
_PERIOD = 1.8  # how soon a node that came or vanished is noticed while there are runs to start or to place
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.25
_SOONEST = 0.001


class Assigner(NodeService):
    """Places runs slice by slice, the most urgent first. While all nodes are full it waits longer each time."""

    name = "assigner"

    def __init__(self, env: Environment, backend: Backend, elector: Elector) -> None:
        super().__init__(env)
        self._queue = backend.queue
        self._store = backend.store
        self._coordinator = backend.coordinator
        self._elector = elector
        self._horizon = env.config.horizon
        self._pause = 0.0
        self._check_at = 0.0
        self._after: Run | None = None
        self._selectors: dict[str, Selector | None] = {}
        self._selectors_until = 0.0

    @property
    def _tick(self) -> float:
        return self._live.config.safety_tick

    async def tick(self) -> float:
        if not self._elector.leads:
            self._after, self._pause, self._check_at = None, 0.0, 0.0
            return self._tick
        first = await self._queue.held(UNPLACED, _SMALLEST, self._after)
        now = self._clock.monotonic()
        if not first and self._after is None and now < self._check_at:
            return self._check_at - now
        shares = await self._queue.assigned()
        calm = min(self._live.config.lease / 3, self._tick)
        period = min(_PERIOD, calm) if self._is_urgent(first, shares) else calm
        self._check_at = now + (period if shares else self._tick)
        if not shares and not first and self._after is None:
            return self._tick
        nodes = await self._coordinator.nodes()
        if await self._take_back(nodes, shares):
            self._after = None
            return 0.0
        return min(period, await self._place(first, rooms_of(nodes, shares)))

    def _is_urgent(self, first: Sequence[Run], shares: Mapping[str, Share]) -> bool:
        """Whether a node that comes or vanishes matters soon: runs can be placed, or are due where they are."""
        until = self._clock.now() + self._horizon
        return any(run.ready_at <= until for run in first) or any(share.due for share in shares.values())

    # --- taking back

    async def _take_back(self, nodes: Sequence[Node], shares: Mapping[str, Share]) -> bool:
        """Take back runs that wait for nodes that are no longer present; return whether there were any."""
        taken = 0
        for node in lapsed(nodes, shares):
            number = await self._queue.unassign(node, _LARGEST)
            if number:
                self._emit(RunsTakenBack(node, number))
            taken += number
        return taken > 0

    # --- placing

    async def _place(self, first: Sequence[Run], rooms: Sequence[Room]) -> float:
        """Place one slice, large if the nodes take many; the seconds until there is more to do."""
        runs, most = first, _SMALLEST
        wanted = min(sum(room.free + self._live.config.assign_ahead for room in rooms), _LARGEST)
        if len(first) == _SMALLEST and wanted > _SMALLEST:
            runs, most = await self._queue.held(UNPLACED, wanted, self._after), wanted
        placing = await self._decide(runs, rooms)
        given = await self._give(placing)
        self._after = runs[-1] if len(runs) == most and not _may_stop(placing) else None
        if placing.crowded and not (given and self._after):
            self._pause = _FIRST_PAUSE if given else min(max(_FIRST_PAUSE, 2 * self._pause), _LONGEST_PAUSE)
            return self._pause
        self._pause = 0.0
        return 0.0 if self._after else self._until_next(runs, placing)

    async def _decide(self, runs: Sequence[Run], rooms: Sequence[Room]) -> Placing:
        now = self._clock.now()
        until = now + self._horizon
        paused: Collection[str] = ()
        if any(run.ready_at <= until for run in runs):
            paused = await self._store.paused()
        selectors = await self._selectors_of({run.job for run in runs})
        return place(runs, rooms, self._live.config.assign_ahead, selectors, paused, now, until)

    async def _give(self, placing: Placing) -> int:
        if not placing.assignments:
            return 0
        given = sum(await self._queue.assign(placing.assignments))
        if given:
            self._emit(RunsPlaced(given, len({assignment.node for assignment in placing.assignments})))
        return given

    def _until_next(self, runs: Sequence[Run], placing: Placing) -> float:
        """Seconds until the next unplaced run is due, or until the nodes are to be checked again."""
        placed = {assignment.run_id for assignment in placing.assignments}
        waits = [seconds_between(self._clock.now(), run.ready_at) for run in runs if run.id not in placed]
        return min([self._tick, *(max(_SOONEST, wait) for wait in waits if wait > 0)])

    async def _selectors_of(self, jobs: Collection[str]) -> Mapping[str, Selector | None]:
        """The labels that these jobs require, read from the store periodically."""
        now = self._clock.monotonic()
        if now >= self._selectors_until:
            self._selectors, self._selectors_until = {}, now + self._tick
        unknown = [job for job in jobs if job not in self._selectors]
        if unknown:
            self._selectors |= dict.fromkeys(unknown)
            self._selectors |= {record.name: record.spec.selector for record in await self._store.jobs(unknown)}
        return self._selectors


def _may_stop(placing: Placing) -> bool:
    """Whether looking at the runs after these would be useless."""
    return placing.sated or (placing.full and placing.crowded)
