"""Logs: events as records of the standard library's logging, under `duly.*`.

A retryable failure is a warning, a final one an error. `configure_logging` is for the command line and `run_forever`;
as a library, Duly never changes logging handlers.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

from duly.model import Run, State
from duly.model import event as events
from duly.model.current_run import current_fields, run_fields
from duly.observe.logger import Level, Logger, Voice
from duly.ports.clock import BELIEVE_AFTER
from duly.rules.describe import instant
from duly.rules.printable import escaped
from duly.rules.redaction import redacted

_TALKATIVE = ("httpx2", "httpcore2")  # the HTTP client for etcd logs every request at INFO
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class EventLog:
    """A subscriber that logs: to `duly.run` and `duly.node`, or to the user's logger.

    Events of ordinary success are created only if they would be logged.
    """

    def __init__(self, logger: Logger | None = None) -> None:
        self._run = Voice(logger or logging.getLogger("duly.run"))
        self._node = Voice(logger or logging.getLogger("duly.node"))
        self._fields: dict[str, Any] = {}

    def wants(self, kind: type[events.Event]) -> bool:
        return kind not in _SILENT and (kind not in _CHATTY or self._run.debugging)

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.RunStarted(run, late):
                if self._run.debugging:
                    self._tell("debug", run, f"started, {late * 1000:.1f} ms late", late=late)
            case events.RunEnded():
                self._tell_end(event)
            case _ if type(event) in _SILENT:
                pass
            case events.RunMissed(run, late):
                self._tell("warning", run, f"skipped as a misfire: it was claimed {late:.0f} s late", late=late)
            case events.RunReleased(run):
                self._tell("info", run, "given back: the node is stopping")
            case _:
                self._tell_of_node(event)

    def _tell(self, level: Level, run: Run, message: str, **fields: Any) -> None:
        self._run.tell(level, f"{run.job} {run.id}: {message}", run_fields(run) | fields)

    def _tell_end(self, event: events.RunEnded) -> None:
        took = f"after {event.seconds:.3f} s"
        failure = f": {event.failure.type}: {event.failure.message}" if event.failure else ""
        outcome, fields = event.outcome.value, {"outcome": event.outcome.value, "seconds": event.seconds}
        match event.state:
            case State.COMPLETED | State.CANCELLED:
                if self._run.debugging:
                    self._tell("debug", event.run, f"{outcome} {took}", **fields)
            case State.PENDING:
                again = f", again at {event.retry_at:%H:%M:%S}" if event.retry_at else ""
                self._tell("warning", event.run, f"{outcome} {took}{failure}{again}", **fields)
            case _:
                text = _indented(event.failure.traceback if event.failure else "")
                self._tell("error", event.run, f"{event.state.value} {took}{failure}{text}", **fields)

    def _tell_of_node(self, event: events.Event) -> None:
        match event:
            case events.NodeStarted(node):
                self._fields = {"node": node}
            case events.LeaderElected(lease):  # may come before NodeStarted
                self._fields = {"node": lease.holder}
            case _:
                pass
        level, message = _of_node(event)
        self._node.tell(_WORDS[level], message, self._fields)


# For metrics, or for those who follow the published events.
_SILENT = frozenset(
    {
        events.RunsClaimed,
        events.RunProgressed,
        events.RunsSettled,
        events.RunsSubmitted,
        events.CancelAsked,
        events.RunRedriven,
        events.QueuePaused,
        events.QueueResumed,
    }
)
_CHATTY = (events.RunStarted, events.RunEnded)
_WORDS: dict[int, Level] = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
}


def _of_node(event: events.Event) -> tuple[int, str]:
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
            return logging.INFO, f"job file {job_file}: {len(changes)} changes applied" + _indented("\n".join(changes))
        case events.JobFileOutdated(job_file, since):
            text = f"job file {job_file}: this file is not applied, a newer one has taken its place"
            return logging.WARNING, f"{text} ({since:%Y-%m-%d %H:%M:%S}Z); `duly apply` would put it back in force"
        case events.SettingsApplied(revision, changes, problems):
            text = f"cluster settings, revision {revision}: {', '.join(changes) or 'no changes on this node'}"
            if not problems:
                return logging.INFO, text
            return logging.WARNING, f"{text}; not applied: {'; '.join(problems)}"
        case events.StoreBack(service, seconds):
            return logging.INFO, f"{service}: the store can be reached again after {seconds:.1f} s"
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
        case events.StoreAway(service, message, retry_in, part):
            return logging.WARNING, f"{service}: the {part} cannot be reached ({message}), next try in {retry_in:.1f} s"
        case events.DataLost(service, message):
            return logging.ERROR, f"{service}: the store lost acknowledged changes: {message} (see `duly doctor`)"
        case events.ServiceFailed(service, failure, retry_in):
            text = f"{service} failed: {failure.type}: {failure.message}; retrying in {retry_in:.1f} s"
            return logging.ERROR, text + _indented(failure.traceback)
        case events.PlanFailed(job, failure):
            return logging.ERROR, f"job {job} cannot be planned: {failure.type}: {failure.message}"
        case events.HookFailed(hook, job, run_id, failure):
            text = f"{hook} of {job} failed for run {run_id}: {failure.type}: {failure.message}"
            return logging.ERROR, text + _indented(failure.traceback)
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
            text = f"no node reached the store from {instant(since)} to {instant(until)}"
            return logging.INFO, f"{text}: the nodes or the store were down"
        case events.ClockDoubted(seconds):
            text = f"the store's clock has jumped by {seconds:+.1f} s"
            return logging.ERROR, f"{text}: the new time is used only if it lasts for {BELIEVE_AFTER:g} s"
        case events.ClockTrusted(seconds, followed):
            how = "has lasted: the new time is used" if followed else "was reverted"
            return logging.WARNING, f"the jump of the store's clock by {seconds:+.1f} s {how}"
        case events.LoopStalled(seconds, stack):
            return logging.WARNING, f"the event loop has not turned for {seconds:.1f} s{_indented(stack)}"
        case _:
            return logging.INFO, repr(event)


def _indented(text: str) -> str:
    return "\n" + "\n".join(f"    {line}" for line in text.rstrip().splitlines()) if text else ""


class RunFields(logging.Filter):
    """Adds the current run to every log record, including those of the user's own loggers."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "run_id"):
            vars(record).update(current_fields())
        return True


def add_run_fields(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The same for structlog: a processor, for the list that `structlog.configure` takes."""
    for name, value in current_fields().items():
        event.setdefault(name, value)
    return event


class TextFormatter(logging.Formatter):
    """One record as text. Lines after the first are indented, so that no text in it looks like another record.

    Messages contain text from handlers and callers: control characters are escaped, secrets are hidden.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        text = escaped(redacted(super().format(record)), keep="\n\t")
        return _CONTINUED.sub("\n    ", text) if "\n" in text else text


_CONTINUED = re.compile(r"\n(?!    )")


class JsonFormatter(logging.Formatter):
    """One line of JSON per record, with its extra fields. These cannot override Duly's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = redacted(self.formatException(record.exc_info))
        carried = {key: value for key, value in vars(record).items() if key not in _STANDARD and key not in line}
        fields = {key: redacted(value) if isinstance(value, str) else value for key, value in carried.items()}
        try:
            return json.dumps(line | fields, default=_told, allow_nan=False)
        except (TypeError, ValueError, RecursionError):  # a key that is not a string, NaN, a list that contains itself
            return json.dumps(line | {str(key): _told(value) for key, value in fields.items()})


def _told(value: object) -> str:
    """A value as text, even if its `__str__` raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  # the user's code
        return f"<{type(value).__name__}>"


_DULY = logging.getLogger("duly")
_configured: list[int] = []  # the level of `duly` before the cluster's setting, while one is in force


def set_log_level(level: str | None) -> None:
    """Set the level of `duly.*`; None restores the configured level."""
    if level is not None:
        _configured[:] = _configured or [_DULY.level]
        _DULY.setLevel(level)
    elif _configured:
        _DULY.setLevel(_configured.pop())


def configure_logging(level: str = "INFO", layout: str = "TEXT", stream: TextIO | None = None) -> None:
    """Send `duly.*` and the user's records to standard error, as text or JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.addFilter(RunFields())
    if layout.upper() == "JSON":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.WARNING)
