"""`duly logs`: the log lines and the output of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from duly.cli.client import ask, find_run
from duly.cli.completing import run_ids
from duly.cli.options import MOST_SEQUENCE, command, json_option, store_option
from duly.cli.output import BAD, DIM, WARN, json_text, note, plain, write_json
from duly.errors import BackendUnavailable
from duly.model import LineSource, LogLine, iso
from duly.rules.printable import escaped

if TYPE_CHECKING:
    from duly.scheduler import Scheduler

_AFTER_FAILURE = 1.0
_COLOURS = {"WARNING": WARN, "ERROR": BAD, "CRITICAL": BAD, "DEBUG": DIM}


@command(
    "duly logs 00064327ad31b0c71f7bd4e7f1",
    "duly logs 00064327ad31b0c71f7bd4e7f1 --follow",
    "duly logs 00064327ad31b0c71f7bd4e7f1 --attempt 2 --json",
)
@click.argument("run_id", metavar="RUN", shell_complete=run_ids)
@click.option("--follow", "-f", is_flag=True, help="Show new lines as they come, until the run has ended.")
@click.option("--attempt", type=click.IntRange(1, 1_000_000), metavar="N", help="Only lines of this attempt.")
@click.option(
    "--after", type=click.IntRange(0, MOST_SEQUENCE), default=0, metavar="N", help="Only lines after this number."
)
@store_option
@json_option
def logs(run_id: str, follow: bool, attempt: int | None, after: int, url: str | None, as_json: bool) -> None:
    """Show what the handler of a run has logged, and what its process or command has written.

    The newest lines of each run are kept (keep_logs, 200), across all its attempts. With --follow and --json each line
    is one line of JSON.
    """
    try:
        found = ask(url, lambda scheduler: _read(scheduler, run_id, after, attempt, follow=follow, as_json=as_json))
    except KeyboardInterrupt:
        return
    if follow:
        return
    if as_json:
        write_json(found)
    elif not found:
        note("the run has no log: its handler has written nothing, or keep_logs is 0")
    else:
        _write(found, after, as_json=False)


async def _read(
    scheduler: Scheduler, run_id: str, after: int, attempt: int | None, *, follow: bool, as_json: bool
) -> list[LogLine]:
    run_id = (await find_run(scheduler, run_id)).id
    found = await scheduler.logs(run_id, after=after, attempt=attempt)
    if follow:
        await _follow(scheduler, run_id, after, attempt, as_json=as_json)
    return found


async def _follow(scheduler: Scheduler, run_id: str, after: int, attempt: int | None, *, as_json: bool) -> None:
    import asyncio  # noqa: PLC0415

    from duly.scheduler.log_reader import follow  # noqa: PLC0415

    store, away = (await scheduler.opened()).backend.store, False
    ended = False
    while not ended:
        try:
            async for lines in follow(store, run_id, after, attempt):
                away = False
                _write(lines, after, as_json=as_json)
                after = lines[-1].number if lines else after
            ended = True
        except BackendUnavailable as exc:
            if not away:
                note(f"{exc}; waiting for it")
            away = True
            await asyncio.sleep(_AFTER_FAILURE)


def _write(lines: Sequence[LogLine], after: int, *, as_json: bool) -> None:
    for line in lines:
        if as_json:
            click.echo(json_text(plain(line)))
        else:
            if after and line.number > after + 1:
                note(f"{line.number - after - 1} lines are not kept")
            click.echo(_text(line))
        after = line.number


def _text(line: LogLine) -> str:
    """One line for the terminal: nothing in its text can move the cursor or look like another line."""
    at = iso(line.at).replace("T", " ")[:23]
    what = f"{line.level} {line.logger}:" if line.source is LineSource.LOG else f"{line.source.value}:"
    text = escaped(line.text, keep="\t")
    return f"{at}Z  #{line.attempt}  {click.style(escaped(what), fg=_COLOURS.get(line.level))} {text}"
