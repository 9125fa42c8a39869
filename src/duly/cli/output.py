"""Output of commands: JSON documents, tables, and pairs of names and values.

On a terminal everything is fitted to its width, unless `--wide` is given; elsewhere it is plain aligned text, complete
and without colours, for `grep` and `awk`. Notes go to standard error.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import click
import msgspec

from duly.cli.cells import cut, folded, padded, width_of
from duly.cli.columns import GAP, Column, fit
from duly.cli.options import wide
from duly.cli.text import line
from duly.model import iso, short_id
from duly.rules.printable import escaped

__all__ = [
    "BAD",
    "COLOURS",
    "DIM",
    "GOOD",
    "LIVE",
    "WARN",
    "Cell",
    "Column",
    "Row",
    "coloured",
    "colourful",
    "in_full",
    "json_text",
    "note",
    "on_terminal",
    "plain",
    "room",
    "shown_id",
    "table_lines",
    "write_block",
    "write_document",
    "write_json",
    "write_line",
    "write_list",
    "write_pairs",
    "write_table",
]

_KEPT = (datetime, timedelta, bytes)


class Cell(NamedTuple):
    """Text with a colour. Where the text does not fit, `short` is shown instead of the beginning of it."""

    text: str
    colour: str = ""
    short: str = ""


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
    limit = shutil.get_terminal_size().columns if sys.stderr.isatty() and not wide() else None
    for part in [text] if limit is None else folded(text, limit):
        click.secho(part, err=True, fg=DIM)


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def colourful() -> bool:
    """Whether colours are used."""
    return on_terminal() and click.get_current_context().color is not False


def in_full() -> bool:
    """Whether nothing is shortened: the output is not a terminal, or `--wide` is given."""
    return not on_terminal() or wide()


def room() -> int | None:
    """How many cells a line may take; None where nothing is shortened."""
    return None if in_full() else shutil.get_terminal_size().columns


def shown_id(run_id: str) -> str:
    """The id of a run as tables show it: short on a terminal, which every command accepts."""
    return run_id if in_full() else short_id(run_id)


def write_table(
    columns: Sequence[Column], rows: Sequence[Row], *, titles: bool = True, indent: int = 0, err: bool = False
) -> None:
    """Write a table to standard output, or to standard error. Control characters in cells are replaced.

    On a terminal it is fitted to the width (`duly.cli.columns`), and a note names the columns that are left out.
    """
    limit = room()
    texts, left_out = table_lines(columns, rows, None if limit is None else limit - indent, titles=titles)
    for text in texts:
        click.echo(f"{'':>{indent}}{text}", err=err)
    if left_out and titles:
        note(f"left out: {', '.join(left_out)}; --wide shows everything")


def table_lines(
    columns: Sequence[Column], rows: Sequence[Row], limit: int | None, *, titles: bool = True
) -> tuple[list[str], list[str]]:
    """The lines of a table with colours, fitted to `limit` cells (None: not at all); and the columns left out."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    table = [[Cell(column.title) for column in columns], *cells] if titles else cells
    natural = [max((width_of(row[place].text) for row in table), default=0) for place in range(len(columns))]
    widths = list[int | None](natural) if limit is None else fit(columns, natural, limit)
    texts = [_table_line(columns, row, widths, bold=titles and not number) for number, row in enumerate(table)]
    return texts, [column.title for column, width in zip(columns, widths, strict=True) if width is None]


def _table_line(columns: Sequence[Column], row: Sequence[Cell], widths: Sequence[int | None], *, bold: bool) -> str:
    """One line of a table, without spaces at its end."""
    every = zip(columns, row, widths, strict=True)
    shown = [(column, cell, width) for column, cell, width in every if width is not None]
    last = len(shown) - 1
    parts = []
    for place, (column, cell, width) in enumerate(shown):
        text = cell.short if cell.short and width_of(cell.text) > width else cell.text
        fitted = cut(text, width) if place == last and not column.right else padded(text, width, right=column.right)
        parts.append(click.style(fitted, fg=cell.colour or None, bold=bold or None) if fitted.strip() else fitted)
    return (" " * GAP).join(parts).rstrip()


def _cell(cell: str | Cell) -> Cell:
    return Cell(line(cell.text), cell.colour, line(cell.short)) if isinstance(cell, Cell) else Cell(line(cell))


def write_list(found: Sequence[Any], columns: Sequence[Column], row: Callable[[Any], Row], empty: str) -> None:
    """Write a table with a row for each, or a message if there are none."""
    if found:
        write_table(columns, [row(each) for each in found])
    else:
        click.echo(empty)


def write_pairs(pairs: Sequence[tuple[str, str | Cell]]) -> None:
    """Write names and values, one pair per line. On a terminal, long values are continued below their beginning."""
    width = max((width_of(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        cell = _cell(value)
        write_line(cell.text, padded(name, width) + " " * GAP, colour=cell.colour)


def write_line(text: str, lead: str = "", *, colour: str = "") -> None:
    """Write text after a lead. On a terminal it is broken between words, and continued below its beginning."""
    limit, start = room(), width_of(click.unstyle(lead))
    texts = [text] if limit is None or limit <= 2 * start else folded(text, limit - start)
    for number, part in enumerate(texts):
        click.echo(f"{' ' * start if number else lead}{click.style(part, fg=colour or None)}".rstrip())


def write_block(title: str, texts: Sequence[str]) -> None:
    """Write a title and indented lines."""
    click.echo()
    limit = room()
    for part in [title] if limit is None else folded(title, limit):
        click.secho(part, bold=True)
    for text in texts:
        space = len(text) - len(text.lstrip())
        write_line(text.strip(), " " * (space + 2))
