"""The demo as a live table: jobs, countdowns, outcomes, lateness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from rich.console import Console, Group, JustifyMethod
from rich.live import Live
from rich.table import Table
from rich.text import Text

from duly.cli.demo.counts import DemoCounts, JobCounts, percentile
from duly.cli.output import COLOURS
from duly.cli.runs import progress
from duly.cli.text import line, span
from duly.model import Run, State
from duly.model.event import Event
from duly.scheduler import JobView

_TITLES = ("job", "schedule", "next", "last", "runs", "failed", "retries", "skipped", "late p50", "max", "now")
_RIGHT_ALIGNED = {"next", "runs", "failed", "retries", "skipped", "late p50", "max"}
_ONLY_IF_WIDE = {"schedule", "retries", "now"}
_WIDE = 120


class LiveTable:
    """A table that is drawn again by `draw` and `say`."""

    def __init__(self, counts: DemoCounts, *, colours: bool) -> None:
        self._console = Console(color_system="auto" if colours else None, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="visible")
        self._counts = counts
        self._table = Table()
        self._footer = Text()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None) -> None:
        self._live.stop()

    def handle(self, event: Event) -> None:
        """Nothing to do: the table shows what `DemoCounts` has counted."""

    def skipped(self, runs: Sequence[Run]) -> None:
        """Nothing to do, as for events."""

    def say(self, text: str) -> None:
        """Set the line below the table."""
        self._footer = Text(text, style="bright_black")
        self._redraw()

    def draw(self, views: Sequence[JobView], running: Sequence[Run]) -> None:
        """Show the current state of the jobs."""
        now = datetime.now(UTC)
        doing = {run.job: run for run in running}
        wide = self._console.width >= _WIDE
        titles = [title for title in _TITLES if wide or title not in _ONLY_IF_WIDE]
        self._table = Table(box=None, padding=(0, 2 if wide else 1, 0, 0), header_style="bold")
        for title in titles:
            side: JustifyMethod = "right" if title in _RIGHT_ALIGNED else "left"
            self._table.add_column(title, justify=side, no_wrap=title != "schedule")
        for view in views:
            if view.name in self._counts.jobs:
                row = _row(view, self._counts.jobs[view.name], doing, now)
                self._table.add_row(*(row[title] for title in titles))
        self._redraw()

    def _redraw(self) -> None:
        self._live.update(Group(self._table, self._footer), refresh=True)


def _row(view: JobView, job: JobCounts, doing: Mapping[str, Run], now: datetime) -> dict[str, Text]:
    left = None if view.next_run_at is None else max(0.0, (view.next_run_at - now).total_seconds())
    last = view.last_outcome.value if view.last_outcome else "–"
    half = percentile(job.late, 0.5)
    return {
        "job": Text(view.name),
        "schedule": Text(view.schedule or "when submitted", style="bright_black"),
        "next": Text("–" if left is None else f"{left:.1f} s"),
        "last": Text(last, style=COLOURS.get(last, "")),
        "runs": Text(str(sum(job.ended.values()))),
        "failed": _count(job.ended[State.FAILED], "red"),
        "retries": _count(job.retries, "yellow"),
        "skipped": _count(sum(job.skipped.values()), "yellow"),
        "late p50": Text("–" if half is None else span(half)),
        "max": Text("–" if half is None else span(job.latest)),
        "now": Text(_activity(job, doing.get(view.name)), style="cyan"),
    }


def _count(number: int, colour: str) -> Text:
    return Text(str(number), style=colour if number else "")


def _activity(job: JobCounts, run: Run | None) -> str:
    if not job.running:
        return ""
    if run is not None and run.progress is not None:
        return line(progress(run.progress), 30)
    return "running" if job.running == 1 else f"{job.running} running"
