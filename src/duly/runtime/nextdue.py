"""When the next run is due, as far as this node knows. Written by whoever learns of it, read by the dispatcher."""

from __future__ import annotations

from datetime import datetime

from duly.runtime.service import Signal


class NextDue:
    """One instant, and the signal of whoever waits for it."""

    def __init__(self, signal: Signal) -> None:
        self.at: datetime | None = None
        self._signal = signal

    def learn(self, at: datetime | None) -> None:
        """The store has been asked: this is the next due time there is."""
        self.at = at
        if at is not None:
            self._signal.wake()

    def expect(self, at: datetime) -> None:
        """A run will be due then; the store may know an earlier one."""
        if self.at is None or at < self.at:
            self.at = at
            self._signal.wake()
