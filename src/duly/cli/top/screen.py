"""The screen of `duly top` as lines of text: a pure function of the view, the snapshot and the size."""

from __future__ import annotations

from collections.abc import Sequence

import click
from msgspec import Struct

from duly.cli.cells import cut, folded, padded
from duly.cli.demo.counts import percentile
from duly.cli.full_screen import Size
from duly.cli.output import BAD, DIM, WARN, table_lines
from duly.cli.text import span
from duly.cli.top.lists import LISTS, Listing, of_state
from duly.cli.top.snapshot import Snapshot
from duly.cli.top.view import Text, View, items_of, place_of
from duly.model import State

_AROUND = 5  # lines that are not of the list: two of summary, the lists, the titles, the keys
_KEYS = "e explain  p pause/resume  t trigger  c cancel  r redrive  ? help  q quit"


class Frame(Struct, frozen=True):
    """What is drawn besides the view: where the store is, and what is wrong with it."""

    store: str
    snapshot: Snapshot | None = None
    trouble: str = ""


def page_of(size: Size) -> int:
    """How many lines of a list fit on the screen."""
    return max(1, size.rows - _AROUND)


def draw(view: View, frame: Frame, size: Size, *, colours: bool) -> list[str]:
    """The lines of the screen, not more than it has, none wider than it is."""
    width, snapshot = size.columns, frame.snapshot
    if snapshot is None:
        head, body = [_title(frame, width), ""], [cut(frame.trouble or "reading …", width)]
    else:
        head = [_title(frame, width), _summary(snapshot, width), _tabs(view, snapshot, width)]
        body = _text(view.text, size) if view.text is not None else _list(view, snapshot, size)
    most = max(0, size.rows - len(head) - 1)
    lines = [*head, *body[:most], *[""] * (most - len(body)), _footer(view, width)][: size.rows]
    return lines if colours else [_without_colours(line) for line in lines]


def _title(frame: Frame, width: int) -> str:
    clock = "" if frame.snapshot is None else f"{frame.snapshot.now:%Y-%m-%d %H:%M:%S}Z"
    left = cut(f"duly top  {frame.store}", max(0, width - len(clock) - 2))
    if frame.trouble:
        return click.style(padded(f"not up to date: {frame.trouble}", width), fg=BAD, reverse=True)
    return click.style(padded(padded(left, width - len(clock)) + clock, width), reverse=True)


def _summary(snapshot: Snapshot, width: int) -> str:
    """The most important numbers; what does not fit is left out from the end."""
    counts = snapshot.counts
    late = " ".join(
        f"{word} {span(percentile(snapshot.late, share) or 0.0)}"
        for share, word in ((0.5, "p50"), (0.99, "p99"), (1.0, "max"))
    )
    leader = f", {snapshot.leader} leads" if snapshot.leader else ", no leader"
    parts = [
        f"running {of_state(counts, State.RUNNING)}",
        f"queued {of_state(counts, State.QUEUED)}",
        f"late {late}" if snapshot.late else "late –",
        f"nodes {len(snapshot.nodes)}{leader if snapshot.nodes else ''}",
        f"pending {of_state(counts, State.PENDING)}",
        f"completed {of_state(counts, State.COMPLETED)}",
        f"failed {of_state(counts, State.FAILED)}",
    ]
    while len(parts) > 1 and len("  ".join(parts)) > width:
        parts.pop()
    return cut("  ".join(parts), width)


def _tabs(view: View, snapshot: Snapshot, width: int) -> str:
    """The names of the lists with the number of their lines; the shown one is highlighted."""
    texts = [f"{number} {each.title} {_number(each, snapshot)}" for number, each in enumerate(LISTS, 1)]
    if len("  ".join(texts)) + 2 > width:
        texts = [f"{number} {each.title}" for number, each in enumerate(LISTS, 1)]
    shown = [
        click.style(f" {text} ", reverse=True) if place == view.number else text for place, text in enumerate(texts)
    ]
    return "  ".join(shown) if len("  ".join(texts)) + 2 <= width else cut(f"{texts[view.number]} (Tab: others)", width)


def _number(listing: Listing, snapshot: Snapshot) -> str:
    """How many lines a list has; there are more than those that were read if there is a plus."""
    count = len(listing.items(snapshot))
    return f"{count}+" if listing.most is not None and count >= listing.most else str(count)


def _list(view: View, snapshot: Snapshot, size: Size) -> list[str]:
    listing, items = LISTS[view.number], items_of(view, snapshot)
    if not items:
        return ["", cut(listing.empty, size.columns)]
    titles, *rows = table_lines(listing.columns, [item.row for item in items], size.columns)[0]
    place = place_of(view.chosen[view.number], items)
    page = page_of(size)
    first = max(0, min(place - page // 2, len(rows) - page))
    shown = rows[first : first + page]
    shown[place - first] = click.style(padded(click.unstyle(shown[place - first]), size.columns), reverse=True)
    return [titles, *shown]


def _text(text: Text, size: Size) -> list[str]:
    page = page_of(size)
    shown = text.lines[text.first : text.first + page]
    more = len(text.lines) - text.first - len(shown)
    title = f"{text.title} ({more} more lines below)" if more > 0 else text.title
    return [click.style(cut(title, size.columns), bold=True), *(cut(line, size.columns) for line in shown)]


def _footer(view: View, width: int) -> str:
    if view.question is not None:
        question = cut(view.question.words, width - 8)
        return click.style(padded(f"{question[:1].upper()}{question[1:]}? (y/n)", width), fg=WARN, reverse=True)
    if view.message:
        return cut(view.message, width)
    if view.text is not None:
        return click.style(cut("Esc close  ↑ ↓ scroll", width), fg=DIM)
    return click.style(cut(_KEYS, width), fg=DIM)


def wrapped(lines: Sequence[str], width: int) -> tuple[str, ...]:
    """The lines of a text, none wider than the screen."""
    return tuple(part for line in lines for part in folded(line, width))


def _without_colours(line: str) -> str:
    """A line whose highlights are only reversed."""
    plain = click.unstyle(line)
    return click.style(plain, reverse=True) if "\x1b[7m" in line or ";7m" in line else plain
