"""The demo as lines, one per event, for pipes."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import click

from duly.cli.demo.happenings import Happening
from duly.cli.text import line
from duly.model import Run
from duly.scheduler import JobView


class EventLines:
    """Writes a line per event."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None) -> None:
        pass

    def tell(self, seconds: float, each: Happening) -> None:
        """Write a line about what happened that many seconds after the start."""
        word = click.style(f"{each.word:<9}", fg=each.colour)
        click.echo(f"{seconds:7.3f} {word} {each.job:<21}  {line(each.text)}")

    def draw(self, seconds: float, views: Sequence[JobView], running: Sequence[Run]) -> None:
        """Nothing to do: each event is written when it happens."""

    def say(self, text: str) -> None:
        """Write a line that belongs to no run."""
        click.echo(text)
