"""How fast the leader deletes expired runs: in steps so short that they do not delay the start of other runs."""

from __future__ import annotations

FIRST_STEP = 100
_LEAST, _MOST = 20, 1_000
_LONG, _SHORT = 0.010, 0.004  # seconds
_REST = 0.002

CLEAR = 0.05  # seconds: nothing is deleted if a run is due within this time,
PATIENCE = 1.0  # seconds: but deleting never pauses for longer than this


def next_step(size: int, seconds: float) -> int:
    """How many runs to delete in the next step, after a step of this size took `seconds`."""
    if seconds > _LONG:
        return max(_LEAST, size // 2)
    return min(_MOST, size * 2) if seconds < _SHORT else size


def pause_after(seconds: float) -> float:
    """How long to rest after a step: at most a third of the time is spent on deleting."""
    return max(_REST, 2 * seconds)
