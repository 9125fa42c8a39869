"""Runs the demo: a store, two nodes, a screen that shows what happens until it stops, and a summary."""

from __future__ import annotations

import asyncio
import logging
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click
import msgspec

from duly.cli.demo.counts import DemoCounts, percentile
from duly.cli.demo.event_lines import EventLines
from duly.cli.demo.happenings import Happening, happening, said, skipped
from duly.cli.demo.nodes import DemoNodes
from duly.cli.demo.story import FIRST, SECOND, Story
from duly.cli.explain import write_explanation
from duly.cli.full_screen import can_draw
from duly.cli.output import colourful, write_pairs
from duly.cli.text import line, span
from duly.errors import ConfigurationError, DulyError
from duly.model import State
from duly.model.published_event import PublishedEvent
from duly.rules.describe import instant
from duly.rules.redaction import redacted
from duly.scheduler import Scheduler
from duly.scheduler.event_reader import EventReader

if TYPE_CHECKING:
    from duly.cli.demo.live_table import LiveTable
    from duly.rules.explain import Explanation
    from duly.scheduler import ShutdownReport

_PERIOD = 0.25
_LOOK_BACK = timedelta(seconds=60)
_SLICE = 1000
_START = 60.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHARES = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (1.0, "max"))


def run_demo(url: str | None, seconds: float | None, *, plain: bool) -> None:
    """Run the demo until a signal comes, or for a number of seconds."""
    if url is not None and url.startswith("memory:"):
        raise ConfigurationError(f"--url {url}: the demo runs two processes, which cannot share a store in memory")
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
    counts = DemoCounts()
    with DemoNodes(address) as nodes, _signals(nodes) as stopping:
        async with Scheduler(address).client() as scheduler:
            demo = Demo(scheduler, nodes, counts)
            await demo.begin()
            with _screen(counts, plain=plain) as screen:
                screen.say(f"From another terminal: duly top --url {redacted(address)}")
                await demo.watch_until(stopping, seconds, screen)
                lasted = demo.seconds
                screen.say("Stopping: waiting for running handlers; a second Ctrl-C stops at once.")
                report = await nodes.stop()
                await demo.update(screen, playing=False)
            explained = await demo.explain_one()
    _write_summary(counts, lasted, report, explained)


def _screen(counts: DemoCounts, *, plain: bool) -> LiveTable | EventLines:
    if plain or not can_draw():
        return EventLines()
    from duly.cli.demo.live_table import LiveTable  # noqa: PLC0415  # for terminals

    return LiveTable(counts, colours=colourful())


@contextmanager
def _signals(nodes: DemoNodes) -> Iterator[asyncio.Event]:
    """An event that the first SIGINT or SIGTERM sets; the second one ends the nodes at once."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        if stopping.is_set():
            nodes.kill_all()
        stopping.set()

    for each in _SIGNALS:
        loop.add_signal_handler(each, signalled)
    try:
        yield stopping
    finally:
        for each in _SIGNALS:
            loop.remove_signal_handler(each)


class Demo:
    """Follows the published events of the nodes, and what is in the store."""

    def __init__(self, scheduler: Scheduler, nodes: DemoNodes, counts: DemoCounts) -> None:
        self._scheduler = scheduler
        self._nodes = nodes
        self._counts = counts
        self._story = Story(nodes)
        self._began = datetime.now(UTC)
        self._known = 0
        self._reader: EventReader | None = None
        self._explained = False

    @property
    def seconds(self) -> float:
        """How long the demo has been running."""
        return (datetime.now(UTC) - self._began).total_seconds()

    async def begin(self) -> None:
        """Start the nodes, and wait for the first one."""
        client = await self._scheduler.opened()
        self._reader = EventReader(client.backend.store)
        self._known = await self._reader.last()
        self._nodes.start(FIRST)
        while FIRST not in {node.id for node in await self._scheduler.nodes()}:
            if not self._nodes.living():
                raise DulyError(f"the first node of the demo did not start: see duly run {__package__}.jobs")
            if self.seconds > _START:
                raise DulyError(f"the first node of the demo did not start within {span(_START)}")
            await asyncio.sleep(0.05)
        self._nodes.start(SECOND)
        self._counts.expect([name for node in await self._scheduler.nodes() for name in node.handlers])
        self._began = datetime.now(UTC)

    async def watch_until(self, stopping: asyncio.Event, seconds: float | None, screen: LiveTable | EventLines) -> None:
        """Update the screen a few times a second until the demo stops."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not stopping.is_set():
                    await self.update(screen)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_PERIOD):
                            await stopping.wait()

    async def update(self, screen: LiveTable | EventLines, *, playing: bool = True) -> None:
        """Show what has happened since the last update; while the demo is `playing`, its story goes on."""
        for event in await self._events():
            self._counts.handle(event)
            for each in (happening(event), self._story.handle(event, self.seconds)):
                if each is not None:
                    screen.tell(self._seconds_at(event), each)
        for each in await self._skipped():
            screen.tell(self.seconds, each)
        running = (await self._scheduler.runs(state=State.RUNNING, limit=100)).runs
        for each in self._story.go_on(self.seconds, running) if playing else []:
            screen.tell(self.seconds, each)
        screen.draw(self.seconds, await self._scheduler.jobs(), running)

    def _seconds_at(self, event: PublishedEvent) -> float:
        return max(0.0, (datetime.fromisoformat(event.at) - self._began).total_seconds())

    async def _events(self) -> list[PublishedEvent]:
        """The events of the demo's jobs and nodes that are new."""
        assert self._reader is not None
        found = await self._reader.read(self._known, _SLICE)
        self._known = found[-1].id if found else self._known
        events = []
        for each in found:
            with suppress(msgspec.DecodeError):  # of a newer version, in a store that has others
                event = msgspec.json.decode(each.text, type=PublishedEvent)
                events += [event] if event.job is None or event.job in self._counts.jobs else []
        return events

    async def _skipped(self) -> list[Happening]:
        """The runs that were skipped meanwhile; the first one is explained."""
        now = datetime.now(UTC)
        page = await self._scheduler.runs(state=State.SKIPPED, due_from=now - _LOOK_BACK, due_until=now, limit=_SLICE)
        new = self._counts.skip(page.runs)
        told = [skipped(run) for run in new]
        if new and not self._explained:
            self._explained = True
            found = await self._scheduler.explain(new[0].job, new[0].due)
            told += [said(f"why? {line(reason)}") for reason in found.reasons[1:]]
        return told

    async def explain_one(self) -> Explanation | None:
        """The explanation of the latest skipped run."""
        latest = max(self._counts.skipped.values(), key=lambda run: run.due, default=None)
        return None if latest is None else await self._scheduler.explain(latest.job, latest.due)


# --- the summary


def _write_summary(counts: DemoCounts, seconds: float, report: ShutdownReport, explained: Explanation | None) -> None:
    """Print the counts, and why one of the runs was skipped."""
    jobs = counts.jobs.values()
    ended: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for job in jobs:
        ended.update({state.value: count for state, count in job.ended.items()})
        reasons.update(job.skipped)
    late = counts.late
    click.secho(f"\n{span(seconds)} of a small shop", bold=True)
    write_pairs(
        [
            ("runs", _counted(ended)),
            ("retries", str(sum(job.retries for job in jobs))),
            ("skipped", _counted(reasons)),
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
