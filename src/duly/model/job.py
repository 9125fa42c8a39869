"""Jobs: the definition that the store holds, and the record it keeps of it.

`JobSpec` is plain data: everything the planner needs on a node that has none of the user's code. `JobRecord` adds what
happened to the definition since: identity, revision, pause, cursor. `JobChange` is one atomic edit of a record.
"""

from __future__ import annotations

import hashlib
import shlex
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from duly.model.calendar import CalendarSpec
from duly.model.confinement import Confinement
from duly.model.outcome import OutcomeKind
from duly.model.run import Run, RunPolicy


class Overlap(StrEnum):
    """What happens to a run that is due while another run of its job is unfinished."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"
    ALLOW = "allow"


class Misfire(StrEnum):
    """What happens to instants that were missed by more than the grace time."""

    LATEST = "latest"
    ALL = "all"
    SKIP = "skip"


class Dst(StrEnum):
    """What happens to a wall-clock time that a clock change skips or repeats."""

    CRON = "cron"
    SKIP = "skip"
    BOTH = "both"


class CronSpec(Struct, frozen=True, tag="cron", gc=False):
    """A bound cron schedule: no `H` left in the expression, the zone named."""

    expression: str
    timezone: str
    dst: Dst = Dst.CRON
    start_at: datetime | None = None
    end_at: datetime | None = None
    jitter: timedelta = timedelta(0)


class EverySpec(Struct, frozen=True, tag="every", gc=False):
    """A fixed interval, anchored to `start_at` or else the Unix epoch."""

    interval: timedelta
    start_at: datetime | None = None
    end_at: datetime | None = None
    jitter: timedelta = timedelta(0)


class OnceSpec(Struct, frozen=True, tag="once", gc=False):
    """One instant."""

    at: datetime
    jitter: timedelta = timedelta(0)


class UnionSpec(Struct, frozen=True, tag="union", gc=False):
    """Due whenever one of its parts is."""

    parts: tuple[PartSpec, ...]


class ExcludingSpec(Struct, frozen=True, tag="excluding", gc=False):
    """Due when its part is, except at instants that a calendar excludes."""

    part: PartSpec
    calendars: tuple[CalendarSpec, ...]


PartSpec = CronSpec | EverySpec | OnceSpec | UnionSpec | ExcludingSpec


class CustomSpec(Struct, frozen=True, tag="custom", gc=False):
    """A schedule that 0.1.0 cannot compute: a user's class, or a combination of schedules and calendars (`rule`).

    `kind` says which, for people. Without a rule only code can compute it: such a job is planned under a separate lease
    (`shard`) by the nodes that have the code. A combination is stored under this tag because nodes of 0.1.0 cannot read
    any other definition beside one with a tag that they do not know.
    """

    kind: str
    jitter: timedelta = timedelta(0)
    rule: UnionSpec | ExcludingSpec | UnsetType = UNSET


ScheduleSpec = CronSpec | EverySpec | OnceSpec | CustomSpec


def only_in_code(schedule: ScheduleSpec | None) -> bool:
    """Whether only a process that has the user's class can compute a schedule."""
    return isinstance(schedule, CustomSpec) and schedule.rule is UNSET


def is_combined(schedule: ScheduleSpec | None) -> bool:
    """Whether a schedule is a combination, which nodes of 0.1.0 cannot compute."""
    return isinstance(schedule, CustomSpec) and schedule.rule is not UNSET


MAIN = "main"  # the first shard; its leader is the leader of the cluster
JOB_SHARD = "job:"  # prefix of the planning lease of a job whose schedule only code can compute


DEPLOYED = ("deployed", "code")  # kind and key of the value that records which definitions from code are in the store

COMMAND_HANDLER = "duly:command"  # runs the job's `command`; no job can have this name


class CommandSpec(Struct, frozen=True, omit_defaults=True):
    """A program to run, as plain data: words, or with `shell` one text for `/bin/sh -c`.

    `environment` is passed as it is, `pass_environment` names variables that the node passes on from its own
    environment. Values of the environment may be secret: they are not shown. `confine` limits what it may use.
    """

    argv: tuple[str, ...]
    shell: bool = False
    cwd: str | None = None
    environment: dict[str, str] = {}
    pass_environment: tuple[str, ...] = ()
    confine: Confinement | None = None

    def __str__(self) -> str:
        return self.argv[0] if self.shell else shlex.join(self.argv)

    def __repr__(self) -> str:
        names = ", ".join(sorted(self.environment))
        return f"CommandSpec({self.argv!r}, shell={self.shell}, cwd={self.cwd!r}, environment of {names or 'nothing'})"


# A struct with 16 fields or more has the long header, however few it encodes. Digests have the short one where it is
# possible, so that they stay the same when a field is added: 0.1.0 had fewer fields.
_LONG_MAP, _SHORT_MAP, _MOST_IN_SHORT_MAP = 0xDE, 0x80, 15


class JobSpec(Struct, frozen=True, omit_defaults=True):
    """What a job is, as plain data. Equal specs have equal digests; a deploy saves a job only if its digest changed.

    Defaults are left out of the digest, so that a release that adds a field does not change every job. `selector` has
    the labels that a node needs to run the job: the leader assigns the runs of such a job. `notify` names the targets
    of notifications about it, None for all. A run must succeed at least every `expect_every` seconds.
    """

    name: str
    handler: str
    schedule: ScheduleSpec | None = None
    payload: bytes = b"{}"
    queue: str = "default"
    priority: int = 0
    policy: RunPolicy = RunPolicy()
    overlap: Overlap | None = None
    misfire: Misfire = Misfire.LATEST
    max_runs: int | None = None
    description: str = ""
    tags: tuple[str, ...] = ()
    selector: dict[str, str] | None = None
    command: CommandSpec | None = None
    notify: tuple[str, ...] | None = None
    expect_every: float | None = None

    def digest(self) -> str:
        """A short hash of everything above."""
        text = msgspec.msgpack.encode(self)
        if text[0] == _LONG_MAP and text[1] == 0 and text[2] <= _MOST_IN_SHORT_MAP:
            text = bytes((_SHORT_MAP | text[2],)) + text[3:]
        return hashlib.blake2b(text, digest_size=8).hexdigest()


class Origin(StrEnum):
    """Who defined a job. One origin never overwrites another's."""

    CODE = "code"
    FILE = "file"
    API = "api"


class JobStatus(StrEnum):
    """Whether a job is being planned, and if not, why."""

    ACTIVE = "active"
    PAUSED = "paused"
    RETIRED = "retired"
    REMOVED = "removed"
    FINISHED = "finished"
    UNREADABLE = "unreadable"


class Pause(Struct, frozen=True):
    """An operator's pause: since when, and the note left with it."""

    at: datetime
    note: str = ""


class Defined(Struct, frozen=True):
    """Since when a job has its definition: the revision that brought it, when, and who wrote it (None: unknown)."""

    revision: int
    at: datetime
    by: str | None = None


class JobRecord(Struct, frozen=True):
    """A job as the store keeps it.

    `revision` grows with every saved change; a change names the revision that it expects. `cursor` is the next due
    instant that has no run yet (None: no more); `plan_at` is when the planner should look again. `code_since` is the
    start time of the node whose code defines the job: the code of the most recently started node wins. `job_file` names
    the file that defines this job: no other file may change it. `damage` says why the stored definition cannot be read:
    such a record has a name and a revision, and can only be replaced or removed. `planned_in` is the shard that the
    planner moved the job to, None for the first one and for a job whose schedule only code can compute. `defined` says
    where the definition comes from; 0.1.0 does not keep it, see `version`.
    """

    uid: str
    spec: JobSpec
    revision: int
    origin: Origin
    created_at: datetime
    updated_at: datetime
    cursor: datetime | None = None
    plan_at: datetime | None = None
    planned: int = 0
    paused: Pause | None = None
    retired_at: datetime | None = None
    removed_at: datetime | None = None
    code_since: datetime | None = None
    job_file: str | None = field(name="fleet", default=None)  # stored under the name that 0.1.0 gave it
    damage: str | None = None
    planned_in: str | None = None
    defined: Defined | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def version(self) -> Defined:
        """Where the definition comes from; of a record that does not say it, the latest change of the record."""
        return self.defined or Defined(self.revision, self.updated_at)

    @property
    def shard(self) -> str:
        """The planning lease under which this job is planned."""
        return f"{JOB_SHARD}{self.spec.name}" if only_in_code(self.spec.schedule) else self.planned_in or MAIN

    @property
    def status(self) -> JobStatus:
        if self.damage is not None:
            return JobStatus.UNREADABLE
        if self.removed_at is not None:
            return JobStatus.REMOVED
        if self.paused is not None:
            return JobStatus.PAUSED
        if self.retired_at is not None:
            return JobStatus.RETIRED
        if self.spec.schedule is not None and self.cursor is None:
            return JobStatus.FINISHED
        return JobStatus.ACTIVE

    @property
    def needs_handler(self) -> bool:
        """Whether it is planned only while a live node has its handler: it recurs and is not removed."""
        return self.spec.schedule is not None and self.removed_at is None and self.damage is None

    @property
    def plannable(self) -> bool:
        """Whether the planner may create runs of it now."""
        return self.cursor is not None and self.status is JobStatus.ACTIVE


class Waiting(StrEnum):
    """What a change does to the job's waiting runs, in the same atomic step."""

    KEEP = "keep"
    DROP = "drop"  # delete recurring runs that are not yet due
    REWIND = "rewind"  # the same, and put the cursor back to the earliest deleted instant
    CANCEL = "cancel"  # delete recurring runs that are not yet due, cancel every other waiting run


class JobChange(Struct, frozen=True):
    """One atomic edit: the new record, and the revision that it replaces (None: the name must be free).

    The planner may advance the stored cursor between reading a record and changing it; so the record's own cursor is
    used only if the change `moves_cursor`. With `redefines`, a definition from code is replaced, removed or restored:
    the value about deployed definitions (`DEPLOYED`) is cleared in the same step. `replaces` is the definition that the
    change replaces (`model.definitions`): it is appended to the job's log of definitions in the same step.
    """

    record: JobRecord
    expect: int | None
    waiting: Waiting = Waiting.KEEP
    moves_cursor: bool = False
    ledger: tuple[Run, ...] = ()
    redefines: bool = False
    replaces: bytes | None = None


class Firing(Struct, frozen=True):
    """One step of planning: advance a job's cursor if it is still `expect`, and insert the runs between.

    `move_to` names the shard in which the job is planned from then on; None leaves it where it is.
    """

    uid: str
    name: str
    revision: int
    expect: datetime
    cursor: datetime | None
    plan_at: datetime | None
    runs: tuple[Run, ...] = ()
    move_to: str | None = None


class Fired(StrEnum):
    """What became of a firing."""

    APPLIED = "applied"
    STALE_JOB = "stale_job"  # the cursor or the revision had moved, or the job is gone: another node was first
    STALE_EPOCH = "stale_epoch"  # a newer leader has installed itself


class JobStatistics(Struct, frozen=True):
    """Counters of one job, summed over nodes."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0
    retried: int = 0
    seconds: float = 0.0
    last_run_at: datetime | None = None
    last_outcome: OutcomeKind | None = None

    @property
    def run_count(self) -> int:
        """How many runs have started and ended, with any outcome."""
        return self.completed + self.failed + self.cancelled + self.lost
