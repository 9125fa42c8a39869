"""Runs: one execution of a job, and how its attempts are claimed, recorded and settled.

A `Run` is the whole record, the same in every backend. Field order is part of the contract of the SQL adapters.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from duly.model.outcome import Failure, OutcomeKind


class State(StrEnum):
    """The state of a run. The legal moves between states are in `rules.lifecycle`."""

    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    SKIPPED = "skipped"


WAITING = frozenset({State.PENDING, State.QUEUED})
FINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED, State.LOST, State.SKIPPED})


class Delivery(StrEnum):
    """What is promised about a run's attempts and effects."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"
    EXACTLY_ONCE = "exactly_once"


class StoreLoss(StrEnum):
    """What a handler does when its lease can no longer be trusted."""

    CONTINUE = "continue"
    STOP = "stop"


class WhenFull(StrEnum):
    """What happens to a due run whose group has no room."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


class Cause(StrEnum):
    """Why a run exists.

    Stores keep `BACKFILL` as `TRIGGER` with the header `BACKFILLED_BY`: claims and listings of 0.1.0 fail on a cause
    that they do not know.
    """

    SCHEDULE = "schedule"
    SUBMIT = "submit"
    TRIGGER = "trigger"
    BACKFILL = "backfill"


BACKFILLED_BY = "duly-backfilled-by"  # the header of a backfilled run: who had it created


class RetrySpec(Struct, frozen=True, gc=False):
    """The numbers of a retry policy. Rules by exception class live with the handler's code."""

    max_retries: int = 3
    initial_interval: float = 1.0
    max_interval: float = 30.0
    multiplier: float = 2.0
    strategy: str = "exponential"
    jitter: float = 0.0


class RunPolicy(Struct, frozen=True):
    """How a run is to be attempted. Travels with the run, so that every node settles it in the same way."""

    timeout: float | None = None
    retry: RetrySpec = RetrySpec()
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    on_store_loss: StoreLoss = StoreLoss.CONTINUE


class Progress(Struct, frozen=True, gc=False):
    """The progress that a handler reports."""

    done: float
    total: float | None = None
    note: str = ""


class Run(Struct, frozen=True, gc=False):
    """One run.

    `due` is the instant it represents and never changes; `ready_at` is when it may start next: due plus jitter at
    first, later after a retry. A skipped run may represent a range of instants, `due` to `until`. `fence` is that of
    the latest claim. `hold` names why a waiting run is out of the indexes. `member` says whether it counts in its
    group. An `assignable` run starts only on the node that the leader assigns it to, its `assignee`; any other on
    whichever node claims it. `damage` says why a stored record cannot be read in full: such a run is never executed.
    `unique_for` is for `Queue.put` alone: for how many seconds from then the dedupe key is reserved, whatever happens
    to the run. It is not stored. `start_by` is the time by which a planned run must start, or it counts as missed
    (`rules.misfires`); with `strict` this includes the time in its queue. A store clears it when the run is held
    for its group, when an attempt has begun, and when the run is redriven. `legacy` is for `Queue.put` and `Store.fire`
    alone: nodes of 0.1.0 must be able to start this run, so it waits where they look. It is not stored.
    """

    id: str
    job: str
    handler: str
    due: datetime
    ready_at: datetime
    uid: str = ""
    revision: int = 0
    cause: Cause = Cause.SUBMIT
    queue: str = "default"
    priority: int = 0
    payload: bytes = b"{}"
    policy: RunPolicy = RunPolicy()
    group: str | None = None
    limit: int = 1
    when_full: WhenFull = WhenFull.SKIP
    dedupe_key: str | None = None
    headers: dict[str, str] | None = None
    state: State = State.PENDING
    reason: str | None = None
    until: datetime | None = None
    hold: str | None = None
    member: bool = False
    failures: int = 0
    losses: int = 0
    fence: int = 0
    node: str | None = None
    request: int = 0
    created_at: datetime | None = None
    started_at: datetime | None = None
    expires_at: datetime | None = None
    finished_at: datetime | None = None
    cancelling: bool = False
    progress: Progress | None = None
    result: bytes | None = None
    failure: Failure | None = None
    assignable: bool = False
    assignee: str | None = None
    damage: str | None = None
    unique_for: float | None = None
    start_by: datetime | None = None
    strict: bool = False
    legacy: bool = False

    @property
    def attempt(self) -> int:
        """The number of the attempt that is running or comes next; for an ended run, of its last."""
        # The last attempt of a failed run is already counted.
        return self.failures + self.losses + (self.state is not State.FAILED)

    @property
    def final(self) -> bool:
        return self.state in FINAL


class Claim(Struct, frozen=True, gc=False):
    """A run lent to a node until `expires_at` on the store's clock, under a fence that no other claim has had."""

    run: Run
    fence: int
    expires_at: datetime


class Claimed(Struct, frozen=True):
    """What a call to `claim` lent, and `next_due` (see `ports.queue`)."""

    claims: list[Claim]
    next_due: datetime | None


class Beat(Struct, frozen=True, gc=False):
    """One claim to renew, with the progress that the handler last reported."""

    run_id: str
    fence: int
    progress: Progress | None = None


class BeatReply(StrEnum):
    """What became of a claim that a heartbeat renews."""

    KEPT = "kept"
    CANCEL = "cancel"  # kept, and an operator wants the run to stop
    LOST = "lost"  # the run is no longer running under this fence
    BUSY = "busy"  # not renewed, because another call is changing it: retry soon


class Renewal(Struct, frozen=True):
    """The answer to a renewal: one reply for each beat, in order. `silent_since`: no heartbeat since then."""

    replies: tuple[BeatReply, ...] = ()
    silent_since: datetime | None = None


class Attempt(Struct, frozen=True, gc=False):
    """One attempt of a run, kept as history."""

    number: int
    fence: int
    node: str
    started_at: datetime
    ended_at: datetime
    outcome: OutcomeKind
    failure: Failure | None = None


class Settlement(Struct, frozen=True, gc=False):
    """What becomes of a run after an outcome. Created by `rules.settling`, applied unchanged by the adapters.

    `state` pending means another attempt at `ready_at`; with `outcome` None it is a release: the attempt never counted.
    `attempt` is None where the finished run itself has the facts (success at the first attempt) and for a release.
    `group` and `keyed` (whether there is a dedupe key) say what the run frees at its end, so that a store need not look
    it up; None and True mean unknown. `hold` is the key under which a run that becomes pending is held.
    """

    run_id: str
    fence: int
    job: str
    queue: str
    node: str
    state: State
    outcome: OutcomeKind | None
    started_at: datetime
    ended_at: datetime
    ready_at: datetime
    failures: int
    losses: int
    reason: str | None = None
    result: bytes | None = None
    failure: Failure | None = None
    attempt: Attempt | None = None
    group: str | None = None
    keyed: bool = True
    hold: str | None = None


class Assignment(Struct, frozen=True, gc=False):
    """The leader's decision that a run starts on a node."""

    run_id: str
    node: str


class Share(Struct, frozen=True, gc=False):
    """What a node has been assigned: runs that are running or ready there, and runs that are not ready yet."""

    due: int = 0
    upcoming: int = 0


class Put(Struct, frozen=True, gc=False):
    """The answer to one submitted run: its id, or that of the run it duplicates, and when that one was accepted."""

    id: str
    created: bool
    created_at: datetime


class CancelReply(StrEnum):
    """The result of a request to cancel a run."""

    DONE = "done"  # it was waiting and is cancelled now
    REQUESTED = "requested"  # it is running; its worker has been asked
    TOO_LATE = "too_late"  # it had ended already
    UNKNOWN = "unknown"  # there is no such run


class RedriveReply(StrEnum):
    """The result of a request to redrive an ended run."""

    DONE = "done"
    NOT_ENDED = "not_ended"  # it is waiting or running, completed, or skipped
    DUPLICATE = "duplicate"  # another run has its dedupe key: an unfinished one, or one that is still unique
    UNKNOWN = "unknown"


class Depth(Struct, frozen=True):
    """How many runs wait in a queue: due ones, and those not yet due or held; and since when the oldest due one waits.

    The numbers of the states in `at_least` are lower bounds: the store stopped counting there.
    """

    queued: int = 0
    pending: int = 0
    running: int = 0
    oldest: datetime | None = None
    paused: bool = False
    at_least: frozenset[State] = frozenset()


class Counts(Struct, frozen=True):
    """How many runs there are by state (ended ones since the store began), and what waits by queue."""

    states: dict[State, int]
    queues: dict[str, Depth]

    @property
    def at_least(self) -> frozenset[State]:
        """The states whose numbers are lower bounds, because that of some queue is."""
        return frozenset().union(*(depth.at_least for depth in self.queues.values()))

    def depth(self, queue: str) -> Depth:
        """What waits in a queue, also in one that is not listed: it has no due runs, and others only if uncounted."""
        return self.queues.get(queue) or Depth(at_least=self.at_least - {State.QUEUED})
