"""The command that plays a campaign: `python -m duly.testing.sim --seeds 0-500`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial

import click

from duly.testing.sim.campaign import SCENARIOS, Verdict, play


@click.command()
@click.option("--seeds", default="0-100", show_default=True, help="One seed, or the first and the last of many.")
@click.option(
    "--scenario", "scenarios", multiple=True, type=click.Choice(list(SCENARIOS)), help="Which; all, if none is named."
)
@click.option("--processes", "-p", default=os.cpu_count() or 1, show_default=True, help="How many seeds at a time.")
def main(seeds: str, scenarios: tuple[str, ...], processes: int) -> None:
    """Play clusters of real nodes through storms in virtual time, and check what Duly promises."""
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
        raise click.BadParameter(f"{seeds!r}: a number, or two with a hyphen between") from exc


def _play_all(scenario: str, seeds: range, processes: int) -> Iterator[Verdict]:
    with _bar(scenario, len(seeds)) as advance:
        for verdict in _verdicts(scenario, seeds, processes):
            advance()
            if verdict.failed:
                _tell(verdict)
            yield verdict


def _verdicts(scenario: str, seeds: range, processes: int) -> Iterator[Verdict]:
    if processes == 1 or len(seeds) == 1:
        _be_quiet()
        yield from (play(scenario, seed) for seed in seeds)
        return
    with ProcessPoolExecutor(processes, initializer=_be_quiet) as pool:
        yield from pool.map(partial(play, scenario), seeds, chunksize=4)


def _be_quiet() -> None:
    """Nodes that are killed by the hundred have much to complain about."""
    logging.getLogger("duly").setLevel(logging.CRITICAL)


def _tell(verdict: Verdict) -> None:
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
