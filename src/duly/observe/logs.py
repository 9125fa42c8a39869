"""Logs: events as records of the standard library's logging, under `duly.*`.

A completed run is an INFO record, a retryable failure a warning, a final one an error. `configure_logging` is for the
command line and `run_forever`; as a library, Duly never changes logging handlers.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

from duly.model import event as events
from duly.model import short_id
from duly.model.current_run import current_fields
from duly.observe.logger import Level, Logger, Voice
from duly.observe.node_messages import event_fields, node_message
from duly.observe.run_lines import RunLines
from duly.observe.store_outages import Line, StoreOutages, outage_detail
from duly.rules.printable import escaped
from duly.rules.redaction import redacted
from duly.rules.repeats import Repeats, repeat

_TALKATIVE = ("httpx2", "httpcore2")  # the HTTP client for etcd logs every request at INFO
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class EventLog:
    """A subscriber that logs: to `duly.run` and `duly.node`, or to the user's logger.

    Events of ordinary success are created only if they would be logged. A warning that repeats is not written each
    time: see `rules.repeats`.
    """

    def __init__(self, logger: Logger | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._run = Voice(logger or logging.getLogger("duly.run"))
        self._node = Voice(logger or logging.getLogger("duly.node"))
        self._fields: dict[str, Any] = {}
        self._monotonic = monotonic
        self._lines = RunLines(self._run, monotonic)
        self._outages = StoreOutages(monotonic)
        self._repeats: dict[tuple[object, ...], Repeats] = {}

    def wants(self, kind: type[events.Event]) -> bool:
        if kind is events.RunEnded:
            return self._lines.wants_each
        if kind is events.RunStarted:
            return self._run.debugging
        if kind is events.RunsSettled:
            return self._run.informing
        return kind not in _SILENT

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.RunStarted(run, late):
                self._lines.started(run, late)
            case events.RunEnded():
                self._lines.ended(event)
            case events.RunsSettled():
                self._lines.settled(event)
            case _ if type(event) in _SILENT:
                pass
            case events.RunMissed(run, late):
                self._lines.missed(run, late)
            case events.RunReleased(run):
                self._lines.given_back(run)
            case _:
                self._tell_of_node(event)

    def _tell_of_node(self, event: events.Event) -> None:
        match event:
            case events.NodeStarted(node):
                self._fields = {"node": node}
            case events.LeaderElected(lease):  # may come before NodeStarted
                self._fields = {"node": lease.holder}
            case events.NodeStopped():
                self._lines.flush()
                self._outages.forget()
            case events.SettlementRefused() | events.SettlementAbandoned():
                self._lines.refused()
            case events.StoreAway():
                self._tell_outage("warning", event, self._outages.away(event))
                return
            case events.StoreBack():
                self._tell_outage("info", event, self._outages.back(event))
                return
            case _:
                pass
        earlier = self._earlier(event)
        if earlier is not None:
            level, message = node_message(event)
            first, *rest = message.split("\n", 1)
            text = "\n".join([f"{first}{earlier}", *rest])
            self._node.tell(_WORDS[level], text, event_fields(event) | self._fields)

    def _tell_outage(self, level: Level, event: events.StoreAway | events.StoreBack, line: Line | None) -> None:
        """Write what is to be written of an outage; the rest is for DEBUG only."""
        if line is not None:
            text, fields = line
            self._node.tell(level, text, {"kind": type(event).__name__, **fields, **self._fields})
        elif self._node.debugging:
            self._node.tell("debug", outage_detail(event), event_fields(event) | self._fields)

    def _earlier(self, event: events.Event) -> str | None:
        """What to add to a warning that repeats; None if it is only counted this time."""
        subject = _subject(event)
        if subject is None:
            return ""
        if len(self._repeats) >= _MOST_SUBJECTS:
            self._repeats.clear()
        self._repeats[subject], left_out = repeat(self._repeats.get(subject), self._monotonic())
        if left_out is None:
            return None
        return f" ({left_out} more like this were not logged)" if left_out else ""


def _subject(event: events.Event) -> tuple[object, ...] | None:
    """What a warning is about, if it may repeat; the others say that something has changed."""
    match event:
        case events.ServiceFailed(service):
            return events.ServiceFailed, service
        case events.PlanFailed(job) | events.JobConflict(job):
            return type(event), job
        case events.HookFailed(hook, job):
            return events.HookFailed, hook, job
        case events.AfterCommitFailed(_, job) | events.SlotLeaked(_, job):
            return type(event), job
        case events.RecordUnreadable(kind):
            return events.RecordUnreadable, kind
        case events.SettlementAbandoned(run):
            return events.SettlementAbandoned, run.job
        case events.SettlementRefused() | events.ClaimUntrusted() | events.NodeIdShared():
            return (type(event),)
        case _:
            return None


# For metrics, or for those who follow the published events.
_SILENT = frozenset(
    {
        events.RunsClaimed,
        events.RunProgressed,
        events.RunsSubmitted,
        events.CancelAsked,
        events.RunRedriven,
        events.QueuePaused,
        events.QueueResumed,
    }
)
_WORDS: dict[int, Level] = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
}
_MOST_SUBJECTS = 1000


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

    Times are local, with their offset from UTC. A record that was logged inside a handler begins with its run: job,
    short id, attempt. Messages contain text from handlers and callers: control characters are escaped, secrets are
    hidden.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        text = escaped(redacted(super().format(record)), keep="\n\t")
        return _CONTINUED.sub("\n    ", text) if "\n" in text else text

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  # as inherited
        return datetime.fromtimestamp(record.created, UTC).astimezone().isoformat(sep=" ", timespec="milliseconds")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # as inherited
        run_id, job = getattr(record, "run_id", None), getattr(record, "job", None)
        if isinstance(run_id, str):
            run = short_id(run_id) if job is None else f"{job} {short_id(run_id)}"
            if not record.message.startswith(run):  # Duly's own records about runs begin with it
                attempt = getattr(record, "attempt", None)
                number = "" if attempt is None else f" attempt {attempt}"
                record.message = f"{run}{number}: {record.message}"
        return super().formatMessage(record)


_CONTINUED = re.compile(r"\n(?!    )")


class JsonFormatter(logging.Formatter):
    """One line of JSON per record, with its extra fields. These cannot override Duly's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": redacted(_without_trace(record)),
        }
        if record.exc_info:
            line["exception"] = redacted(self.formatException(record.exc_info))
        carried = {key: value for key, value in vars(record).items() if key not in _STANDARD and key not in line}
        fields = {key: redacted(value) if isinstance(value, str) else value for key, value in carried.items()}
        try:
            return json.dumps(line | fields, default=_told, allow_nan=False)
        except (TypeError, ValueError, RecursionError):  # a key that is not a string, NaN, a list that contains itself
            return json.dumps(line | {str(key): _told(value) for key, value in fields.items()})


def _without_trace(record: logging.LogRecord) -> str:
    """The message of a record without the traceback below it, if the traceback is also a field."""
    message = record.getMessage()
    return message.partition("\n    Traceback (")[0] if hasattr(record, "traceback") else message


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
