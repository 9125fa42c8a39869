"""Previews: the next due times of a schedule, computed in a thread and within a limited time.

An expression that is rarely due takes milliseconds per due time, which would block the event loop.
"""

from __future__ import annotations

import time
from datetime import datetime
from zoneinfo import ZoneInfo

from duly.api import requests
from duly.api.calls import Call, Reply, answer
from duly.api.requests import PreviewBody
from duly.api.responses import PreviewAnswer, PreviewInstant
from duly.model import as_utc, iso
from duly.rules.combined import zone_of
from duly.rules.schedules import Once, ScheduleValue, bind, from_spec
from duly.rules.zones import zone_key

LONGEST = 1.0  # seconds


async def preview(call: Call[None, PreviewBody]) -> Reply:
    """The next due times of a schedule, with notes about clock changes."""
    now = (await call.context.client()).clock.now()
    zone = call.context.scheduler.config.timezone
    return answer(await call.context.threads.run(lambda: preview_of(call.body, zone, now)))


def preview_of(body: PreviewBody, default_zone: str, now: datetime, longest: float = LONGEST) -> PreviewAnswer:
    """The due times of a schedule. `complete` is false if the time ran out before `count` were found."""
    deadline = time.monotonic() + longest
    schedule = requests.schedule(body.schedule, body.timezone)
    zone = zone_key(body.timezone or default_zone)
    zone = zone_of(schedule) or zone
    if not isinstance(schedule, Once):  # a single instant may be previewed although no store could hold it
        schedule = from_spec(bind(schedule, name="", timezone=zone))
    found: list[PreviewInstant] = []
    due: datetime | None = now if body.after is None else as_utc(body.after, "after")
    complete = True
    while due is not None and len(found) < body.count and complete:
        due = schedule.next_run(due)
        if due is not None:
            found.append(_instant(schedule, due, ZoneInfo(zone)))
        complete = time.monotonic() < deadline
    return PreviewAnswer(schedule.describe(), zone, tuple(found), complete or len(found) == body.count)


def _instant(schedule: ScheduleValue, due: datetime, zone: ZoneInfo) -> PreviewInstant:
    note = schedule.note(due)
    try:
        local = due.astimezone(zone)
    except OverflowError:  # the last hours of the calendar
        local = due
    return PreviewInstant(iso(due), f"{local:%a %Y-%m-%d %H:%M:%S %Z}", note)
