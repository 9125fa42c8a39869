"""Why a run waits: a pure function of the run and the present situation, which returns one plain sentence.

The first thing that keeps the run from starting is the reason, with the setting that decides, if one does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from duly.model import Cause, JobRecord, Node, Role, Run, State
from duly.model.holds import ALONE, UNPLACED, hold_for_group, hold_for_handler, hold_for_job
from duly.model.job import COMMAND_HANDLER
from duly.model.transfer import FROZEN
from duly.rules.describe import instant
from duly.rules.placement import lacks, why_unplaced

BUSY, SLOTS = "running", "slots"  # metrics of a node: occupied slots, and all slots
CLOSED = "closed"  # also a metric: present if the node starts nothing, because a suspect is or will be alone on it
_NAMED = 3


class Situation(Struct, frozen=True):
    """The present situation, as far as it can prevent a run from starting.

    `nodes` are the live nodes, None if they are unknown because the coordinator is unreachable. `record` is the
    definition of the run's job, `blocker` an unfinished run of its group; `all_searched` is False if there may be one
    that was not found because the job has too many runs. `doubt` is by how many seconds the store's clock has jumped.
    `leader` leads the cluster, `planner` the shard that the job is in.
    """

    now: datetime
    nodes: Sequence[Node] | None = ()
    leader: str | None = None
    planner: str | None = None
    paused_queues: Collection[str] = ()
    record: JobRecord | None = None
    blocker: Run | None = None
    all_searched: bool = True
    doubt: float = 0.0


class Reason(Struct, frozen=True):
    """A sentence, and the setting that decides."""

    text: str
    setting: str | None = None


def why_waiting(run: Run, situation: Situation) -> Reason:
    """What keeps a waiting run from starting now."""
    if run.hold is not None:
        return _held(run, situation)
    if run.ready_at > situation.now:
        return _early(run, situation)
    return _blocked(run, situation) or _unserved(run, situation)


# --- held


def _held(run: Run, situation: Situation) -> Reason:
    record = situation.record
    if run.hold == UNPLACED:
        if situation.nodes is None:
            return Reason("It waits to be given to a node: the coordinator is away, so nobody leads.", "coordinator")
        selector = None if record is None else record.spec.selector
        why = why_unplaced(run, situation.nodes, selector, situation.leader, situation.paused_queues)
        return Reason(f"It waits to be given to a node: {why}.", "placement")
    if run.hold == hold_for_job(run.job):
        return _stopped_job(record)
    if run.hold == hold_for_handler(run.handler):
        return _no_handler(run, situation.nodes or ())
    if run.group is not None and run.hold == hold_for_group(run.group):
        return Reason(f"It waits until {describe_blocker(situation.blocker)}.", f"overlap={run.when_full.value!r}")
    if run.hold == ALONE:
        return _suspect(run, situation)
    return Reason(f"It is held ({run.hold}).", run.hold)


def _suspect(run: Run, situation: Situation) -> Reason:
    times = "once" if run.losses == 1 else f"{run.losses} times"
    lost = f"Its worker vanished {times}, so it may be the cause and is tried alone"
    if run.ready_at > situation.now:
        return Reason(f"{lost}, at {instant(run.ready_at)} or later.", "max_losses")
    if other := _blocked(run, situation):
        return Reason(f"{lost}. {other.text}", other.setting)
    able = _able(run, situation)
    if isinstance(able, Reason):
        return Reason(f"{lost}. {able.text}", able.setting)
    where = f"{'one of ' if len(able) > 1 else ''}{_names(able)}"
    return Reason(f"{lost}: it waits until {where} has no other run.", "max_losses")


def _stopped_job(record: JobRecord | None) -> Reason:
    if record is None or record.removed_at is not None:
        return Reason("It waits because its job was removed.", "remove")
    if record.paused is None:
        return Reason("Its job was paused and is being resumed: it is about to wait for a worker again.", "pause")
    note = f" ({record.paused.note})" if record.paused.note else ""
    return Reason(f"It waits because its job has been paused since {instant(record.paused.at)}{note}.", "pause")


def describe_blocker(blocker: Run | None) -> str:
    """What must happen before another run of the same job may start."""
    match blocker:
        case None:
            return "an earlier run of the job has ended"
        case Run(state=State.RUNNING):
            since = f" since {instant(blocker.started_at)}" if blocker.started_at else ""
            return f"run {blocker.id} has ended, which runs on {blocker.node}{since}"
        case _ if blocker.failures or blocker.losses:
            at = instant(blocker.ready_at)
            return f"run {blocker.id} has ended, which waits for its attempt {blocker.attempt} at {at}"
        case _:
            return f"run {blocker.id} has ended, which is ready and has not started yet"


# --- not ready yet


def _early(run: Run, situation: Situation) -> Reason:
    where = "" if run.assignee is None else f" on {run.assignee}, which it is assigned to"
    at = instant(run.ready_at)
    jumped = ""
    if situation.doubt:
        jumped = f" The store's clock has jumped by {situation.doubt:+.0f} s, which is not believed yet."
    if run.failures or run.losses:
        most = run.policy.retry.max_retries + 1 + run.losses
        return Reason(f"It waits for its attempt {run.attempt} of at most {most}{where}, at {at}.{jumped}", "retry")
    return Reason(f"It waits for its time{where}, {at}.{jumped}", "clock" if jumped else None)


# --- ready


def _blocked(run: Run, situation: Situation) -> Reason | None:
    if FROZEN in situation.paused_queues:
        return Reason("It is ready and waits because the store is frozen: it is being exported or moved.", "duly copy")
    if run.queue in situation.paused_queues:
        return Reason(f"It is ready and waits because the queue {run.queue!r} is paused.", f"queue {run.queue!r}")
    record = situation.record
    if record is not None and record.paused is not None:
        return _stopped_job(record)
    if run.group is None or run.member:
        return None
    if situation.blocker is not None:
        return Reason(f"It waits until {describe_blocker(situation.blocker)}.", f"overlap={run.when_full.value!r}")
    if not situation.all_searched:
        text = (
            "It may wait until an earlier run of the job has ended: the job has too many runs to look at all of them."
        )
        return Reason(text, f"overlap={run.when_full.value!r}")
    return None


def _unserved(run: Run, situation: Situation) -> Reason:
    """The reason for a ready run without a hold: whether any node can start it."""
    able = _able(run, situation)
    if isinstance(able, Reason):
        return able
    return _busy(run, able, _since(run) if run.assignee is None else f"{_since(run)} and assigned to {run.assignee}")


def _since(run: Run) -> str:
    return f"It has been ready since {instant(run.ready_at)}"


def _able(run: Run, situation: Situation) -> Sequence[Node] | Reason:
    """The live nodes that could start a run if they had room; if there is none, why."""
    since, nodes = _since(run), situation.nodes
    if nodes is None:
        return Reason(f"{since}; the coordinator is away, so it is not known which workers are alive.", "coordinator")
    if not nodes:
        return Reason(f"{since}, but no node is alive: start one with `duly run`.", "nodes")
    workers = [node for node in nodes if Role.WORKER in node.roles and node.capacity > 0]
    if not workers:
        names = _names(nodes)
        return Reason(f"{since}, but no worker is alive: {names} only plan, or are stopping.", "roles")
    if run.assignee is not None:
        mine = [node for node in workers if node.id == run.assignee]
        gone = f"{since} and assigned to {run.assignee}, which is not alive: it is taken back soon."
        return mine or Reason(gone, "placement")
    listening = [node for node in workers if node.queues is None or run.queue in node.queues]
    if not listening:
        served = "; ".join(f"{node.id} serves {', '.join(node.queues or ())}" for node in workers[:_NAMED])
        return Reason(f"{since}, but no live worker serves the queue {run.queue!r}: {served}.", "queues")
    able = [node for node in listening if run.handler in node.handlers]
    if not able:
        return _no_handler(run, listening)
    selector = situation.record.spec.selector if run.assignable and situation.record is not None else None
    missing = {node.id: lacks(node, run, selector) for node in able}
    if all(missing.values()):
        lacking = "; ".join(f"{name} {lack}" for name, lack in sorted(missing.items())[:_NAMED])
        return Reason(f"{since}, but no live worker matches its selector: {lacking}.", "selector")
    return [node for node in able if missing[node.id] is None]


def _no_handler(run: Run, nodes: Sequence[Node]) -> Reason:
    needed = "runs the commands of files" if run.handler == COMMAND_HANDLER else f"has the handler {run.handler!r}"
    able = [node for node in nodes if Role.WORKER in node.roles and run.handler in node.handlers]
    if able:
        return Reason(
            f"{_names(able)} {'has' if len(able) == 1 else 'have'} its handler and will claim it in a moment."
        )
    alive = f"alive: {_names(nodes)}" if nodes else "no node is alive"
    return Reason(f"It waits for a node that {needed} ({alive}).", "no_handler")


def _busy(run: Run, able: Sequence[Node], since: str) -> Reason:
    taking = [node for node in able if CLOSED not in node.metrics]
    if not taking:
        verb = "starts" if len(able) == 1 else "start"
        why = "runs alone whose workers vanished"
        return Reason(f"{since}, but {_names(able)} {verb} nothing else while trying {why}.", "max_losses")
    slots = sum(_metric(node.metrics, SLOTS, node.capacity) for node in taking)
    busy = sum(_metric(node.metrics, BUSY, 0) for node in taking)
    if busy >= slots:
        full = f"all {slots:.0f} slots of {_names(taking)} are busy"
        return Reason(f"{since} and waits for a free slot: {full}. {_turn(run)}", "max_concurrent")
    return Reason(
        f"{since} and {_names(taking)} {'has' if len(taking) == 1 else 'have'} room: it should start in a moment."
    )


def _turn(run: Run) -> str:
    """Which runs start before this one."""
    share = f"of the places for priority {run.priority}, scheduled runs get at least a quarter"
    kind = "this is one of them" if run.cause is Cause.SCHEDULE else "this is not one of them"
    return f"Runs with a higher priority start first; {share} ({kind})."


def _metric(metrics: Mapping[str, float], name: str, default: float) -> float:
    return metrics.get(name, float(default))


def _names(nodes: Sequence[Node]) -> str:
    named = ", ".join(node.id for node in nodes[:_NAMED])
    return named if len(nodes) <= _NAMED else f"{named} and {len(nodes) - _NAMED} more"
