"""When the next run is due, as far as this node knows (`ports.queue` defines `next_due`); the dispatcher reads it.

The store's clock decides what is due. If this node's clock is ahead, a run that seems due here is not due yet: the
store is then asked again with increasing delays instead of in a busy loop.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from duly.model import seconds_between, shift
from duly.runtime.service import Signal

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.25


class NextDue:
    """One instant, and the signals of the services that wait for it: the dispatcher, and the one that reads ahead."""

    def __init__(self, signal: Signal, now: Callable[[], datetime]) -> None:
        self._at: datetime | None = None
        self.soon = Signal()
        self._pause = 0.0
        self._signal = signal
        self._now = now

    def learn(self, at: datetime | None) -> None:
        """Take over the next due time that the store has returned."""
        now = self._now()
        if at is None or at > now:
            self._pause, self._at = 0.0, at
        else:
            self._pause = min(max(_FIRST_PAUSE, 2 * self._pause), _LONGEST_PAUSE)
            self._at = shift(now, self._pause)
        if at is not None:
            self._wake()

    @property
    def at(self) -> datetime | None:
        """When the next run is due; None if nothing is known, or it is being asked for."""
        return self._at

    def expect(self, at: datetime) -> None:
        """A run will be due then; the store may know an earlier one."""
        if self._at is None or at < self._at:
            self._at = at
            self._wake()

    def _wake(self) -> None:
        self._signal.wake()
        self.soon.wake()

    def forget(self) -> None:
        """The store is being asked for it."""
        self._at = None

    def left(self, most: float) -> float:
        """Seconds until something is due, at most `most`."""
        return most if self._at is None else min(seconds_between(self._now(), self._at), most)
