"""What a node writes to its log when it has started: its jobs, and when they are due next.

Few jobs are all listed. Of many, those that are due next are: finding these reads a bounded part of the store.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from duly.errors import DulyError
from duly.model import JobRecord, JobStatus
from duly.observe.node_messages import indented
from duly.rules.durations import span
from duly.rules.schedules import describe_schedule, step
from duly.scheduler.client import Client

MOST_LISTED = 20
_MOST_NEXT = 10
_LOOKED_AT = 100
_WIDEST = 40

Line = tuple[str, str, str]  # a job, its schedule in words, and when it is due next

_log = logging.getLogger("duly.node")


async def log_jobs(client: Client, names: Sequence[str]) -> None:
    """Write the jobs of this program to the log at INFO. If the store cannot be reached now, nothing is written."""
    if not _log.isEnabledFor(logging.INFO):
        return
    try:
        lines = await (_few(client, names) if len(names) <= MOST_LISTED else _many(client, names))
    except DulyError as exc:
        _log.info("%d jobs; they cannot be listed now: %s", len(names), exc)
        return
    number = f"{len(names)} job{'s'[: len(names) != 1]}"
    more = [f"… {len(names) - len(lines)} more: see `duly jobs`"] if len(names) > len(lines) else []
    _log.info("%s%s", number, indented("\n".join([*_aligned(lines), *more])))


async def _few(client: Client, names: Sequence[str]) -> list[Line]:
    """All jobs, those that are due next first."""
    now = client.clock.now()
    found = {record.name: _described(client, record, now) for record in await client.backend.store.jobs(list(names))}
    never = datetime.max.replace(tzinfo=now.tzinfo)
    timed = [found.get(name, (None, (name, "", "is not in the store"))) for name in names]
    return [line for _, line in sorted(timed, key=lambda each: each[0] or never)]


def _described(client: Client, record: JobRecord, now: datetime) -> tuple[datetime | None, Line]:
    schedule = client.definitions.schedule(record)
    words = describe_schedule(record.spec.schedule, schedule) or "when it is submitted"
    if record.status is not JobStatus.ACTIVE:
        return None, (record.name, words, record.status.value)
    due = None if schedule is None else step(schedule, now)
    return due, (record.name, words, "" if due is None else _when(due, now))


async def _many(client: Client, names: Sequence[str]) -> list[Line]:
    """The jobs that are due next."""
    now, mine = client.clock.now(), set(names)
    first: dict[str, datetime] = {}
    for run in await client.definitions.upcoming(_LOOKED_AT, None):
        if run.job in mine:
            first.setdefault(run.job, run.at)
    return [(name, "", _when(at, now)) for name, at in list(first.items())[:_MOST_NEXT]]


def _when(at: datetime, now: datetime) -> str:
    """A time in the time zone of this machine: near ones without the date, and how far away it is."""
    here = at.astimezone()
    shown = f"{here:%H:%M:%S}" if here.date() == now.astimezone().date() else f"{here:%Y-%m-%d %H:%M:%S}"
    return f"next {shown} (in {span((at - now).total_seconds())})"


def _aligned(lines: Sequence[Line]) -> list[str]:
    widths = [max((len(line[column]) for line in lines), default=0) for column in (0, 1)]
    name_width, words_width = (min(width, _WIDEST) for width in widths)
    return [
        "  ".join(column for column in (f"{name:<{name_width}}", f"{words:<{words_width}}", when) if column).rstrip()
        for name, words, when in lines
    ]
