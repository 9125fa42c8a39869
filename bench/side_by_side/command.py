"""The command: makes environments, starts servers, measures everybody in turn, prints one table."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import msgspec

from bench.awake import awake as kept_awake
from bench.side_by_side.catalogue import NAMES, PEERS, Peer
from bench.side_by_side.environments import VENVS, CannotInstall, Command, command
from bench.side_by_side.figures import DULY, DULY_POSTGRES, MEASURES, Book, Cannot, Failed, Measured, Outcome
from bench.side_by_side.machine import this_machine
from bench.side_by_side.measures import Bench, Sizes
from bench.side_by_side.ourselves import Duly, knows_redis
from bench.side_by_side.page import write_into
from bench.side_by_side.postgres import CannotStart
from bench.side_by_side.processes import Broken
from bench.side_by_side.progress import Talk
from bench.side_by_side.servers import Servers, servers
from bench.side_by_side.table import Sheet, as_json, as_markdown, as_text, sheet

_ONCE = ("lateness", "recurring", "crowd")
_INSTALL_AT_ONCE = 4


def _names(allowed: Sequence[str]) -> Any:
    def read(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
        named = tuple(allowed) if value is None else tuple(word.strip() for word in value.split(",") if word.strip())
        if unknown := [word for word in named if word not in allowed]:
            raise click.BadParameter(f"unknown: {', '.join(unknown)}; there are {', '.join(allowed)}")
        return tuple(word for word in allowed if word in named)

    return read


@click.command()
@click.option("--only", callback=_names(NAMES), help=f"Some of {', '.join(NAMES)}, with commas.")
@click.option("--measures", callback=_names(MEASURES), help=f"Some of {', '.join(MEASURES)}, with commas.")
@click.option("--jobs", "-n", default=100_000, show_default=True, help="Jobs to drain; slow peers get fewer.")
@click.option("--submissions", default=20_000, show_default=True, help="Jobs to submit; slow peers get fewer.")
@click.option("--pings", default=500, show_default=True, help="Submissions to an idle worker, one every 10 ms.")
@click.option("--alarms", default=1_000, show_default=True, help="One-time jobs over ten seconds.")
@click.option("--schedules", default=1_000, show_default=True, help="Recurring jobs, all due every ten seconds.")
@click.option("--crowd", default=20_000, show_default=True, help="The same with many more of them.")
@click.option("--periods", default=3, show_default=True, help="How many instants of them are counted.")
@click.option("--rounds", "-r", default=3, show_default=True, help="Rounds whose median counts.")
@click.option("--awake", is_flag=True, help="Keep the cores from falling asleep meanwhile.")
@click.option(
    "--durable", is_flag=True, help="Redis with its log synced every second, PostgreSQL with synchronous commits."
)
@click.option("--url", help="The store of Duly; by default the same Redis server as the others.")
@click.option("--json", "form", flag_value="json", help="Print one JSON document.")
@click.option("--markdown", "form", flag_value="markdown", help="Print a part of a page.")
@click.option("--into", type=click.Path(path_type=Path, exists=True), help="Put the table into this page as well.")
@click.option("--venvs", type=click.Path(path_type=Path), default=VENVS, help="Where environments are kept.")
def main(
    only: tuple[str, ...],
    measures: tuple[str, ...],
    rounds: int,
    awake: bool,
    durable: bool,
    url: str | None,
    form: str | None,
    into: Path | None,
    venvs: Path,
    **sizes: int,
) -> None:
    """Measure Duly and other job systems on the same servers and print one table.

    Environments for the others are made first and kept; the servers are started for this run and end with it.
    """
    signal.signal(signal.SIGTERM, _leave)
    run = Run(only, measures, rounds, msgspec.convert(sizes, Sizes), venvs)
    with kept_awake(awake):
        page = run.whole(url, durable=durable, awake=awake)
    match form:
        case "json":
            click.echo(as_json(page))
        case "markdown":
            click.echo(as_markdown(page))
        case _:
            click.echo(as_text(page, None if sys.stdout.isatty() else 160))
    if into is not None:
        write_into(into, as_markdown(page))
    if any(found.failed for found in page.cells.get(DULY, {}).values()):
        raise SystemExit(1)


def _leave(number: int, _frame: object) -> None:
    """Unwind, so that servers, workers and their folders go too."""
    raise SystemExit(128 + number)


class Run:
    """One run. Whoever fails is entered as failed; nobody stops the others."""

    def __init__(self, only: Sequence[str], measures: Sequence[str], rounds: int, sizes: Sizes, venvs: Path) -> None:
        self._only = only
        self._measures = measures
        self._rounds = rounds
        self._sizes = sizes
        self._venvs = venvs
        self._book = Book()
        self._talk = Talk()
        self._versions: dict[str, Mapping[str, str]] = {}

    def whole(self, url: str | None, *, durable: bool = False, awake: bool = False) -> Sheet:
        machine = this_machine()
        peers = [peer for peer in PEERS if peer.name in self._only]
        programs = self._environments(peers)
        needs_postgres = DULY_POSTGRES in self._only or any(peer.server == "postgresql" for peer in peers)
        with servers(postgres=needs_postgres, durable=durable) as running:
            duly_url = url or (running.url("redis") if knows_redis() else None)
            ours = self._ours(duly_url, running)
            benches = self._benches(peers, programs, running)
            for measure in self._measures:
                for number in range(1 if measure in _ONCE else self._rounds):
                    self._round(measure, number, ours, benches, running)
            self._versions = {"servers": running.versions()} | self._versions
            settings = running.settings()
        self._versions |= {name: duly.told for name, duly in ours.items()}
        backend = (duly_url or "sqlite:").partition(":")[0]
        return sheet(self._book, self._versions, machine, backend, self._rounds, settings, awake=awake)

    def _ours(self, duly_url: str | None, running: Servers) -> dict[str, Duly]:
        """The rows of Duly that were asked for."""
        ours = {}
        if DULY in self._only:
            ours[DULY] = Duly(duly_url)
        if DULY_POSTGRES in self._only:
            try:
                ours[DULY_POSTGRES] = Duly(running.url("postgresql"))
            except CannotStart as error:
                self._fails(DULY_POSTGRES, f"does not run: {error}")
        return ours

    def _environments(self, peers: Sequence[Peer]) -> dict[str, Command]:
        """The programs of the peers that can be installed."""
        self._talk.doing("making environments")
        with ThreadPoolExecutor(_INSTALL_AT_ONCE) as threads:
            made = {peer.name: threads.submit(command, peer.name, peer.runtime, self._venvs) for peer in peers}
        programs = {}
        for name, future in made.items():
            try:
                programs[name] = future.result()
            except CannotInstall as error:
                self._fails(name, f"cannot be installed: {error}")
        return programs

    def _benches(self, peers: Sequence[Peer], programs: Mapping[str, Command], running: Servers) -> dict[str, Bench]:
        benches = {}
        for peer in peers:
            if peer.name not in programs:
                continue
            try:
                bench = Bench(peer, programs[peer.name], running.url(peer.server), self._talk.far)
                self._versions[peer.name] = bench.versions()
            except (Broken, CannotStart) as error:
                self._fails(peer.name, f"does not run: {error}")
            else:
                benches[peer.name] = bench
                self._enter_what_cannot_be(peer)
        return benches

    def _fails(self, name: str, error: str) -> None:
        self._talk.done(f"{name} {error}")
        for measure in self._measures:
            self._book.enter(name, measure, Failed(error))

    def _enter_what_cannot_be(self, peer: Peer) -> None:
        for measure in self._measures:
            if measure in peer.cannot:
                self._book.enter(peer.name, measure, Cannot(peer.cannot[measure]))

    def _round(
        self, measure: str, number: int, ours: Mapping[str, Duly], benches: Mapping[str, Bench], running: Servers
    ) -> None:
        """Everybody once. Rounds go around, so that a noisy minute of the machine hits everybody alike."""
        for name, duly in ours.items():
            if not self._book.broken(name, measure):
                running.clear()
                self._enter(name, measure, number, lambda duly=duly: duly.measure(measure, self._sizes))
        for name, bench in benches.items():
            cannot = any(isinstance(outcome, Cannot) for outcome in self._book.outcomes(name, measure))
            if cannot or self._book.broken(name, measure):
                continue
            running.clear()
            self._enter(name, measure, number, lambda bench=bench: _measured(bench, measure, self._sizes))

    def _enter(self, name: str, measure: str, number: int, act: Any) -> None:
        self._talk.doing(f"{measure} {number + 1}: {name}")
        outcome: Outcome
        try:
            outcome = act()
        except Broken as error:
            outcome = Failed(str(error))
        self._book.enter(name, measure, outcome)
        self._talk.done(f"{measure} {number + 1}: {name} {_said(outcome)}")


def _measured(bench: Bench, measure: str, sizes: Sizes) -> Measured:
    bench.prepare()
    return bench.measure(measure, sizes)


def _said(outcome: Outcome) -> str:
    match outcome:
        case Measured(figures, _, remarks):
            return ", ".join((*(f"{key} {value:,.2f}" for key, value in figures.items()), *remarks))
        case Failed(error):
            return f"failed: {error}"
        case Cannot(reason):
            return reason
