"""The history of a simulation: every call the store applied, in its order, and what the handlers recorded.

Events are kept as they happened; `facts` says what they mean, `invariants` what must be true of them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import Struct

from duly.model import Run
from duly.testing.sim.node import current_node


class Change(Struct, frozen=True):
    """What a call did to one run: None before is an insertion, None after a deletion."""

    before: Run | None
    after: Run | None


class Event(Struct, frozen=True):
    """Anything that happened: at which virtual second, what the store's clock said, in whose name."""

    at: float
    now: datetime
    node: str


class Call(Event, frozen=True):
    """A port method that the store applied. A `copy` was delivered a second time; its answer was dropped."""

    method: str
    arguments: dict[str, Any]
    answer: Any
    changes: tuple[Change, ...] = ()
    copy: bool = False


class Begin(Event, frozen=True):
    """A handler began, as it recorded itself."""

    job: str
    run_id: str
    fence: int


class End(Event, frozen=True):
    """A handler ended, as it recorded itself."""

    job: str
    run_id: str
    fence: int
    how: str


class Note(Event, frozen=True):
    """Something done to a node or to the network, for the report."""

    text: str


class History:
    """Append-only. Reads virtual time and the store's clock itself."""

    def __init__(self, time: Callable[[], float], now: Callable[[], datetime]) -> None:
        self.events: list[Event] = []
        self._time = time
        self._now = now

    def call(
        self,
        node: str,
        method: str,
        arguments: dict[str, Any],
        answer: Any,
        changes: tuple[Change, ...] = (),
        *,
        copy: bool = False,
    ) -> None:
        """The store applied a call."""
        self.events.append(Call(self._time(), self._now(), node, method, arguments, answer, changes, copy))

    def begin(self, job: str, run_id: str, fence: int) -> None:
        """For handlers: the attempt with this fence begins, here and now."""
        self.events.append(Begin(self._time(), self._now(), _here(), job, run_id, fence))

    def end(self, job: str, run_id: str, fence: int, how: str = "") -> None:
        """For handlers: the attempt with this fence ends."""
        self.events.append(End(self._time(), self._now(), _here(), job, run_id, fence, how))

    def note(self, text: str, node: str = "") -> None:
        """Something for the report."""
        self.events.append(Note(self._time(), self._now(), node, text))


def _here() -> str:
    node = current_node()
    return "" if node is None else node.name
