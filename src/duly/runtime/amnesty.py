"""After an outage of the store every lease has lapsed at once. Live work must not be repeated for that.

A node whose own calls failed for a while asks for an amnesty before it beats or reaps; the store grants it only if
nobody could beat. The death of a leader or worker is never an outage.
"""

from __future__ import annotations

from collections.abc import Callable

from duly.ports import Queue


class Amnesty:
    """Tracks the failures of one caller and asks for the amnesty when they are over."""

    def __init__(self, lease: float, monotonic: Callable[[], float]) -> None:
        self._lease = lease
        self._monotonic = monotonic
        self._failing_since: float | None = None

    def failed(self) -> None:
        """A call did not reach the store."""
        if self._failing_since is None:
            self._failing_since = self._monotonic()

    def succeeded(self) -> None:
        """The store answers again."""
        self._failing_since = None

    async def before_acting(self, queue: Queue) -> None:
        """To be called before the store hears that somebody is alive, or reaps."""
        if self._failing_since is not None and self._monotonic() - self._failing_since > self._lease / 3:
            await queue.spare(self._lease / 3, self._lease)
