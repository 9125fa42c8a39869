"""What a store contains, as neutral records: what `duly export` writes, and what `duly import` and `duly copy` load.

To add a kind of record: add a struct with a new tag, add it to `Record` and to `KINDS` at the place where it is to be
loaded, and give each store a function that dumps and one that loads it. A reader that does not know a tag refuses it
by its name.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from duly.model.job import JobRecord, JobStatistics
from duly.model.node import Entry
from duly.model.run import Attempt, Run, State
from duly.model.run_log import Chunk

FROZEN = "*"  # among the paused queues: no claim from any queue. Not a valid name of a queue.


class JobEntry(Struct, frozen=True, tag="job", omit_defaults=True):
    """A definition with its revision, cursor and pause; removed ones included. `earlier` are those that it replaced.

    They are the log `definitions_log` of the job, which is no `LogEntry`: it is deleted with the job.
    """

    record: JobRecord
    earlier: tuple[Entry, ...] = ()

    @property
    def key(self) -> str:
        return self.record.name


class QueueEntry(Struct, frozen=True, tag="queue"):
    """A queue that is paused. Others need no record."""

    name: str

    @property
    def key(self) -> str:
        return self.name


class TotalEntry(Struct, frozen=True, tag="total"):
    """How many runs have ended in a state since the store began, deleted ones included."""

    state: State
    ended: int

    @property
    def key(self) -> str:
        return self.state.value


class StatisticsEntry(Struct, frozen=True, tag="statistics", omit_defaults=True):
    """The counters of a job."""

    job: str
    statistics: JobStatistics

    @property
    def key(self) -> str:
        return self.job


class ValueEntry(Struct, frozen=True, tag="value"):
    """A stored value with its version."""

    kind: str
    name: str
    value: bytes
    version: int

    @property
    def key(self) -> str:
        return f"{self.kind}\0{self.name}"


class RunEntry(Struct, frozen=True, tag="run", omit_defaults=True):
    """A run as it stands, those of its attempts that the run itself does not describe, and its log."""

    run: Run
    attempts: tuple[Attempt, ...] = ()
    lines: tuple[Chunk, ...] = ()

    @property
    def key(self) -> str:
        return self.run.id


class KeyEntry(Struct, frozen=True, tag="dedupe_key"):
    """A dedupe key that stays with a run for a time (`Run.unique_for`), whatever has become of the run."""

    handler: str
    dedupe_key: str
    run_id: str
    created_at: datetime
    until: datetime

    @property
    def key(self) -> str:
        return f"{self.handler}\0{self.dedupe_key}"


class LogEntry(Struct, frozen=True, tag="log"):
    """An entry of a log, with its number; logs of runs and of definitions belong to those records."""

    log: str
    sequence: int
    at: datetime
    value: bytes

    @property
    def key(self) -> str:
        return f"{self.log}\0{self.sequence}"


class SettingEntry(Struct, frozen=True, tag="setting"):
    """A value that the coordinator shares: the settings of the cluster. It is not in the store's own dump."""

    name: str
    value: bytes

    @property
    def key(self) -> str:
        return self.name


class Gone(Struct, frozen=True, tag="gone"):
    """For `load` alone: a record of this kind and key, which was loaded before, does not exist any more."""

    kind: str
    key: str


Record = JobEntry | QueueEntry | TotalEntry | StatisticsEntry | ValueEntry | RunEntry | KeyEntry | LogEntry
Loaded = Record | Gone

# In the order in which they are dumped and loaded: jobs before their runs, runs before the keys that name them.
KINDS = ("job", "queue", "total", "statistics", "value", "run", "dedupe_key", "log")


def kind_of(record: Loaded | SettingEntry) -> str:
    """The tag of a record."""
    return str(type(record).__struct_config__.tag)


class DumpPage(Struct, frozen=True):
    """Records of a snapshot in their order, and the cursor of the next page; None at the end."""

    records: list[Record]
    next: str | None = None


class MarkKind(StrEnum):
    """Why a store is not in use."""

    IMPORTING = "importing"  # an import into it has begun and not ended
    CLOSED = "closed"  # `duly copy` reads its last changes: for seconds
    MOVED = "moved"  # everything is in another store


class StoreMark(Struct, frozen=True, omit_defaults=True):
    """A note on a store that is not in use. `address` is where its content comes from or went, without credentials.

    `fence` is the highest fence that a store gave out before it moved.
    """

    kind: MarkKind
    address: str = ""
    since: datetime | None = None
    fence: int = 0
