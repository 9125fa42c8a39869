"""What the user of `duly top` looks at, and what a key changes: pure decisions.

`press` returns the new view, and the action that the key asks for. Actions that change something are asked about first.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from duly.cli.top.lists import LISTS, Item
from duly.cli.top.snapshot import Snapshot

HELP = (
    "Tab, Shift-Tab, ← →, 1-6   choose a list",
    "↑ ↓, k j                   choose a line",
    "PgUp PgDn, Home End, g G   move further",
    "e, Enter                   explain the job or the run",
    "p                          pause or resume the job or the queue",
    "t                          trigger the job: run it now",
    "c                          cancel the run",
    "r                          redrive the failed run: run it again",
    "?, h                       this help",
    "Esc                        close this text, or answer no",
    "q, Ctrl-C                  quit",
    "",
    "Everything that changes something is confirmed with y first, and is recorded in the audit log.",
)


class Kind(StrEnum):
    """What can be done with a line."""

    EXPLAIN = "explain"
    PAUSE = "pause"
    RESUME = "resume"
    TRIGGER = "trigger"
    CANCEL = "cancel"
    REDRIVE = "redrive"


class Action(Struct, frozen=True):
    """Something to do with one line."""

    kind: Kind
    item: Item

    @property
    def words(self) -> str:
        """What it does: "cancel run 1d858519"."""
        item = self.item
        if self.kind in {Kind.CANCEL, Kind.REDRIVE}:
            return f"{self.kind} run {item.run} of {item.job}"
        return f"{self.kind} queue {item.queue}" if item.queue is not None else f"{self.kind} {item.job}"


class Text(Struct, frozen=True):
    """A text over the list, and the first line of it that is shown."""

    title: str
    lines: tuple[str, ...]
    first: int = 0


class Chosen(Struct, frozen=True):
    """The line that is chosen in a list. Its key finds it again where lines have come and gone."""

    place: int = 0
    key: str = ""


class View(Struct, frozen=True):
    """Which list is shown, which line is chosen in each, and what lies over the list."""

    number: int = 0
    chosen: tuple[Chosen, ...] = (Chosen(),) * len(LISTS)
    text: Text | None = None
    question: Action | None = None
    message: str = ""


class Step(Struct, frozen=True):
    """What a key has led to."""

    view: View
    action: Action | None = None
    ends: bool = False


def items_of(view: View, snapshot: Snapshot) -> list[Item]:
    """The lines of the list that is shown."""
    return LISTS[view.number].items(snapshot)


def place_of(chosen: Chosen, items: Sequence[Item]) -> int:
    """Where the chosen line is now; if it is gone, the line in its place."""
    for place, item in enumerate(items):
        if item.key == chosen.key:
            return place
    return max(0, min(chosen.place, len(items) - 1))


def press(view: View, key: str, snapshot: Snapshot, page: int) -> Step:
    """What a key does. `page` is how many lines the screen shows."""
    if view.question is not None:
        answered = replace(view, question=None, message="")
        return (
            Step(answered, view.question) if key in {"y", "Y"} else Step(replace(answered, message="nothing was done"))
        )
    if view.text is not None:
        return Step(_read(view, view.text, key, page))
    view = replace(view, message="")
    if key in {"q", "Q"}:
        return Step(view, ends=True)
    if key in {"?", "h"}:
        return Step(replace(view, text=Text("Keys", HELP)))
    number = _list_for(view.number, key)
    if number is not None:
        return Step(replace(view, number=number))
    items = items_of(view, snapshot)
    if not items:
        return Step(view)
    place = place_of(view.chosen[view.number], items)
    if (target := _move(key, place, len(items), page)) is not None:
        return Step(_choose(view, target, items))
    return _act(_choose(view, place, items), key, items[place])


def _read(view: View, text: Text, key: str, page: int) -> View:
    if key in {"q", "Q", "escape", "enter", "?", "h"}:
        return replace(view, text=None)
    last = max(0, len(text.lines) - page)
    first = _move(key, text.first, last + 1, page)
    return view if first is None else replace(view, text=replace(text, first=first))


def _list_for(number: int, key: str) -> int | None:
    if key in {"tab", "right", "l"}:
        return (number + 1) % len(LISTS)
    if key in {"backtab", "left"}:
        return (number - 1) % len(LISTS)
    return int(key) - 1 if key.isdecimal() and key.isascii() and 1 <= int(key) <= len(LISTS) else None


def _move(key: str, place: int, number: int, page: int) -> int | None:
    """The line that a key moves to, None if it is not a key that moves."""
    targets = {
        "up": place - 1,
        "k": place - 1,
        "down": place + 1,
        "j": place + 1,
        "page up": place - page,
        "page down": place + page,
        "home": 0,
        "g": 0,
        "end": number - 1,
        "G": number - 1,
    }
    return max(0, min(targets[key], number - 1)) if key in targets else None


def _choose(view: View, place: int, items: Sequence[Item]) -> View:
    chosen = list(view.chosen)
    chosen[view.number] = Chosen(place, items[place].key)
    return replace(view, chosen=tuple(chosen))


def _act(view: View, key: str, item: Item) -> Step:
    kind = _kind(key, item, LISTS[view.number].title)
    if kind is None:
        return Step(view)
    if not isinstance(kind, Kind):
        return Step(replace(view, message=kind))
    action = Action(kind, item)
    return Step(view, action) if kind is Kind.EXPLAIN else Step(replace(view, question=action))


def _kind(key: str, item: Item, title: str) -> Kind | str | None:
    """What a key asks for; a text says why it is not possible for this line, None if it is no key for that."""
    match key:
        case "e" | "enter":
            return Kind.EXPLAIN if item.job is not None else "only jobs and runs can be explained"
        case "p" if title in {"Jobs", "Queues"}:
            return Kind.RESUME if item.paused else Kind.PAUSE
        case "p":
            return "only jobs and queues can be paused: see the lists Jobs and Queues"
        case "t":
            return Kind.TRIGGER if item.job is not None else "only jobs can be triggered"
        case "c" if title in {"Running", "Next"}:
            return Kind.CANCEL if item.run is not None else "this run does not exist yet: pause its job instead"
        case "c":
            return "only running and waiting runs can be cancelled: see the lists Running and Next"
        case "r":
            return Kind.REDRIVE if title == "Failed" else "only failed runs can be redriven: see the list Failed"
        case _:
            return None
