"""Runs the demo: opens a store, runs a node, shows what happens until it stops, and prints a summary."""

from __future__ import annotations

import asyncio
import logging
import signal
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from duly.cli.demo.counts import DemoCounts, percentile
from duly.cli.demo.event_lines import EventLines
from duly.cli.demo.jobs import exactly_once, scheduler
from duly.cli.explain import write_explanation
from duly.cli.output import colourful, on_terminal, write_pairs
from duly.cli.text import span
from duly.model import State
from duly.rules.describe import instant
from duly.rules.redaction import redacted

if TYPE_CHECKING:
    from duly.cli.demo.live_table import LiveTable
    from duly.rules.explain import Explanation
    from duly.scheduler import ShutdownReport

_PERIOD = 0.25
_LOOK_BACK = timedelta(seconds=60)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHARES = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (1.0, "max"))


def run_demo(url: str | None, seconds: float | None, *, plain: bool) -> None:
    """Run the demo until a signal comes, or for a number of seconds."""
    logging.getLogger("duly").addHandler(logging.NullHandler())  # the screen shows what would be logged
    with _store(url) as address:
        asyncio.run(_run(address, seconds, plain=plain))


@contextmanager
def _store(url: str | None) -> Iterator[str]:
    """The given store, or a file in a temporary folder."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="duly-demo-") as folder:
        yield f"sqlite:///{quote(str(Path(folder) / 'demo.db'))}"


async def _run(address: str, seconds: float | None, *, plain: bool) -> None:
    scheduler.configure(address)
    if address.startswith("sqlite:"):
        scheduler.add(exactly_once)
    began = datetime.now(UTC)
    counts = DemoCounts()
    screen = _screen(counts, plain=plain)
    scheduler.subscribe(counts.handle)
    scheduler.subscribe(screen.handle)
    with screen, _signals() as stopping:
        await scheduler.start()
        counts.expect(await _own_jobs())
        screen.say(f"From another terminal: duly jobs --url {redacted(address)}")
        await _watch_until(stopping, seconds, counts, screen)
        stopped = datetime.now(UTC)
        screen.say("Stopping: waiting for running handlers; a second Ctrl-C stops at once.")
        report = await scheduler.stop()
        async with scheduler.client():
            await _update(counts, screen, until=stopped)
            explained = await _explain_one(counts)
    _write_summary(counts, (stopped - began).total_seconds(), report, explained)


def _screen(counts: DemoCounts, *, plain: bool) -> LiveTable | EventLines:
    if plain or not on_terminal():
        return EventLines()
    from duly.cli.demo.live_table import LiveTable  # noqa: PLC0415  # rich is for terminals

    return LiveTable(counts, colours=colourful())


@contextmanager
def _signals() -> Iterator[asyncio.Event]:
    """An event that the first SIGINT or SIGTERM sets; the second one stops at once."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        if stopping.is_set():
            scheduler.hurry()
        stopping.set()

    for each in _SIGNALS:
        loop.add_signal_handler(each, signalled)
    try:
        yield stopping
    finally:
        for each in _SIGNALS:
            loop.remove_signal_handler(each)


async def _own_jobs() -> Iterable[str]:
    """The jobs of this node. A given store may have others."""
    own = (await scheduler.health()).node_id
    return [name for node in await scheduler.nodes() if node.id == own for name in node.handlers]


async def _watch_until(
    stopping: asyncio.Event, seconds: float | None, counts: DemoCounts, screen: LiveTable | EventLines
) -> None:
    """Update the screen a few times a second until the demo stops."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not stopping.is_set():
                await _update(counts, screen, until=datetime.now(UTC))
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), _PERIOD)


async def _update(counts: DemoCounts, screen: LiveTable | EventLines, until: datetime) -> None:
    skipped = await scheduler.runs(state=State.SKIPPED, due_from=until - _LOOK_BACK, due_until=until, limit=1000)
    screen.skipped(counts.skip(skipped.runs))
    running = await scheduler.runs(state=State.RUNNING, limit=100)
    screen.draw(await scheduler.jobs(), running.runs)


async def _explain_one(counts: DemoCounts) -> Explanation | None:
    """The explanation of the latest skipped run."""
    latest = max(counts.skipped.values(), key=lambda run: run.due, default=None)
    return None if latest is None else await scheduler.explain(latest.job, latest.due)


# --- the summary


def _write_summary(counts: DemoCounts, seconds: float, report: ShutdownReport, explained: Explanation | None) -> None:
    """Print the counts, and why one of the runs was skipped."""
    jobs = counts.jobs.values()
    ended: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for job in jobs:
        ended.update({state.value: count for state, count in job.ended.items()})
        skipped.update(job.skipped)
    late = counts.late
    click.secho(f"\n{span(seconds)} of a small shop", bold=True)
    write_pairs(
        [
            ("runs", _counted(ended)),
            ("retries", str(sum(job.retries for job in jobs))),
            ("skipped", _counted(skipped)),
            ("late", ", ".join(f"{word} {span(percentile(late, share) or 0.0)}" for share, word in _SHARES)),
            ("at the end", f"{report.drained} finished while stopping, {report.released} given back"),
        ]
    )
    if explained is not None:
        _write_explanation(explained)


def _counted(counts: Counter[str]) -> str:
    words = [f"{count} {word}" for word, count in counts.most_common() if count]
    return ", ".join(words) or "none"


def _write_explanation(explained: Explanation) -> None:
    click.secho("\nWhy was one of them skipped? Duly can explain it:", bold=True)
    click.echo(f"$ duly explain {explained.job} --at {instant(explained.due or explained.at)}")
    write_explanation(explained)
