"""The demo as lines, one per event, for pipes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import click

from duly.cli.output import BAD, GOOD, LIVE, WARN
from duly.cli.text import line, span
from duly.model import Run, State
from duly.model.event import Event, RunEnded, RunMissed, RunReleased, RunStarted
from duly.scheduler import JobView


class EventLines:
    """Writes a line per event."""

    def __init__(self) -> None:
        self._started = datetime.now(UTC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None) -> None:
        pass

    def handle(self, event: Event) -> None:
        match event:
            case RunStarted(run, late):
                priority = f", priority {run.priority}" if run.priority else ""
                attempt = f", attempt {run.attempt}" if run.attempt > 1 else ""
                self._write("started", LIVE, run.job, f"{span(late)} late{attempt}{priority}")
            case RunEnded(run, _, State.COMPLETED, seconds):
                self._write("completed", GOOD, run.job, f"in {span(seconds)}")
            case RunEnded(run, outcome, state, _, failure, retry_at):
                reason = f"{failure.type}: {failure.message}" if failure else outcome.value
                again = math.nan if retry_at is None else (retry_at - datetime.now(UTC)).total_seconds()
                word, colour = ("retry", WARN) if retry_at else (state.value, BAD)
                self._write(word, colour, run.job, f"{reason}, retry in {span(again)}" if retry_at else reason)
            case RunMissed(run, late):
                self._write("skipped", WARN, run.job, f"a misfire: {span(late)} late")
            case RunReleased(run):
                self._write("released", WARN, run.job, "the node is stopping")
            case _:
                pass

    def draw(self, views: Sequence[JobView], running: Sequence[Run]) -> None:
        """Nothing to do: each event is written when it happens."""

    def skipped(self, runs: Sequence[Run]) -> None:
        """Write skipped runs, which have no events."""
        for run in runs:
            self._write("skipped", WARN, run.job, f"{run.reason}, due {run.due:%H:%M:%S}")

    def say(self, text: str) -> None:
        """Write a line that belongs to no run."""
        click.echo(text)

    def _write(self, word: str, colour: str, job: str, text: str) -> None:
        since = (datetime.now(UTC) - self._started).total_seconds()
        click.echo(f"{since:7.3f} {click.style(f'{word:<9}', fg=colour)} {job:<21}  {line(text)}")
