"""The columns of a table, and which of them fit into a terminal: a pure decision.

Where there is little room, the least important columns are left out, and text is cut in those that may be cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

GAP = 2  # between two columns

_USUAL = 5
_LEAST = 10


class Column(NamedTuple):
    """A column of a table.

    `right` aligns it to the right. Where the terminal is narrow, the columns of the lowest `importance` (1 to 9) are
    left out, of several the last one. If its text `wraps`, it may be cut to `least` cells there, but not shorter than
    its title; otherwise it is shown as a whole or not at all.
    """

    title: str
    right: bool = False
    wraps: bool = False
    importance: int = _USUAL
    least: int = _LEAST


def fit(columns: Sequence[Column], natural: Sequence[int], room: int) -> list[int | None]:
    """The width of each column in cells; None for those that are left out.

    `natural` is how wide each column would like to be. The most important column is always there.
    """
    widths: list[int | None] = [None] * len(columns)
    left = room + GAP
    ranked = sorted(range(len(columns)), key=lambda place: -columns[place].importance)
    for place in ranked:
        needed = _narrowest(columns[place], natural[place])
        if GAP + needed <= left or place == ranked[0]:
            widths[place] = min(needed, room)
            left -= GAP + needed
    for importance in sorted({column.importance for column in columns}, reverse=True):
        equals = [place for place, column in enumerate(columns) if column.importance == importance]
        left -= _widen(widths, natural, equals, left)
    return widths


def _narrowest(column: Column, natural: int) -> int:
    return min(natural, max(len(column.title), column.least)) if column.wraps else natural


def _widen(widths: list[int | None], natural: Sequence[int], places: Sequence[int], spare: int) -> int:
    """Divide spare cells evenly among columns that are narrower than they would like to be; return how many."""
    left = spare
    while left > 0:
        narrow = [(place, width) for place in places if (width := widths[place]) is not None and width < natural[place]]
        if not narrow:
            break
        share = max(1, left // len(narrow))
        for place, width in narrow:
            more = min(share, natural[place] - width, left)
            widths[place] = width + more
            left -= more
    return spare - left
