"""Admission: what keeps a due run from being queued or started, decided from data in the run.

Overlap is a matter of its group; pause and missing handlers are matters of holds. Adapters apply what is said here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

from msgspec import Struct

from duly.model import Overlap, Run, WhenFull
from duly.model.holds import UNPLACED, hold_for_handler, hold_for_job

OVERLAP = "overlap"
REPLACED = "replaced"
REMOVED = "job removed"


class Admission(StrEnum):
    """What becomes of a due run that belongs to a group."""

    ENTER = "enter"
    SKIP = "skip"
    HOLD = "hold"
    REPLACE = "replace"


def admit(run: Run, members: int) -> Admission:
    """What to do with a due run when its group already has that many members, itself not counted."""
    if run.member or run.group is None or members < run.limit:
        return Admission.ENTER
    match run.when_full:
        case WhenFull.SKIP:
            return Admission.SKIP
        case WhenFull.QUEUE:
            return Admission.HOLD
        case WhenFull.REPLACE:
            return Admission.REPLACE


class Leaver(Struct, frozen=True, gc=False):
    """A run that leaves its group, or the line before it: whether it was a member."""

    key: int
    member: bool


class Held(Struct, frozen=True, gc=False):
    """A run that is held for its group, with the number of members it allows."""

    key: int
    limit: int


def moved_up(leaving: Sequence[Leaver], line: Sequence[Held], members: int) -> list[int]:
    """Which runs of a group's line wait again when runs leave one after the other; none of those that leave.

    `line` is the runs held for the group, the most urgent first, before anybody left; those that leave may be among
    them. At most two for each run that leaves are looked at. A member's place goes to the first in line. Any other run
    may have been offered a place that it did not take: it goes to the first in line if there is room.
    """
    gone: set[int] = set()
    moved: list[int] = []
    front = 0
    for leaver in leaving:
        gone.add(leaver.key)
        members -= leaver.member
        while front < len(line) and line[front].key in gone:
            front += 1
        if front < len(line) and (leaver.member or members < line[front].limit):
            moved.append(line[front].key)
            front += 1
    return [key for key in moved if key not in gone]


def group_of(job: str, overlap: Overlap) -> tuple[str | None, WhenFull]:
    """The group that a job's overlap policy puts its runs into, scheduled or not."""
    match overlap:
        case Overlap.ALLOW:
            return None, WhenFull.SKIP
        case Overlap.SKIP:
            return job, WhenFull.SKIP
        case Overlap.QUEUE:
            return job, WhenFull.QUEUE
        case Overlap.REPLACE:
            return job, WhenFull.REPLACE


def hold_of(
    job: str,
    handler: str,
    blocked: Collection[str],
    handlers: Collection[str] | None,
    *,
    assigned: bool = False,
) -> str | None:
    """The hold under which a queued run of a job must wait instead of starting on a node, or None if it may start.

    `blocked` are the names of paused and removed jobs, `handlers` the names the node has code for (None: any). A run
    that was `assigned` to a node without the code goes back to who assigns: put back for another node's handler, it
    would only come to this one again.
    """
    if job in blocked:
        return hold_for_job(job)
    if handlers is not None and handler not in handlers:
        return UNPLACED if assigned else hold_for_handler(handler)
    return None


def urgency(run: Run) -> tuple[int, float, str]:
    """The sort key of waiting runs: the most urgent first."""
    return (-run.priority, run.ready_at.timestamp(), run.id)
