"""Why runs wait to be placed, in plain words: for health and the doctor."""

from __future__ import annotations

from collections import Counter

from duly.model import Run
from duly.model.holds import UNPLACED
from duly.model.job import MAIN
from duly.ports import Backend, Finding, Severity
from duly.rules.placement import why_unplaced
from duly.scheduler.shard_leaders import leader_of

_LOOKED_AT = 200


async def _reasons(backend: Backend, runs: list[Run]) -> list[str]:
    records = await backend.store.jobs(sorted({run.job for run in runs}))
    selectors = {record.name: record.spec.selector for record in records}
    nodes, leader, paused = (
        await backend.coordinator.nodes(),
        await leader_of(backend, MAIN),
        await backend.store.paused(),
    )
    return [why_unplaced(run, nodes, selectors.get(run.job), leader, paused) for run in runs]


async def overdue(backend: Backend) -> str:
    """What keeps due runs from being placed, the most frequent reason first; nothing if all are placed."""
    now = backend.clock.now()
    due = [run for run in await backend.queue.held(UNPLACED, _LOOKED_AT) if run.ready_at <= now]
    if not due:
        return ""
    many = (
        f"{len(due)} due run{'s' if len(due) > 1 else ''}" if len(due) < _LOOKED_AT else f"{len(due)} due runs or more"
    )
    reasons = [reason for reason, _ in Counter(await _reasons(backend, due)).most_common()]
    return f"{many} {'wait' if len(due) > 1 else 'waits'} to be placed: {'; '.join(reasons)}"


async def examine_placement(backend: Backend) -> list[Finding]:
    """What an operator should know about runs that are assigned to nodes; nothing where none are."""
    stuck = await overdue(backend)
    if stuck:
        return [Finding(Severity.WARNING, "placement", stuck)]
    shares = await backend.queue.assigned()
    if not shares:
        return []
    given = sum(share.due + share.upcoming for share in shares.values())
    return [Finding(Severity.OK, "placement", f"{given} runs are assigned to {len(shares)} nodes")]
