"""What an operator should know beyond the store's configuration: failing nodes, records that cannot be read."""

from __future__ import annotations

from duly.model import RunQuery, SchedulerConfig, State
from duly.model.transfer import FROZEN
from duly.ports import Backend, Coordinator, Finding, Severity, Store
from duly.rules.cluster_settings import KEY, in_force
from duly.rules.describe import instant
from duly.runtime.node import CLOCK_DOUBT, FAILING, PINNED, SETTINGS
from duly.scheduler.losses import losses_of
from duly.scheduler.placement_reasons import examine_placement
from duly.scheduler.run_pages import pages_of

_LOOKED_AT = 1000
_NAMED = 5


async def examine(backend: Backend) -> list[Finding]:
    """All findings about a store and its nodes."""
    return [
        *await backend.examine(),
        *await _losses(backend.store),
        *await _records(backend.store),
        *await _nodes(backend.coordinator),
        *await _settings(backend.coordinator),
        *await _frozen(backend),
        *await examine_placement(backend),
    ]


async def _frozen(backend: Backend) -> list[Finding]:
    """Whether an export or a copy has frozen the store, or was killed and has left it so."""
    if FROZEN not in await backend.store.paused():
        return []
    message = (
        f"nothing starts and nothing is planned while an export or a copy runs; duly copy --abort {backend.url} ends it"
    )
    return [Finding(Severity.PROBLEM, "frozen", message)]


async def _losses(store: Store) -> list[Finding]:
    """Changes that the store had acknowledged and lost."""
    return [
        Finding(Severity.WARNING, "lost changes", f"the store lost {loss}, noticed at {instant(loss.at)}")
        for loss in (await losses_of(store))[-_NAMED:]
    ]


async def _records(store: Store) -> list[Finding]:
    """Jobs and unfinished runs that cannot be read; not all runs are checked."""
    damaged: list[str] = []
    after = ""
    while part := await store.jobs(after=after, limit=_LOOKED_AT):
        damaged += [f"job {record.name}" for record in part if record.damage is not None]
        after = part[-1].name
    partly: list[str] = []
    for state in (State.RUNNING, State.QUEUED, State.PENDING, State.FAILED):
        looked_at, more = 0, False
        async for page in pages_of(store, RunQuery(states=(state,)), _LOOKED_AT):
            damaged += [f"run {run.id}" for run in page.runs if run.damage is not None]
            looked_at, more = looked_at + len(page.runs), page.next is not None
            if looked_at >= _LOOKED_AT:
                break
        partly += [f"{looked_at:,} {state.value}"] if more else []
    limits = f"only the newest runs were looked at: {', '.join(partly)}" if partly else ""
    if not damaged:
        return [Finding(Severity.OK, "records", limits)] if partly else []
    named = ", ".join(damaged[:_NAMED]) + (", …" if len(damaged) > _NAMED else "")
    message = f"{len(damaged)} cannot be read: {named}. A run ends as failed when its turn comes; save or remove a job"
    return [Finding(Severity.WARNING, "records", f"{message}; {limits}" if limits else message)]


async def _nodes(coordinator: Coordinator) -> list[Finding]:
    """Nodes with a service that fails repeatedly, and jumps of the store's clock that nodes have seen."""
    found: list[Finding] = []
    for node in await coordinator.nodes():
        if failing := node.metrics.get(FAILING, 0.0):
            message = f"{failing:.0f} of its services fail repeatedly: see its log"
            found.append(Finding(Severity.PROBLEM, f"node {node.id}", message))
        if doubt := node.metrics.get(CLOCK_DOUBT, 0.0):
            message = f"the store's clock has jumped by {doubt:+.1f} s, which is not believed unless it stays so"
            found.append(Finding(Severity.PROBLEM, f"node {node.id}", message))
    return found


async def _settings(coordinator: Coordinator) -> list[Finding]:
    """The settings of the cluster, those that nodes cannot apply, and the nodes that apply others."""
    stored = in_force(SchedulerConfig(), await coordinator.get(KEY))
    found = [Finding(Severity.WARNING, "settings", f"not applied: {why}") for why in stored.problems.values()]
    if stored.values:
        said = ", ".join(f"{name}={stored.stored[name].value}" for name in stored.values)
        found.append(Finding(Severity.OK, "settings", f"{said} (revision {stored.revision}) for all nodes"))
    for node in await coordinator.nodes():
        applied = node.metrics.get(SETTINGS, 0.0)
        if applied != stored.revision:
            message = f"applies revision {applied:.0f} of the cluster's settings, not {stored.revision}"
            found.append(Finding(Severity.WARNING, f"node {node.id}", message))
        pinned = sorted(name.removeprefix(PINNED) for name in node.metrics if name.startswith(PINNED))
        if pinned:
            message = f"pins {', '.join(pinned)}: its own configuration holds there"
            found.append(Finding(Severity.OK, f"node {node.id}", message))
    return found
