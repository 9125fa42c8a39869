"""Repeated warnings: which of many alike are written.

The first one is written. Those that follow are only counted for a while; the next one after that is written with their
number. The pause grows while they keep coming, so that a fault that lasts for days costs a line every ten minutes.
"""

from __future__ import annotations

from msgspec import Struct

FIRST_PAUSE = 10.0
LONGEST_PAUSE = 600.0


class Repeats(Struct, frozen=True):
    """What was written about one subject: when, for how long the next ones are only counted, and how many were."""

    written_at: float
    pause: float = FIRST_PAUSE
    left_out: int = 0


def repeat(before: Repeats | None, now: float) -> tuple[Repeats, int | None]:
    """The new state, and how many were left out before this one, which is written; None: it is left out, too."""
    if before is None:
        return Repeats(now), 0
    if now < before.written_at + before.pause:
        return Repeats(before.written_at, before.pause, before.left_out + 1), None
    pause = min(2 * before.pause, LONGEST_PAUSE) if before.left_out else FIRST_PAUSE
    return Repeats(now, pause), before.left_out
