"""Output of commands: JSON documents, tables, and pairs of names and values.

On a terminal, tables are fitted to its width by rich; elsewhere they are plain aligned text, complete and without
colours, for `grep` and `awk`. Notes go to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import click
import msgspec

from duly.cli.text import line
from duly.model import iso
from duly.rules.printable import escaped

_KEPT = (datetime, timedelta, bytes)


class Column(NamedTuple):
    """A column: its title, whether it is aligned to the right, and whether it may wrap on a narrow terminal."""

    title: str
    right: bool = False
    wraps: bool = False


class Cell(NamedTuple):
    """Text with a colour."""

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


def coloured(word: str | None) -> Cell:
    """A state, a status or an outcome in its colour."""
    return Cell(word or "–", COLOURS.get(word or "", ""))


def write_json(value: Any) -> None:
    """Write a value as JSON: structs by their fields, times as ISO 8601 with six decimals, durations in seconds."""
    write_document(plain(value))


def write_document(document: Any) -> None:
    """Write a document that already consists of JSON values."""
    click.echo(json_text(document, indent=2))


def json_text(document: Any, indent: int | None = None) -> str:
    """A document as JSON without terminal control characters."""
    return escaped(json.dumps(document, indent=indent, ensure_ascii=False), keep="\n")


def plain(value: Any) -> Any:
    """A value as JSON values. Payloads and results are decoded from their bytes."""
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
    """Write a note for people to standard error."""
    click.secho(text, err=True, fg=DIM)


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def colourful() -> bool:
    """Whether colours are used."""
    return on_terminal() and click.get_current_context().color is not False


def write_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Write a table. Control characters in cells are replaced."""
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
            no_wrap=not column.wraps,
            overflow="fold" if column.wraps else "ellipsis",
        )
    for row in rows:
        table.add_row(*[Text(cell.text, style=cell.colour) for cell in row])
    Console(color_system="auto" if colourful() else None, highlight=False).print(table)


def write_list(found: Sequence[Any], columns: Sequence[Column], row: Callable[[Any], Row], empty: str) -> None:
    """Write a table with a row for each, or a message if there are none."""
    if found:
        write_table(columns, [row(each) for each in found])
    else:
        click.echo(empty)


def write_pairs(pairs: Sequence[tuple[str, str | Cell]]) -> None:
    """Write names and values, one pair per line."""
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        cell = _cell(value)
        click.echo(f"{name.ljust(width)}  {click.style(cell.text, fg=cell.colour or None)}")


def write_block(title: str, texts: Sequence[str]) -> None:
    """Write a title and indented lines."""
    click.echo(f"\n{click.style(title, bold=True)}")
    for text in texts:
        click.echo(f"  {text}".rstrip())
