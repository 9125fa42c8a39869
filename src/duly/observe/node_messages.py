"""What is logged about events of the node, other than those of its runs: a level and a text for each.

Times in texts are local, as the times of the records are.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from duly.model import Failure, Run, iso
from duly.model import event as events
from duly.model.current_run import run_fields
from duly.ports.clock import BELIEVE_AFTER

# Fields of events under other names: a record has a `message` and a `name` of its own, `node` is the node that logs.
_RENAMED = {
    "message": "error",
    "name": "record",
    "kind": "record_kind",
    "node": "about_node",
    "nodes": "about_nodes",
    "runs": "run_count",
}
_MOST_VALUES = 100


def local(at: datetime) -> str:
    """A time in the time zone of this machine, with its offset."""
    return at.astimezone().isoformat(sep=" ", timespec="seconds")


def indented(text: str) -> str:
    """Further lines of a message, below its first one; empty for an empty text."""
    return "\n" + "\n".join(f"    {line}" for line in text.rstrip().splitlines()) if text else ""


def failure_fields(failure: Failure) -> dict[str, Any]:
    """The fields of a log record that describe a failure."""
    fields = {"error_type": failure.type, "error": failure.message}
    return fields | {"traceback": failure.traceback} if failure.traceback else fields


def event_fields(event: events.Event) -> dict[str, Any]:
    """The fields of a log record that an event has, for logs that programs read."""
    fields: dict[str, Any] = {"kind": type(event).__name__}
    for name in event.__struct_fields__:
        match getattr(event, name):
            case Failure() as failure:
                fields |= failure_fields(failure)
            case Run() as run:
                fields |= run_fields(run)
            case datetime() as at:
                fields[name] = iso(at)
            case str() | int() | float() | None as value:
                fields[_RENAMED.get(name, name)] = value
            case tuple() as values if values and all(isinstance(each, str) for each in values):
                fields[_RENAMED.get(name, name)] = list(values[:_MOST_VALUES])
            case _:
                pass
    return fields


def node_message(event: events.Event) -> tuple[int, str]:
    """The level and the text of a record about this event."""
    match event:
        case events.NodeStarted(node, url):
            return logging.INFO, f"node {node} started on {url}"
        case events.NodeStopped(node, drained, released, interrupted, left):
            text = f"node {node} stopped: {drained} handlers finished while it was stopping, {released} runs given back"
            if interrupted:
                text += f", {interrupted} interrupted for good"
            if not left:
                return logging.INFO, text
            return (
                logging.WARNING,
                f"{text}, {left} left until their leases expire: the store could not be reached",
            )
        case events.LeaderElected(lease, epoch):
            return logging.INFO, f"leads {lease.name} (epoch {epoch})"
        case events.LeaderLost(shard, resigned):
            return (logging.INFO, f"resigned from {shard}") if resigned else (logging.WARNING, f"lost {shard}")
        case events.JobSaved(job, revision, what):
            level = logging.DEBUG if what == "deployed" else logging.INFO
            return level, f"job {job}: {what} (revision {revision})"
        case events.JobConflict(job, reason):
            return logging.WARNING, f"job {job} was not saved: {reason}"
        case events.NotificationFailed(target, notification, error):
            return logging.WARNING, f"notification {notification} did not reach {target}: {error}"
        case events.NotificationsLost(reason):
            return logging.ERROR, f"the stored state of notifications cannot be read, it begins again: {reason}"
        case events.JobFileApplied(job_file, changes):
            return logging.INFO, f"job file {job_file}: {len(changes)} changes applied" + indented("\n".join(changes))
        case events.JobFileOutdated(job_file, since):
            text = f"job file {job_file}: this file is not applied, a newer one has taken its place"
            return logging.WARNING, f"{text} ({local(since)}); `duly apply` would put it back in force"
        case events.SettingsApplied(revision, changes, problems):
            text = f"cluster settings, revision {revision}: {', '.join(changes) or 'no changes on this node'}"
            if not problems:
                return logging.INFO, text
            return logging.WARNING, f"{text}; not applied: {'; '.join(problems)}"
        case events.RunsReaped(run_ids, nodes):
            return logging.WARNING, f"took over {len(run_ids)} runs of vanished {', '.join(nodes)}"
        case events.RunsPlaced(runs, nodes):
            return logging.DEBUG, f"placed {runs} runs on {nodes} nodes"
        case events.RunsTakenBack(node, runs):
            return logging.WARNING, f"took back {runs} runs that waited for {node}, which is gone"
        case _:
            return _of_trouble(event)


def _of_trouble(event: events.Event) -> tuple[int, str]:
    match event:
        case events.DataLost(service, message):
            return logging.ERROR, f"{service}: the store lost acknowledged changes: {message} (see `duly doctor`)"
        case events.ServiceFailed(service, failure, retry_in):
            text = f"{service} failed: {failure.type}: {failure.message}; retrying in {retry_in:.1f} s"
            return logging.ERROR, text + indented(failure.traceback)
        case events.PlanFailed(job, failure):
            return logging.ERROR, f"job {job} cannot be planned: {failure.type}: {failure.message}"
        case events.HookFailed(hook, job, run_id, failure):
            text = f"{hook} of {job} failed for run {run_id}: {failure.type}: {failure.message}"
            return logging.ERROR, text + indented(failure.traceback)
        case events.AfterCommitFailed(run_id, job, failure):
            text = f"{job} raised after its transaction had committed: {failure.type}: {failure.message} (run {run_id})"
            return logging.ERROR, text
        case events.RecordUnreadable(kind, name, reason):
            way_out = "it ends as failed" if kind == "run" else "it is not planned until it is saved again or removed"
            return logging.ERROR, f"{kind} {name}: {reason}; {way_out}"
        case events.SettlementAbandoned(run, failure):
            text = f"run {run.id} of {run.job}: its outcome cannot be stored: {failure.type}: {failure.message}"
            return logging.ERROR, f"{text}; its lease will expire and another node will take it over"
        case events.SettlementRefused(run_id, fence):
            return logging.WARNING, f"run {run_id}: settled too late, its fence {fence} is no longer the latest"
        case events.ClaimsLost(run_ids):
            return logging.WARNING, f"lost the leases of {len(run_ids)} runs: {', '.join(run_ids[:5])}"
        case events.ClaimUntrusted(run_id, stopped):
            rest = "its handler was stopped" if stopped else "its handler continues"
            return logging.WARNING, f"run {run_id}: its lease could not be renewed in time; {rest}"
        case events.NodeIdShared(node, host, pid):
            way_out = "give each process its own node id (--node-id, WORKER_ID, SchedulerConfig(node_id=…))"
            return logging.ERROR, f"node id {node} is also used by process {pid} on {host}: {way_out}"
        case events.HandlersAbandoned(runs):
            names = ", ".join(f"{run.job} {run.id}" for run in runs[:5]) + (", …" if len(runs) > 5 else "")
            text = f"still running after being asked to stop: {names}"
            return logging.WARNING, f"{text}; given back, or interrupted for good; the handlers end with the process"
        case events.StopHindered(step, failure):
            return logging.WARNING, f"stopping, {step}: {failure.type}: {failure.message}"
        case events.SlotLeaked(run_id, job, leaked):
            text = f"{job}: the thread of run {run_id} is still running after its timeout and keeps its slot"
            return logging.WARNING, f"{text} ({leaked} such threads)"
        case events.PromisesChanged(durable_start):
            if durable_start:
                return logging.INFO, "the store keeps every acknowledged write again: at_most_once holds"
            text = "the store's settings were changed and it may now lose acknowledged writes: at_most_once no longer"
            return logging.ERROR, f"{text} holds, and its jobs are refused at the next start (see `duly doctor`)"
        case events.OutageNoted(since, until):
            text = f"no node reached the store from {local(since)} to {local(until)}"
            return logging.INFO, f"{text}: the nodes or the store were down"
        case events.ClockDoubted(seconds):
            text = f"the store's clock has jumped by {seconds:+.1f} s"
            return logging.ERROR, f"{text}: the new time is used only if it lasts for {BELIEVE_AFTER:g} s"
        case events.ClockTrusted(seconds, followed):
            how = "has lasted: the new time is used" if followed else "was reverted"
            return logging.WARNING, f"the jump of the store's clock by {seconds:+.1f} s {how}"
        case events.LoopStalled(seconds, stack):
            return logging.WARNING, f"the event loop has not turned for {seconds:.1f} s{indented(stack)}"
        case _:
            return logging.INFO, repr(event)
