"""What the demo says when it ends: how it went, and why one of the instants has no run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from duly.cli.demo.tally import Tally, percentile
from duly.cli.output import write_pairs
from duly.cli.text import line, span
from duly.rules.describe import instant

if TYPE_CHECKING:
    from duly.rules.explain import Explanation
    from duly.scheduler import ShutdownReport

_SHARES = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (1.0, "max"))


def write_summary(tally: Tally, seconds: float, report: ShutdownReport, explained: Explanation | None) -> None:
    """Tell how it went."""
    jobs = tally.jobs.values()
    ended: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for job in jobs:
        ended.update({state.value: count for state, count in job.ended.items()})
        skipped.update(job.skipped)
    late = tally.late
    click.secho(f"\n{span(seconds)} of a little shop", bold=True)
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
        _write_teaser(explained)


def _counted(counts: Counter[str]) -> str:
    words = [f"{count} {word}" for word, count in counts.most_common() if count]
    return ", ".join(words) or "none"


def _write_teaser(explained: Explanation) -> None:
    click.secho("\nWhy did one of them not run? Duly can always tell:", bold=True)
    click.echo(f"$ duly explain {explained.job} --at {instant(explained.due or explained.at)}")
    for reason in explained.reasons:
        click.echo(f"  {line(reason)}")
    if explained.setting is not None:
        click.echo(f"decided by: {explained.setting}")
