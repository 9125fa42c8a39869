"""`--watch`: shows the output of a command again and again, on the whole screen, until Ctrl-C.

The store stays open. While it is unavailable, the latest output stays on the screen with a line that says so.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

import click

from duly.cli.cells import cut, padded
from duly.cli.client import KeptSession
from duly.cli.full_screen import FullScreen, Size, can_draw
from duly.cli.group import one_line
from duly.cli.output import BAD, DIM
from duly.cli.text import span
from duly.errors import DulyError
from duly.rules.printable import escaped
from duly.rules.redaction import redacted

_LOOK = 0.1  # how often the size of the terminal is looked at


def watch(ctx: click.Context, seconds: float, show: Callable[[], object]) -> None:
    """Call `show` every so many seconds, and display what it writes. The first call may fail as without `--watch`."""
    if ctx.params.get("as_json"):
        raise click.UsageError("--watch and --json cannot be used together: repeat the command in a loop")
    if not can_draw():
        raise click.UsageError("--watch needs a terminal: repeat the command in a loop, or see duly events --follow")
    latest: list[str] = []
    try:
        with KeptSession() as session:
            latest = _written(show)
            with FullScreen() as screen:
                _repeat(ctx, screen, session, seconds, show, latest)
    except KeyboardInterrupt:
        click.echo("\n".join(latest), color=ctx.color)


def _repeat(
    ctx: click.Context,
    screen: FullScreen,
    session: KeptSession,
    seconds: float,
    show: Callable[[], object],
    latest: list[str],
) -> None:
    title, trouble = f"every {span(seconds)}: {_command_line(ctx)}", ""
    while True:
        size = screen.size()
        screen.draw(frame(title, latest, trouble, size, colours=ctx.color is not False))
        _sleep(session, screen, seconds, size)
        try:
            latest[:], trouble = _written(show), ""
        except DulyError as exc:
            trouble = one_line(exc)


def frame(title: str, latest: list[str], trouble: str, size: Size, *, colours: bool) -> list[str]:
    """The lines of a screen: the command, a problem if there is one, and as much of the output as fits."""
    head = [click.style(padded(title, size.columns), reverse=True) if colours else cut(title, size.columns)]
    if trouble:
        problem = cut(f"not up to date: {trouble}", size.columns)
        head.append(click.style(problem, fg=BAD) if colours else problem)
    most = size.rows - len(head)
    if len(latest) <= most:
        return [*head, *latest]
    more = f"… {len(latest) - most + 1} more lines: a larger terminal or --limit"
    return [*head, *latest[: most - 1], click.style(cut(more, size.columns), fg=DIM) if colours else more]


def _sleep(session: KeptSession, screen: FullScreen, seconds: float, size: Size) -> None:
    """Sleep, but not longer than until the size of the terminal changes."""
    left = seconds
    while left > 0 and screen.size() == size:
        session.sleep(min(_LOOK, left))
        left -= _LOOK


def _command_line(ctx: click.Context) -> str:
    words = ["duly", *sys.argv[1:]] if sys.argv[1:] else [ctx.command_path]
    return escaped(redacted(" ".join(words)))


class _Recorder(io.StringIO):
    """Records what is written, and is a terminal to those who write."""

    def isatty(self) -> bool:
        return True


def _written(show: Callable[[], object]) -> list[str]:
    """The lines that a function writes."""
    recorder = _Recorder()
    with redirect_stdout(recorder), redirect_stderr(recorder):
        show()
    return recorder.getvalue().splitlines()
