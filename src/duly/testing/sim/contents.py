"""A memory store that records its changes, so that the history knows what a call did, not only what it returned."""

from __future__ import annotations

from duly.backends.memory.contents import Contents
from duly.backends.memory.runs import Runs
from duly.model import Run
from duly.ports import Clock
from duly.testing.sim.history import Change


class TapedRuns(Runs):
    """Records every version of every run, in order. Fences start at 1, so that histories are easier to read."""

    def __init__(self) -> None:
        super().__init__(last_fence=0)
        self._tape: list[Change] = []

    def save(self, run: Run) -> None:
        self._tape.append(Change(self.by_id.get(run.id), run))
        super().save(run)

    def delete(self, run: Run) -> None:
        self._tape.append(Change(self.by_id.get(run.id), None))
        super().delete(run)

    def cut(self) -> tuple[Change, ...]:
        """The changes since the last cut."""
        changes, self._tape = tuple(self._tape), []
        return changes


class TapedContents(Contents):
    """What a simulated store holds. `clock` is the store's own."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.taped = TapedRuns()
        self.runs = self.taped
