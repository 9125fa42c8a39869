"""Calendars as the store keeps them: stretches of time in which a schedule is not due.

A calendar is plain data, stored with the definition of the job: every node decides the same from it, without the file
or the package that it was read from. `rules.exclusion` decides whether an instant is excluded.
"""

from __future__ import annotations

from datetime import date, datetime, time

from msgspec import Struct

EVERY_DAY = (0, 1, 2, 3, 4, 5, 6)


class DaySpan(Struct, frozen=True, omit_defaults=True, gc=False):
    """Whole local days, from the first to the last one."""

    first: date
    last: date
    label: str = ""


class TimeSpan(Struct, frozen=True, omit_defaults=True, gc=False):
    """One stretch of time; its end is not part of it."""

    start: datetime
    end: datetime
    label: str = ""


class HourSpan(Struct, frozen=True, omit_defaults=True, gc=False):
    """Local hours of every week: from `start` until `end`, on the next day if `end` is not later.

    `weekdays` are the days on which it starts; Monday is 0.
    """

    start: time
    end: time
    weekdays: tuple[int, ...] = EVERY_DAY
    label: str = ""


class CalendarSpec(Struct, frozen=True, omit_defaults=True, gc=False):
    """Everything that one calendar excludes.

    Days and hours are those of `timezone`, which is None until the calendar is bound to a job. `weekdays` are excluded
    as a whole. `until` is the last day that is known, where the calendar was read from a source that goes on.
    """

    name: str
    timezone: str | None = None
    weekdays: tuple[int, ...] = ()
    days: tuple[DaySpan, ...] = ()
    times: tuple[TimeSpan, ...] = ()
    hours: tuple[HourSpan, ...] = ()
    until: date | None = None
