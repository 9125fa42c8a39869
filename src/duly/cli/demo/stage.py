"""The demo's performance: opens a store, runs a node, watches it until it is time to stop, and tells how it went."""

from __future__ import annotations

import asyncio
import logging
import signal
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from duly.cli.demo.jobs import exactly_once, scheduler
from duly.cli.demo.summary import write_summary
from duly.cli.demo.tally import Tally
from duly.cli.demo.ticker import Ticker
from duly.cli.output import colourful, on_terminal
from duly.model import State
from duly.rules.redaction import redacted

if TYPE_CHECKING:
    from duly.cli.demo.board import Board
    from duly.rules.explain import Explanation

_PERIOD = 0.25
_LOOK_BACK = timedelta(seconds=60)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def play(url: str | None, seconds: float | None, *, plain: bool) -> None:
    """Play until a signal comes, or for so many seconds."""
    logging.getLogger("duly").addHandler(logging.NullHandler())  # what would be logged is on the screen already
    with _store(url) as address:
        asyncio.run(_play(address, seconds, plain=plain))


@contextmanager
def _store(url: str | None) -> Iterator[str]:
    """The store to play with: the given one, or a file in a folder that is deleted afterwards."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="duly-demo-") as folder:
        yield f"sqlite:///{quote(str(Path(folder) / 'demo.db'))}"


async def _play(address: str, seconds: float | None, *, plain: bool) -> None:
    scheduler.configure(address)
    if address.startswith("sqlite:"):
        scheduler.add(exactly_once)
    began = datetime.now(UTC)
    tally = Tally()
    screen = _screen(tally, plain=plain)
    scheduler.subscribe(tally.hear)
    scheduler.subscribe(screen.hear)
    with screen, _signals() as stopping:
        await scheduler.start()
        tally.expect(await _own_jobs())
        screen.say(f"From another terminal: duly jobs --url {redacted(address)}")
        await _watch_until(stopping, seconds, tally, screen)
        stopped = datetime.now(UTC)
        screen.say("Stopping: what runs may end; another Ctrl-C does not wait.")
        report = await scheduler.stop()
        async with scheduler.client():
            await _look(tally, screen, until=stopped)
            explained = await _explain_one(tally)
    write_summary(tally, (stopped - began).total_seconds(), report, explained)


def _screen(tally: Tally, *, plain: bool) -> Board | Ticker:
    if plain or not on_terminal():
        return Ticker()
    from duly.cli.demo.board import Board  # noqa: PLC0415  # rich is for terminals

    return Board(tally, colours=colourful())


@contextmanager
def _signals() -> Iterator[asyncio.Event]:
    """An event that the first SIGINT or SIGTERM sets; the second one hurries."""
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
    """The jobs of this node; a store that was given may hold others."""
    me = (await scheduler.health()).node_id
    return [name for node in await scheduler.nodes() if node.id == me for name in node.handlers]


async def _watch_until(stopping: asyncio.Event, seconds: float | None, tally: Tally, screen: Board | Ticker) -> None:
    """Look a few times a second, until it is time to stop."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not stopping.is_set():
                await _look(tally, screen, until=datetime.now(UTC))
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), _PERIOD)


async def _look(tally: Tally, screen: Board | Ticker, until: datetime) -> None:
    skipped = await scheduler.runs(state=State.SKIPPED, due_from=until - _LOOK_BACK, due_until=until, limit=1000)
    screen.skipped(tally.skip(skipped.runs))
    running = await scheduler.runs(state=State.RUNNING, limit=100)
    screen.draw(await scheduler.jobs(), running.runs)


async def _explain_one(tally: Tally) -> Explanation | None:
    """The story of the latest instant that was skipped."""
    latest = max(tally.skipped.values(), key=lambda run: run.due, default=None)
    return None if latest is None else await scheduler.explain(latest.job, latest.due)
