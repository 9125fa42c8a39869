"""The demo on a terminal: a table of the jobs, and below it what happens."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import click

from duly.cli.cells import cut, padded
from duly.cli.columns import Column
from duly.cli.demo.counts import DemoCounts, JobCounts, percentile
from duly.cli.demo.happenings import Happening
from duly.cli.full_screen import FullScreen, Size
from duly.cli.output import BAD, DIM, LIVE, WARN, Cell, Row, coloured, table_lines
from duly.cli.show import progress_bar
from duly.cli.text import span
from duly.model import Run, State
from duly.scheduler import JobView

_COLUMNS = (
    Column("JOB", wraps=True, importance=9, least=20),
    Column("SCHEDULE", wraps=True, importance=2, least=14),
    Column("NEXT", right=True, importance=7),
    Column("LAST", importance=6),
    Column("RUNS", right=True, importance=6),
    Column("FAILED", right=True, importance=4),
    Column("RETRIES", right=True, importance=5),
    Column("SKIPPED", right=True, importance=5),
    Column("LATE P50", right=True, importance=3),
    Column("MAX", right=True, importance=1),
    Column("NOW", wraps=True, importance=8, least=16),
)
_KEPT = 50
_WORD = 9


class LiveTable:
    """A screen that is drawn again by `draw` and `say`. When it is closed, its last state is written once more."""

    def __init__(self, counts: DemoCounts, *, colours: bool) -> None:
        self._screen = FullScreen()
        self._colours = colours
        self._counts = counts
        self._rows: list[Row] = []
        self._told: deque[tuple[float, Happening]] = deque(maxlen=_KEPT)
        self._seconds = 0.0
        self._footer = ""

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None) -> None:
        size = self._screen.size()
        self._screen.__exit__(kind, exc, None)
        for text in self._lines(size):
            click.echo(text, color=self._colours)

    def tell(self, seconds: float, each: Happening) -> None:
        """Add a line about what happened, unless it happens all the time."""
        if not each.routine:
            self._told.append((seconds, each))

    def say(self, text: str) -> None:
        """Set the last line."""
        self._footer = text
        self._redraw()

    def draw(self, seconds: float, views: Sequence[JobView], running: Sequence[Run]) -> None:
        """Show the current state of the jobs."""
        now = datetime.now(UTC)
        doing: dict[str, list[Run]] = {}
        for run in running:
            doing.setdefault(run.job, []).append(run)
        known = [view for view in views if view.name in self._counts.jobs]
        self._rows = [_row(view, self._counts.jobs[view.name], doing, now) for view in known]
        self._seconds = seconds
        self._redraw()

    def _redraw(self) -> None:
        lines = self._lines(self._screen.size())
        self._screen.draw(lines if self._colours else [click.unstyle(line) for line in lines])

    def _lines(self, size: Size) -> list[str]:
        """Title, table, what has happened, and the last line: as much as fits."""
        width = size.columns
        title = padded(
            f"duly demo: a small shop, {len(self._rows)} jobs on two nodes, for {self._seconds:.0f} s", width
        )
        table, _ = table_lines(_COLUMNS, self._rows, width)
        shown = [click.style(title, reverse=True), *table[: size.rows - 5]]
        room = max(0, size.rows - len(shown) - 2)
        told = [_told(seconds, each, width) for seconds, each in list(self._told)[-room:]] if room else []
        return [*shown, "", *told, *[""] * (room - len(told)), click.style(cut(self._footer, width), fg=DIM)]


def _told(seconds: float, each: Happening, width: int) -> str:
    lead = f"{seconds:6.1f} s  {each.word:<{_WORD}}  "
    text = cut(f"{each.job}: {each.text}" if each.job else each.text, width - len(lead))
    return f"{lead[:10]}{click.style(lead[10:], fg=each.colour)}{text}"


def _row(view: JobView, job: JobCounts, doing: Mapping[str, list[Run]], now: datetime) -> Row:
    left = None if view.next_run_at is None else max(0.0, (view.next_run_at - now).total_seconds())
    half = percentile(job.late, 0.5)
    return (
        view.name,
        Cell(view.schedule or "when submitted", DIM),
        "–" if left is None else f"{left:.1f} s",
        coloured(view.last_outcome.value if view.last_outcome else None),
        str(sum(job.ended.values())),
        _count(job.ended[State.FAILED], BAD),
        _count(job.retries, WARN),
        _count(sum(job.skipped.values()), WARN),
        "–" if half is None else span(half),
        "–" if half is None else span(job.latest),
        Cell(_activity(doing.get(view.name, [])), LIVE),
    )


def _count(number: int, colour: str) -> Cell:
    return Cell(str(number), colour if number else "")


def _activity(runs: Sequence[Run]) -> str:
    """What a job is doing: the progress of the run that reported some, or how many runs it has."""
    reporting = [run for run in runs if run.progress is not None]
    if reporting:
        others = f" +{len(runs) - 1}" if len(runs) > 1 else ""
        return f"{progress_bar(reporting[0])}{others}"
    return "" if not runs else "running" if len(runs) == 1 else f"{len(runs)} running"
