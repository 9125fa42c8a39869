"""The pace of a node: how many runs of which queue it starts, or ends, per second. Announced with its presence.

The rates of a queue are computed from the list of nodes, so that no store has to count them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable

_SPAN = 60.0

STARTED = "started/s:"
ENDED = "ended/s:"
LAST_START = "last_start"


class Rates:
    """Counts by second for a minute. Read from the heartbeat's thread as well."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since = monotonic()
        self._marks: dict[str, deque[tuple[int, int]]] = {}

    def add(self, queues: Iterable[str]) -> None:
        """Count one more for each of these queues."""
        second = int(self._monotonic())
        for queue, count in Counter(queues).items():
            marks = self._marks.get(queue)
            if marks is None:
                marks = self._marks[queue] = deque(maxlen=int(_SPAN) + 1)
            if marks and marks[-1][0] == second:
                marks[-1] = (second, marks[-1][1] + count)
            else:
                marks.append((second, count))

    def rates(self, prefix: str) -> dict[str, float]:
        """Per second, over the last minute, by queue; idle queues are left out."""
        now = self._monotonic()
        span = min(_SPAN, max(1.0, now - self._since))
        counted = {
            queue: sum(count for second, count in tuple(marks) if second > now - _SPAN)
            for queue, marks in tuple(self._marks.items())
        }
        return {f"{prefix}{queue}": round(count / span, 3) for queue, count in counted.items() if count}
