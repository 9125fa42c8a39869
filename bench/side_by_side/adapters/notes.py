"""What a worker writes down while it works, and how it tells: a line of JSON whenever there is something new.

Marks go into one list because appending is the cheapest thing that is safe in every kind of worker, threads included.
"""

from __future__ import annotations

import os
import resource
import select
import sys
import time
from dataclasses import dataclass
from typing import Any

from bench.side_by_side.adapters.lines import Lines

PERIOD = 10
_TELL_EVERY = 0.05
_EARLY = 1.0


@dataclass(frozen=True)
class Stint:
    """What a process is told: which store, what kind of handler, how many jobs or schedules."""

    adapter: str
    role: str
    url: str
    kind: str = "noop"
    jobs: int = 0
    schedules: int = 0


class Notes:
    """The bodies of the handlers. Each costs a microsecond or less."""

    def __init__(self) -> None:
        self.started = 0.0
        self.marks: list[tuple[Any, float]] = []

    def start_clock(self) -> None:
        """For workers that fetch everything before the first handler begins: their clock starts with the fetching."""
        self.started = time.time()

    def noop(self) -> None:
        self.marks.append((None, time.time()))

    def ping(self, number: int, sent: int) -> None:
        self.marks.append((number, (time.time_ns() - sent) / 1e9))

    def alarm(self, number: int, at: float) -> None:
        self.marks.append((number, time.time() - at))

    def beat(self, name: int, due: float | None = None) -> None:
        """Where the peer does not tell a handler its due instant, the nearest aligned one is taken."""
        now = time.time()
        late = (now + _EARLY) % PERIOD - _EARLY if due is None else now - due
        self.marks.append((f"{name}@{round(now - late)}", late))

    def report(self, before: float) -> dict[str, Any]:
        marks = self.marks.copy()
        ends = [value for _, value in marks]
        return {
            "done": len(marks),
            "seconds": max(ends, default=0.0) - (self.started or min(ends, default=0.0)),
            "marks": [mark for mark in marks if mark[0] is not None],
            "cpu": cpu() - before,
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        }


def cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def tell(notes: Notes, lines: Lines) -> None:
    """Say how far the worker is, until a line asks for the report; then the process ends, whatever it was doing."""
    before, told = cpu(), -1
    while not select.select([sys.stdin], [], [], _TELL_EVERY)[0]:
        if len(notes.marks) != told:
            told = len(notes.marks)
            lines.say(done=told)
    if sys.stdin.readline():
        lines.say(report=notes.report(before))
    os._exit(0)
