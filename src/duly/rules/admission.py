"""Admission: what keeps a due run from being queued or started, decided from data in the run.

Groups implement overlap policies; holds implement pauses and missing handlers. Adapters apply the decisions made here.
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
    """What happens to a due run that belongs to a group."""

    ENTER = "enter"
    SKIP = "skip"
    HOLD = "hold"
    REPLACE = "replace"


# What happens to a due run, by whether its group is full and by its own rule. A store may implement this table in its
# own language: the conformance suite tests every row on it (`testing.conformance.admission`).
ADMISSIONS = {
    (False, WhenFull.SKIP): Admission.ENTER,
    (False, WhenFull.QUEUE): Admission.ENTER,
    (False, WhenFull.REPLACE): Admission.ENTER,
    (True, WhenFull.SKIP): Admission.SKIP,
    (True, WhenFull.QUEUE): Admission.HOLD,
    (True, WhenFull.REPLACE): Admission.REPLACE,
}


def admit(run: Run, members: int) -> Admission:
    """What to do with a due run when its group already has that many members, itself not counted."""
    full = not run.member and run.group is not None and members >= run.limit
    return ADMISSIONS[full, run.when_full]


class Leaver(Struct, frozen=True, gc=False):
    """A run that leaves its group or the group's waiting line, and whether it was a member."""

    key: int
    member: bool


class Held(Struct, frozen=True, gc=False):
    """A run that is held for its group, with the number of members that the run allows."""

    key: int
    limit: int


def moved_up(leaving: Sequence[Leaver], line: Sequence[Held], members: int) -> list[int]:
    """Which runs of a group's line wait again when runs leave one after the other; none of those that leave.

    `line` has the runs held for the group, most urgent first, before any run left; those that leave may be among
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


class Hold(StrEnum):
    """Why a queued run does not start on the node that claims it."""

    JOB = "job"
    HANDLER = "handler"
    PLACE = "place"


# By: its job is paused or removed; the node has its handler; the leader assigned it to the node. A run that was
# assigned to a node without the handler goes back to the leader: put back for its handler, it would only come to this
# node again. As with ADMISSIONS, the conformance suite tests every row on a store.
HOLDS = {
    (False, True, False): None,
    (False, True, True): None,
    (False, False, False): Hold.HANDLER,
    (False, False, True): Hold.PLACE,
    (True, True, False): Hold.JOB,
    (True, True, True): Hold.JOB,
    (True, False, False): Hold.JOB,
    (True, False, True): Hold.JOB,
}


def hold_of(
    job: str,
    handler: str,
    blocked: Collection[str],
    handlers: Collection[str] | None,
    *,
    assigned: bool = False,
) -> str | None:
    """The hold under which a queued run of a job must wait instead of starting on a node, or None if it may start.

    `blocked` are the names of paused and removed jobs, `handlers` the names the node has code for (None: any).
    """
    return hold_key(HOLDS[job in blocked, handlers is None or handler in handlers, assigned], job, handler)


def hold_key(hold: Hold | None, job: str, handler: str) -> str | None:
    """The key of a hold for a run of this job and handler."""
    match hold:
        case None:
            return None
        case Hold.JOB:
            return hold_for_job(job)
        case Hold.HANDLER:
            return hold_for_handler(handler)
        case Hold.PLACE:
            return UNPLACED


def urgency(run: Run) -> tuple[int, float, str]:
    """The sort key of waiting runs: most urgent first."""
    return (-run.priority, run.ready_at.timestamp(), run.id)
