"""A clock that only its owner moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from duly.model import as_utc


class ManualClock:
    """Stands still until a test moves it."""

    def __init__(self, now: datetime | None = None) -> None:
        self._now = as_utc(now or datetime(2030, 1, 1, tzinfo=UTC), "now")
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def set(self, now: datetime) -> None:
        """Move forward to an instant; never backward."""
        step = as_utc(now, "now") - self._now
        if step < timedelta(0):
            raise ValueError(f"the clock stands at {self._now.isoformat()} and does not go back to {now.isoformat()}")
        self._now += step
        self._elapsed += step.total_seconds()
