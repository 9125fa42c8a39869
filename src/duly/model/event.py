"""Events: what a node reports about itself while it works.

The runtime emits them, `observe` and users subscribe. They are for people and metrics; no behaviour depends on them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol, Self

from msgspec import Struct

from duly.deprecation import renamed_attribute, renamed_names
from duly.model.job import JobRecord
from duly.model.node import Lease
from duly.model.outcome import Failure, OutcomeKind
from duly.model.run import Progress, Run, State


class Event(Struct, frozen=True):
    """Anything worth reporting. The class is the kind."""


class Emit(Protocol):
    """Receives events. Costs almost nothing without subscribers."""

    def __call__(self, event: Event) -> None: ...

    def wants(self, kind: type[Event]) -> bool:
        """Whether there is a subscriber for this kind of event. On the hot path, check this before creating one."""
        ...


class RunsSubmitted(Event, frozen=True):
    """Runs were submitted or triggered from this process, and are in the store."""

    runs: tuple[Run, ...]


class RunStarted(Event, frozen=True):
    """A handler starts, `late` seconds after its run was ready."""

    run: Run
    late: float


class RunProgressed(Event, frozen=True):
    """The progress that a handler reported is in the store. At most once a second for each run."""

    run: Run
    progress: Progress


class RunEnded(Event, frozen=True):
    """An attempt ended; says what becomes of the run."""

    run: Run
    outcome: OutcomeKind
    state: State
    seconds: float
    failure: Failure | None = None
    retry_at: datetime | None = None


class RunMissed(Event, frozen=True):
    """A planned run was claimed too late for its job's misfire policy, `late` seconds after its time: it is skipped."""

    run: Run
    late: float


class RunReleased(Event, frozen=True):
    """A run was given back without counting the attempt."""

    run: Run


class CancelAsked(Event, frozen=True):
    """This process cancelled a run: `done` if it was waiting, otherwise its worker was asked to stop it."""

    run: Run
    done: bool


class RunRedriven(Event, frozen=True):
    """This process redrove an ended run: it runs again."""

    run: Run


class SettlementRefused(Event, frozen=True):
    """The store refused a settlement: the run has a newer fence, so the attempt ended too late."""

    run_id: str
    fence: int
    run: Run | None = None


class SettlementAbandoned(Event, frozen=True):
    """The store accepts no settlement of this attempt: its claim expires, and another node takes over the run."""

    run: Run
    failure: Failure


class ClaimsLost(Event, frozen=True):
    """Leases this node could not keep."""

    run_ids: tuple[str, ...]
    runs: tuple[Run, ...] = ()


class ClaimUntrusted(Event, frozen=True):
    """A lease could not be renewed in time; `stopped`: whether the handler was stopped."""

    run_id: str
    stopped: bool


class RunsReaped(Event, frozen=True):
    """Expired claims of vanished workers were taken over."""

    run_ids: tuple[str, ...]
    nodes: tuple[str, ...]
    runs: tuple[Run, ...] = ()


class RunsClaimed(Event, frozen=True):
    """A call to the store claimed `count` runs and took `seconds`."""

    count: int
    seconds: float


class RunsSettled(Event, frozen=True):
    """`count` results were written in one call, which took `seconds`."""

    count: int
    seconds: float


class RunsPlaced(Event, frozen=True):
    """The leader assigned runs to nodes."""

    runs: int
    nodes: int


class RunsTakenBack(Event, frozen=True):
    """The leader took back runs that were assigned to a node that is gone."""

    node: str
    runs: int


class SlotLeaked(Event, frozen=True):
    """A thread is still running after its timeout; its slot stays occupied until the thread ends."""

    run_id: str
    job: str
    leaked: int


class LeaderElected(Event, frozen=True):
    """This node leads the shard now."""

    lease: Lease
    epoch: int


class LeaderLost(Event, frozen=True):
    """This node no longer leads the shard."""

    shard: str
    resigned: bool


class JobSaved(Event, frozen=True):
    """A definition was written: created, changed, paused, resumed, removed, restored."""

    job: str
    revision: int
    what: str
    queue: str
    handler: str

    @classmethod
    def of(cls, record: JobRecord, what: str) -> Self:
        """The event for a record as it was written, or as it was before it was deleted."""
        return cls(record.name, record.revision, what, record.spec.queue, record.spec.handler)


class QueuePaused(Event, frozen=True):
    """A queue was paused: its runs are not started."""

    queue: str


class QueueResumed(Event, frozen=True):
    """A queue was resumed."""

    queue: str


class JobConflict(Event, frozen=True):
    """A definition in code was not written, and why."""

    job: str
    reason: str


class JobFileApplied(Event, frozen=True):
    """The jobs of a file were written; `changes` has one text for each that was added, changed or removed."""

    job_file: str
    changes: tuple[str, ...]

    fleet = renamed_attribute("fleet", "job_file")


class JobFileOutdated(Event, frozen=True):
    """A file was not applied: a newer one has replaced it."""

    job_file: str
    since: datetime

    fleet = renamed_attribute("fleet", "job_file")


class PlanFailed(Event, frozen=True):
    """A job's schedule could not be computed; other jobs are not affected."""

    job: str
    failure: Failure


class RecordUnreadable(Event, frozen=True):
    """A stored run or job cannot be read, and why. A run ends as failed; a job is planned again once it is saved."""

    kind: str
    name: str
    reason: str


class HookFailed(Event, frozen=True):
    """A user's hook raised; the run continues as if the hook had returned nothing."""

    hook: str
    job: str
    run_id: str
    failure: Failure


class AfterCommitFailed(Event, frozen=True):
    """An exactly-once handler raised after its transaction had committed; the run stays completed."""

    run_id: str
    job: str
    failure: Failure


class ServiceFailed(Event, frozen=True):
    """A service of the node failed and will be tried again after `retry_in` seconds."""

    service: str
    failure: Failure
    retry_in: float


class StoreAway(Event, frozen=True):
    """A service cannot reach the store; `part` says which part of it, where it has several."""

    service: str
    message: str
    retry_in: float
    part: str = "store"


class DataLost(Event, frozen=True):
    """The store lost changes that it had acknowledged: it was restored, or a lagging replica took over."""

    service: str
    message: str


class StoreBack(Event, frozen=True):
    """The service reaches the store again."""

    service: str
    seconds: float


class SettingsApplied(Event, frozen=True):
    """This revision of the cluster's settings is in force: what it changes in this process, and what is refused."""

    revision: int
    changes: tuple[str, ...]
    problems: tuple[str, ...] = ()


class PromisesChanged(Event, frozen=True):
    """The settings of the store's server changed, and with them whether it keeps acknowledged starts."""

    durable_start: bool


class OutageNoted(Event, frozen=True):
    """No node had reached the store for a while, until this one did: the nodes or the store were down."""

    since: datetime
    until: datetime


class ClockDoubted(Event, frozen=True):
    """The store's clock jumped by `seconds`. Until the new time is trusted, it causes no starts and no takeovers."""

    seconds: float


class ClockTrusted(Event, frozen=True):
    """The store's clock is trusted again: it jumped back, or it stayed at the new time, which is now used."""

    seconds: float
    followed: bool


class LoopStalled(Event, frozen=True):
    """The event loop has been blocked for this long."""

    seconds: float
    stack: str


class NodeIdShared(Event, frozen=True):
    """Another process uses this node's id: each process needs its own."""

    node: str
    host: str
    pid: int
    started_at: datetime


class NodeStarted(Event, frozen=True):
    """The node has started."""

    node: str
    url: str


class HandlersAbandoned(Event, frozen=True):
    """Handlers of these runs did not stop when asked: the runs are released, or end as interrupted.

    The handlers end with the process.
    """

    runs: tuple[Run, ...]


class NotificationFailed(Event, frozen=True):
    """A notification could not be delivered to a target; it is tried again unless the target has rejected it."""

    target: str
    notification: str
    error: str


class NotificationsLost(Event, frozen=True):
    """The stored state of notifications cannot be read: it begins again, and what was not delivered is lost."""

    reason: str


class StopHindered(Event, frozen=True):
    """One step of a shutdown failed or timed out; the shutdown continued without it."""

    step: str
    failure: Failure


class NodeStopped(Event, frozen=True):
    """The node has stopped. During the shutdown, `drained` handlers finished and `released` runs were given back.

    `interrupted` runs ended, because they may not start twice. `left` counts the others: the store could not be
    reached, and other nodes take them over when their leases expire.
    """

    node: str
    drained: int
    released: int
    interrupted: int = 0
    left: int = 0


__getattr__ = renamed_names(
    __name__,
    {"FleetApplied": "duly.model.event.JobFileApplied", "FleetOutdated": "duly.model.event.JobFileOutdated"},
)
