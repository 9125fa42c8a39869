"""`duly demo`: runs a dozen example jobs on a temporary store."""

from __future__ import annotations

import click

from duly.cli.options import command, duration


@command("duly demo", "duly demo --duration 15", "duly demo --plain | grep skipped")
@click.option(
    "--duration", "seconds", type=duration, metavar="DURATION", help="Stop after this time. Default: at Ctrl-C."
)
@click.option("--url", metavar="URL", help="The store to use, instead of a temporary file.")
@click.option("--plain", is_flag=True, help="Print a line per event instead of a live table; default when piped.")
def demo(seconds: float | None, url: str | None, plain: bool) -> None:
    """Run the jobs of a small shop on two nodes: cron, intervals, retries, overlaps, progress, exactly-once effects.

    After some seconds one of the nodes is killed while it works, and the other one takes over its runs. Ctrl-C stops
    the demo when the running handlers have ended, and prints a summary. The jobs are in duly/cli/demo/jobs.py.
    """
    from duly.cli.demo.runner import run_demo  # noqa: PLC0415  # `duly demo --help` needs no scheduler

    run_demo(url, seconds, plain=plain)
