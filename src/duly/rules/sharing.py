"""Sharing: how scheduled and other runs of one priority share a claim.

Runs of a schedule have at least a quarter of what a claim lends from one priority, so that they do not wait behind a
backlog of submissions; beyond that the order of waiting decides. Higher priorities go first in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PARTS = 4


def scheduled_share(room: int, request: int) -> int:
    """How many of `room` places are guaranteed to scheduled runs, rounded up.

    With fewer than four places, one place in every claim would be too much: then scheduled runs get one place in as
    many of four consecutive requests as there are places.
    """
    if room >= PARTS:
        return -(-room // PARTS)
    return int(request % PARTS < room)


def shared(scheduled: Sequence[Any], others: Sequence[Any], room: int, owed: int) -> tuple[int, int]:
    """How many of the first scheduled runs, and of the first other runs, fill `room` places.

    Both are sorted, and compare with each other, by the order of waiting. `owed` is what is left of the share.
    """
    if len(scheduled) + len(others) <= room:
        return len(scheduled), len(others)
    first = other = 0
    while first + other < room:
        if other == len(others) or (first < len(scheduled) and scheduled[first] < others[other]):
            first += 1
        else:
            other += 1
    first = max(first, min(owed, len(scheduled), room))
    return first, room - first
