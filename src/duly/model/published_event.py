"""Published events: the form in which events are written to a log in the store, for any process to follow.

They are small and have one fixed JSON form: names, states and instants, never payloads, results or tracebacks. The id
of an event is its number in the log.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from duly.model.outcome import OutcomeKind
from duly.model.run import Cause, Progress, State

EVENTS = "events"

Instant = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class PublishedEventKind(StrEnum):
    """What has happened."""

    RUN_SUBMITTED = "run.submitted"
    RUN_STARTED = "run.started"
    RUN_PROGRESSED = "run.progressed"  # its handler has reported its progress
    RUN_ENDED = "run.ended"  # an attempt; `state` is what became of the run, pending if it is tried again
    RUN_SKIPPED = "run.skipped"  # claimed too late: a misfire
    RUN_RELEASED = "run.released"  # given back by a node that stops
    RUN_REAPED = "run.reaped"  # taken over from a node that vanished
    RUN_LEASE_LOST = "run.lease_lost"  # its node could not keep it
    RUN_REFUSED = "run.refused"  # its node settled it too late: another node has it
    RUN_CANCELLED = "run.cancelled"  # while it waited
    RUN_CANCELLING = "run.cancelling"  # its worker has been asked
    RUN_REDRIVEN = "run.redriven"
    JOB_SAVED = "job.saved"  # `what` says how: defined, deployed, paused, resumed, removed, …
    QUEUE_PAUSED = "queue.paused"
    QUEUE_RESUMED = "queue.resumed"
    LEADER_ELECTED = "leader.elected"
    LEADER_LOST = "leader.lost"
    NODE_STARTED = "node.started"
    NODE_STOPPED = "node.stopped"
    DROPPED = "events.dropped"  # `count` were not published: there were too many, or the store was unreachable


class PublishedError(Struct, frozen=True, gc=False):
    """A failure in a few words."""

    type: str
    message: str


class PublishedEvent(Struct, frozen=True, omit_defaults=True, gc=False):
    """One event. `node` is the process that reports it; fields that do not apply are left out.

    `due` is set for runs that are submitted for later. `vanished` is the node from which a run was taken over, `what`
    is how a job was saved, `count` is how many events were dropped.
    """

    kind: PublishedEventKind
    at: Instant
    node: str
    run_id: str | None = None
    job: str | None = None
    queue: str | None = None
    handler: str | None = None
    state: State | None = None
    outcome: OutcomeKind | None = None
    cause: Cause | None = None
    due: Instant | None = None
    attempt: int | None = None
    late: float | None = None
    seconds: float | None = None
    retry_at: Instant | None = None
    error: PublishedError | None = None
    vanished: str | None = None
    what: str | None = None
    revision: int | None = None
    shard: str | None = None
    count: int | None = None
    progress: Progress | None = None
