"""A long simulation campaign: `make sim`, or `python -m tests.sim.campaign --seeds 0-500`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial

import click

from tests.sim.campaign_scenarios import SCENARIOS, Verdict, play


@click.command()
@click.option("--seeds", default="0-100", show_default=True, help="One seed, or the first and the last one.")
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    type=click.Choice(list(SCENARIOS)),
    help="The scenario; repeatable. Default: all.",
)
@click.option("--processes", "-p", default=os.cpu_count() or 1, show_default=True, help="How many seeds at a time.")
def main(seeds: str, scenarios: tuple[str, ...], processes: int) -> None:
    """Run clusters of real nodes with faults in virtual time, and check the guarantees of Duly."""
    chosen = _range(seeds)
    failures = 0
    for scenario in scenarios or SCENARIOS:
        verdicts = list(_play_all(scenario, chosen, processes))
        failures += sum(verdict.failed for verdict in verdicts)
        click.echo(_summary(scenario, verdicts))
    sys.exit(1 if failures else 0)


def _range(seeds: str) -> range:
    first, _, last = seeds.partition("-")
    try:
        return range(int(first), int(last or first) + 1)
    except ValueError as exc:
        raise click.BadParameter(f"{seeds!r}: expected a number, or two with a hyphen between them") from exc


def _play_all(scenario: str, seeds: range, processes: int) -> Iterator[Verdict]:
    with _bar(scenario, len(seeds)) as advance:
        for verdict in _verdicts(scenario, seeds, processes):
            advance()
            if verdict.failed:
                _report(verdict)
            yield verdict


def _verdicts(scenario: str, seeds: range, processes: int) -> Iterator[Verdict]:
    if processes == 1 or len(seeds) == 1:
        _be_quiet()
        yield from (play(scenario, seed) for seed in seeds)
        return
    with ProcessPoolExecutor(processes, initializer=_be_quiet) as pool:
        yield from pool.map(partial(play, scenario), seeds, chunksize=4)


def _be_quiet() -> None:
    """Killed nodes log many errors, which are expected here."""
    logging.getLogger("duly").setLevel(logging.CRITICAL)


def _report(verdict: Verdict) -> None:
    click.echo(f"{verdict.scenario}, seed {verdict.seed}: {len(verdict.violations)} violations", err=True)
    for violation in verdict.violations[:3]:
        click.echo(str(violation), err=True)
    for run_id in verdict.repeated:
        click.echo(f"run {run_id} began more than once", err=True)
    click.echo(f"again: {verdict.command}", err=True)


def _summary(scenario: str, verdicts: list[Verdict]) -> str:
    begun = sum(verdict.begun for verdict in verdicts)
    bad = sum(verdict.failed for verdict in verdicts)
    return f"{scenario:<8} {len(verdicts):>6} seeds  {begun:>8} attempts  {bad} failed"


@contextmanager
def _bar(scenario: str, seeds: int) -> Iterator[Callable[[], None]]:
    """A progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with click.progressbar(length=seeds, label=f"{scenario:<8}", file=sys.stderr) as bar:
        yield lambda: bar.update(1)


if __name__ == "__main__":
    main()
