"""`duly demo`: a dozen jobs at work, on a store that is thrown away afterwards."""

from __future__ import annotations

import click

from duly.cli.options import command, duration


@command("duly demo", "duly demo --duration 15", "duly demo --plain | grep skipped")
@click.option(
    "--duration", "seconds", type=duration, metavar="DURATION", help="End after that time. Default: at Ctrl-C."
)
@click.option("--url", metavar="URL", help="A store to play with, instead of a file that is deleted at the end.")
@click.option("--plain", is_flag=True, help="A line per event instead of a live table; so is it when piped.")
def demo(seconds: float | None, url: str | None, plain: bool) -> None:
    """Show a little shop at work: cron, intervals, retries, overlaps, progress, a command, exactly-once effects.

    Ctrl-C lets what runs end, and tells how it went. The jobs are in duly/cli/demo/jobs.py.
    """
    from duly.cli.demo.stage import play  # noqa: PLC0415  # `duly demo --help` needs no scheduler

    play(url, seconds, plain=plain)
