"""The log of a run: the lines that its handler logged or printed, and what attempts report while they run."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from duly.model.run import Progress

KEEP_LOGS = 200  # lines of a run that are kept by default
MOST_KEPT = 10_000
MOST_LINE = 8_000  # characters

_LEAST_ROOM = 65_536
_ROOM_PER_LINE = 320


class LineSource(StrEnum):
    """Where a line comes from: `logging`, or the output of a process."""

    LOG = "log"
    STDOUT = "stdout"
    STDERR = "stderr"


class LogLine(Struct, frozen=True, gc=False):
    """One line of a run.

    `number` counts the lines of the run from 1, over all its attempts, including lines that are no longer kept: a jump
    in numbers is a gap. `attempt` is the number of the attempt, as in `Attempt`; it begins at 1 again after a redrive.
    `level` and `logger` are those of a log record, and empty for output.
    """

    number: int
    attempt: int
    at: datetime
    source: LineSource
    text: str
    level: str = ""
    logger: str = ""


class Report(Struct, frozen=True, gc=False):
    """What a running attempt reports: its progress if it has changed, and its new lines.

    `written` is how many lines the attempt had written before these, whether they were kept or not. The numbers of the
    lines are given by the store. `keep` is how many lines of the run are kept in all.
    """

    run_id: str
    fence: int
    progress: Progress | None = None
    lines: tuple[LogLine, ...] = ()
    written: int = 0
    keep: int = KEEP_LOGS


class Chunk(Struct, frozen=True, gc=False):
    """The lines of one report, as stores keep them and `duly export` writes them.

    `number` is that of the last line, `size` the bytes of all lines of the run up to it. `written` is how many lines
    the attempt has written up to here. `lines` is JSON, which people can read in the store.
    """

    number: int
    size: int
    fence: int
    written: int
    keep: int
    attempt: int
    lines: bytes


def room_for(keep: int) -> int:
    """How many bytes the text of a run may take if this number of its lines is kept: 64 KiB, more for many lines."""
    return max(_LEAST_ROOM, _ROOM_PER_LINE * keep)


def size_of(text: str) -> int:
    """The bytes that a line takes."""
    return len(text.encode()) + 1
