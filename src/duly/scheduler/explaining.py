"""Explaining: collects the facts about a run or an instant from store, coordinator and settings, for the rules.

Facts that are unavailable (the coordinator is unreachable) are left out, and the explanation says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from duly.errors import BackendUnavailable, ConfigurationError, RunNotFound, shown
from duly.model import (
    WAITING,
    JobRecord,
    Node,
    Run,
    RunQuery,
    SchedulerConfig,
    State,
    as_utc,
    is_job_name,
    is_run_id,
    shift,
)
from duly.model.job import MAIN
from duly.model.loss import Loss
from duly.model.outage import KEPT_OUTAGES, OUTAGES, Outage
from duly.ports import Backend
from duly.rules.admission import OVERLAP
from duly.rules.cluster_settings import KEY, in_force
from duly.rules.describe import instant
from duly.rules.explain import Explanation, Facts, explain, nearest
from duly.rules.misfires import MISFIRE
from duly.rules.schedules import Schedule
from duly.rules.waiting import Situation, why_waiting
from duly.runtime.node import CLOCK_DOUBT
from duly.scheduler.known_names import no_such_job
from duly.scheduler.losses import losses_of
from duly.scheduler.run_pages import Found, find
from duly.scheduler.shard_leaders import leader_of

_EARLIER_RUNS = 20
_OCCUPYING = tuple(state for state in State if state is not State.SKIPPED)
_NAMED_LOSSES = 3

_outage = msgspec.json.Decoder(Outage)

Seen = Callable[[Node], Node]


def as_it_is(node: Node) -> Node:
    """Show everything about a node."""
    return node


class Explainer:
    """Belongs to one session on a store. `schedule` returns a record's schedule, None if it is not known here."""

    def __init__(
        self, backend: Backend, config: SchedulerConfig, schedule: Callable[[JobRecord], Schedule | None]
    ) -> None:
        self._backend = backend
        self._store = backend.store
        self._config = config
        self._schedule = schedule

    async def instant(self, name: str, at: datetime | None, seen: Seen = as_it_is) -> Explanation:
        """Why the run of that instant, or of the nearest one if the job has no such instant, did or did not happen.

        `seen` returns what the caller may see of a node.
        """
        record = await self._store.job(name) if is_job_name(name) else None
        if record is None:
            raise await no_such_job(self._store, name)
        when = self._backend.clock.now() if at is None else as_utc(at, "at", ConfigurationError)
        run = await self._store.covering(record.uid, when)
        if run is None and (due := nearest(self._schedule(record), when)) is not None:
            run = await self._store.covering(record.uid, due)
        return await self._explain(record, run, when, seen)

    async def run(self, run_id: str, seen: Seen = as_it_is) -> Explanation:
        """Why a run is as it is."""
        run = await self._store.run(run_id) if is_run_id(run_id) else None
        if run is None:
            raise RunNotFound(f"there is no run {shown(run_id)}: {await self._why_absent()}")
        return await self._explain(await self._store.job(run.job), run, run.due, seen)

    async def _why_absent(self) -> str:
        losses = [loss for loss in await losses_of(self._store) if loss.report.added]
        if not losses:
            return "it never existed, or retention has purged it"
        told = " and ".join(f"{loss} (noticed at {instant(loss.at)})" for loss in losses[-_NAMED_LOSSES:])
        return f"it never existed, retention has purged it, or the store lost it; the store lost {told}"

    async def waits_for(self, run: Run) -> str | None:
        """Why a waiting run waits; None if it does not wait."""
        if run.state not in WAITING:
            return None
        return why_waiting(run, await self._situation(await self._store.job(run.job), run, as_it_is)).text

    async def _in_force(self) -> SchedulerConfig:
        """The configuration, overridden by the cluster's settings unless the coordinator is unreachable."""
        try:
            return in_force(self._config, await self._backend.coordinator.get(KEY)).config
        except BackendUnavailable:
            return self._config

    async def _explain(self, record: JobRecord | None, run: Run | None, at: datetime, seen: Seen) -> Explanation:
        config = await self._in_force()
        occupant = await self._occupant(run)
        return explain(
            Facts(
                job=run.job if record is None and run is not None else "" if record is None else record.name,
                record=record,
                schedule=None if record is None else self._schedule(record),
                at=at,
                situation=await self._situation(record, run, seen),
                run=run,
                attempts=[] if run is None else await self._store.attempts(run.id),
                grace=config.grace.total_seconds(),
                retention=config.retention,
                occupant=occupant.run,
                all_searched=occupant.complete,
                outages=await self._outages(run),
                losses=await self._losses(run),
            )
        )

    # --- the current state

    async def _situation(self, record: JobRecord | None, run: Run | None, seen: Seen) -> Situation:
        nodes, leader, planner = await self._cluster(MAIN if record is None else record.shard)
        now, doubt = self._time(nodes or ())
        blocker = await self._blocker(run)
        return Situation(
            now=now,
            nodes=None if nodes is None else [seen(node) for node in nodes],
            leader=leader,
            planner=planner,
            paused_queues=await self._store.paused(),
            record=record,
            blocker=blocker.run,
            all_searched=blocker.complete,
            doubt=doubt,
        )

    def _time(self, nodes: Sequence[Node]) -> tuple[datetime, float]:
        """The time as the nodes have it, and by how many seconds the store's clock has jumped away from that.

        A process that has just started knows only what the clock shows now.
        """
        clock = self._backend.clock
        now, doubt = clock.now(), clock.doubt
        announced = next((seconds for node in nodes if (seconds := node.metrics.get(CLOCK_DOUBT))), 0.0)
        return (now, doubt) if doubt or not announced else (shift(now, -announced), announced)

    async def _cluster(self, shard: str) -> tuple[list[Node] | None, str | None, str | None]:
        """The live nodes, the leader, and the leader of this shard; None if the coordinator is unreachable."""
        try:
            leader = await leader_of(self._backend, MAIN)
            planner = leader if shard == MAIN else await leader_of(self._backend, shard)
            return await self._backend.coordinator.nodes(), leader, planner
        except BackendUnavailable as exc:
            if exc.part == "store":
                raise
            return None, None, None

    async def _blocker(self, run: Run | None) -> Found:
        """An unfinished run of the same group that a waiting one waits for."""
        if run is None or run.group is None or run.state not in WAITING or run.member:
            return Found()

        def choose(runs: Sequence[Run]) -> Run | None:
            return next((other for other in runs if other.id != run.id and _occupies(other, run.group)), None)

        running = await find(self._store, RunQuery(job=run.job, states=(State.RUNNING,)), _EARLIER_RUNS, choose)
        if running.run is not None:
            return running
        states = (State.PENDING, State.QUEUED)
        waiting = await find(self._store, RunQuery(job=run.job, states=states), _EARLIER_RUNS, choose)
        return Found(waiting.run, waiting.run is not None or (running.complete and waiting.complete))

    # --- the past state

    async def _occupant(self, run: Run | None) -> Found:
        """The run that was unfinished when this one was skipped for it."""
        if run is None or run.state is not State.SKIPPED or run.reason != OVERLAP:
            return Found()
        skipped_at = run.finished_at or run.due

        def choose(runs: Sequence[Run]) -> Run | None:
            unfinished = [
                other
                for other in runs
                if other.id != run.id
                and other.group == run.group
                and (other.state is not State.PENDING or other.member)
                and (other.finished_at is None or other.finished_at >= skipped_at)
            ]
            began = [each for each in unfinished if each.started_at is not None and each.started_at <= skipped_at]
            return next(iter(began or unfinished), None)

        query = RunQuery(job=run.job, states=_OCCUPYING, due_until=skipped_at)
        return await find(self._store, query, _EARLIER_RUNS, choose)

    async def _losses(self, run: Run | None) -> list[Loss]:
        """What the store lost, for a run with an attempt whose end is unknown."""
        return [] if run is None or not (run.losses or run.state is State.LOST) else await losses_of(self._store)

    async def _outages(self, run: Run | None) -> list[Outage]:
        """The latest outages, for a run that was missed; nothing else is explained by them."""
        if run is None or run.reason != MISFIRE:
            return []
        found: list[Outage] = []
        for entry in await self._store.read(OUTAGES, limit=KEPT_OUTAGES):
            with suppress(msgspec.MsgspecError):
                found.append(_outage.decode(entry.value))
        return found


def _occupies(run: Run, group: str | None) -> bool:
    """Whether a run counts towards the limit of that group."""
    return run.group == group and (run.member or run.state is State.RUNNING)
