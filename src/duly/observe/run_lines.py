"""Log lines about runs: one for each attempt that ended, as long as these are not too many.

Up to 50 lines a second are written about runs that completed, and as many about those that did not; what is more is
counted, and one line a second says how many there were. While completed runs are only counted, `wants_each` is False:
then the settler need not report them one by one, and a busy node spends next to nothing on its log. At DEBUG each run
has its line.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from duly.model import Run, State, iso, seconds_between, short_id
from duly.model import event as events
from duly.model.current_run import run_fields
from duly.observe.logger import Level, Voice
from duly.observe.node_messages import failure_fields, indented
from duly.rules.durations import span
from duly.rules.tracebacks import folded

MOST_LINES = 50  # a second, of each kind
_WINDOW = 1.0
_MOST_JOBS = 3


class RunLines:
    """Writes what became of runs. Belongs to one event loop, like the node whose events it gets."""

    def __init__(self, voice: Voice, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._voice = voice
        self._monotonic = monotonic
        self._window = _Window(monotonic())
        self._timer: asyncio.TimerHandle | None = None

    @property
    def wants_each(self) -> bool:
        """Whether runs that complete are to be reported one by one."""
        if not self._voice.informing:
            return False
        return self._voice.debugging or self._window.completed_lines < MOST_LINES or self._is_over()

    def settled(self, event: events.RunsSettled) -> None:
        """Results of that many runs were stored; the events of single runs follow."""
        if self._is_over():
            self.flush()
        self._window.settled += event.count
        if self._window.completed_lines >= MOST_LINES:
            self._flush_later()

    def refused(self) -> None:
        """The store did not accept the result of a run."""
        self._window.others += 1

    def ended(self, event: events.RunEnded) -> None:
        """An attempt ended."""
        if event.state is State.COMPLETED:
            self._completed(event)
        else:
            self._window.others += 1
            self._not_completed(event)

    def given_back(self, run: Run) -> None:
        """A run was given back because the node is stopping."""
        self._window.others += 1
        self._write("info", run, "given back: the node is stopping")

    def missed(self, run: Run, late: float) -> None:
        """A run was skipped because it was claimed too late."""
        self._window.others += 1
        self._limited("warning", run, f"skipped as a misfire: it was claimed {span(late)} late", {"late": late})

    def started(self, run: Run, late: float) -> None:
        """A handler starts."""
        if self._voice.debugging:
            self._write("debug", run, f"started, {span(late)} late", {"late": late})

    # --- single lines

    def _completed(self, event: events.RunEnded) -> None:
        if not self._voice.informing:
            return
        if self._window.completed_lines >= MOST_LINES and not self._voice.debugging:
            self._flush_later()
            return
        self._window.completed_lines += 1
        fields = _fields(event)
        self._write("info", event.run, f"completed in {span(event.seconds)}, {span(fields['late'])} late", fields)

    def _not_completed(self, event: events.RunEnded) -> None:
        run, took = event.run, span(event.seconds)
        failure = f": {event.failure.type}: {event.failure.message}" if event.failure else ""
        outcome = event.outcome.value.replace("_", " ")
        match event.state:
            case State.CANCELLED:
                self._limited("info", run, f"cancelled after {took}", _fields(event))
            case State.PENDING:
                text = f"{_attempt(run)} {outcome} after {took}{failure}{_again(event)}"
                self._limited("warning", run, f"{text}{self._trace(event)}", _fields(event))
            case _:
                text = f"{event.state.value}, {_attempt(run)} {outcome} after {took}{failure}"
                self._limited("error", run, f"{text}{self._trace(event)}", _fields(event))

    def _trace(self, event: events.RunEnded) -> str:
        """The traceback, of which only DEBUG shows the frames of other people's code."""
        trace = event.failure.traceback if event.failure else ""
        return indented(trace if self._voice.debugging else folded(trace))

    def _limited(self, level: Level, run: Run, message: str, fields: dict[str, Any]) -> None:
        if self._window.other_lines >= MOST_LINES and not self._voice.debugging:
            self._window.left_out[run.job] += 1
            self._flush_later()
            return
        self._window.other_lines += 1
        self._write(level, run, message, fields)

    def _write(self, level: Level, run: Run, message: str, fields: dict[str, Any] | None = None) -> None:
        self._voice.tell(level, f"{run.job} {short_id(run.id)}: {message}", run_fields(run) | (fields or {}))

    # --- what was left out

    def flush(self) -> None:
        """Say what was left out, and begin anew."""
        window, self._window = self._window, _Window(self._monotonic())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        seconds = max(self._window.since - window.since, _WINDOW)
        if self._voice.informing and (more := window.settled - window.others - window.completed_lines) > 0:
            text = f"{more} more runs completed within {span(seconds)}: above {MOST_LINES} a second they are counted"
            self._voice.tell("info", text, {"completed": more, "seconds": seconds})
        if window.left_out:
            more = window.left_out.total()
            jobs = ", ".join(f"{job} ({count})" for job, count in window.left_out.most_common(_MOST_JOBS))
            text = (
                f"{more} more attempts did not complete within {span(seconds)}: {jobs}; see `duly runs --state failed`"
            )
            self._voice.tell("warning", text, {"not_completed": more, "seconds": seconds})

    def _is_over(self) -> bool:
        return self._monotonic() >= self._window.since + _WINDOW

    def _flush_later(self) -> None:
        """What was left out is told even if nothing follows."""
        if self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(_WINDOW, self.flush)
            except RuntimeError:  # outside of a loop the next event does it
                return


class _Window:
    """What happened within a second."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.settled = 0  # results stored: of runs that completed, and of others
        self.others = 0
        self.completed_lines = 0
        self.other_lines = 0
        self.left_out: Counter[str] = Counter()


def _fields(event: events.RunEnded) -> dict[str, Any]:
    run = event.run
    fields: dict[str, Any] = {
        "outcome": event.outcome.value,
        "state": event.state.value,
        "seconds": event.seconds,
        "late": max(0.0, seconds_between(run.ready_at, run.started_at)) if run.started_at else 0.0,
        "queue": run.queue,
        "handler": run.handler,
        "due": iso(run.due),
        "max_attempts": run.policy.retry.max_retries + 1,
    }
    if event.failure is not None:
        fields |= failure_fields(event.failure)
    return fields if event.retry_at is None else fields | {"retry_at": iso(event.retry_at)}


def _attempt(run: Run) -> str:
    """Which of how many attempts this is; those that were interrupted or lost do not count."""
    return f"attempt {run.failures + 1} of {run.policy.retry.max_retries + 1}"


def _again(event: events.RunEnded) -> str:
    return "" if event.retry_at is None else f"; next attempt at {event.retry_at.astimezone():%H:%M:%S}"
