"""Writing answers down: JSON documents, tables, and pairs of names and values.

Tables are rich's on a terminal, where they are made to fit; elsewhere they are plain aligned text, whole and without
colours, for `grep` and `awk`. Notes go to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import click
import msgspec

from duly.cli.words import line
from duly.model import iso
from duly.rules.printable import escaped

_KEPT = (datetime, timedelta, bytes)


class Column(NamedTuple):
    """A column: its title, whether numbers stand to the right, whether it gives way where there is little room."""

    title: str
    right: bool = False
    gives_way: bool = False


class Cell(NamedTuple):
    """A text with a colour."""

    text: str
    colour: str = ""


Row = Sequence[str | Cell]

GOOD, BAD, WARN, DIM, LIVE = "green", "red", "yellow", "bright_black", "cyan"

COLOURS = {
    "completed": GOOD,
    "succeeded": GOOD,
    "active": GOOD,
    "running": LIVE,
    "queued": LIVE,
    "failed": BAD,
    "timed_out": BAD,
    "lost": BAD,
    "paused": WARN,
    "retired": WARN,
    "skipped": WARN,
    "cancelled": WARN,
    "interrupted": WARN,
    "removed": DIM,
    "finished": DIM,
    "pending": DIM,
}


def worded(word: str | None) -> Cell:
    """A state, a status or an outcome in its colour."""
    return Cell(word or "–", COLOURS.get(word or "", ""))


def write_json(value: Any) -> None:
    """One document: structs by their fields, instants as ISO with six decimals and Z, durations in seconds."""
    write_document(plain(value))


def write_document(document: Any) -> None:
    """One document that consists of JSON values already."""
    click.echo(json_text(document, indent=2))


def json_text(document: Any, indent: int | None = None) -> str:
    """A document as JSON that reads well and that no terminal takes for a command."""
    return escaped(json.dumps(document, indent=indent, ensure_ascii=False), keep="\n")


def plain(value: Any) -> Any:
    """A value as JSON has it. Payloads and results, which are JSON already, are put in as they are."""
    return _plain(msgspec.to_builtins(value, builtin_types=_KEPT, order="deterministic", str_keys=True))


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return iso(value)
        case timedelta():
            return value.total_seconds()
        case bytes():
            return msgspec.json.decode(value)
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            return value


def note(text: str) -> None:
    """Something beside the answer, for people only."""
    click.secho(text, err=True, fg=DIM)


def on_terminal() -> bool:
    """Whether somebody looks at what is written."""
    return sys.stdout.isatty()


def colourful() -> bool:
    """Whether colours are wanted."""
    return on_terminal() and click.get_current_context().color is not False


def write_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """A table of cells; what is foreign in them is made harmless."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    if on_terminal():
        _write_rich(columns, cells)
    else:
        _write_plain(columns, cells)


def _cell(cell: str | Cell) -> Cell:
    return Cell(line(cell.text), cell.colour) if isinstance(cell, Cell) else Cell(line(cell))


def _write_plain(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    table = [[column.title for column in columns], *[[cell.text for cell in row] for row in rows]]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for row in table:
        padded = [
            text.rjust(width) if column.right else text.ljust(width)
            for text, width, column in zip(row, widths, columns, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def _write_rich(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    from rich.console import Console  # noqa: PLC0415  # only a terminal needs it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=not column.gives_way,
            overflow="fold" if column.gives_way else "ellipsis",
        )
    for row in rows:
        table.add_row(*[Text(cell.text, style=cell.colour) for cell in row])
    Console(color_system="auto" if colourful() else None, highlight=False).print(table)


def write_pairs(pairs: Sequence[tuple[str, str | Cell]]) -> None:
    """Names and values below each other."""
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        cell = _cell(value)
        click.echo(f"{name.ljust(width)}  {click.style(cell.text, fg=cell.colour or None)}")


def write_block(title: str, texts: Sequence[str]) -> None:
    """A title and indented lines."""
    click.echo(f"\n{click.style(title, bold=True)}")
    for text in texts:
        click.echo(f"  {text}".rstrip())
