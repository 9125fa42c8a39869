"""Turns the fields of a job's table into the definition that the store keeps."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from duly.errors import DulyError
from duly.job_files.fields import Refused, plain_message
from duly.model import CommandSpec, JobSpec
from duly.model.job import COMMAND_HANDLER
from duly.rules.calendars import Calendar
from duly.rules.combined import Union
from duly.rules.schedules import Cron, Every, Once, ScheduleValue
from duly.rules.zones import instant_of
from duly.scheduler import Job

_WHEN = ("cron", "every", "at")
_BOUNDS = ("start_at", "end_at")
_SCHEDULE = {*_WHEN, *_BOUNDS, "exclude", "timezone", "dst", "jitter"}
_COMMAND = {"command", "shell", "cwd", "environment", "pass_environment", "confine"}


def conflicts(given: Mapping[str, Any], written: Collection[str]) -> Iterator[Refused]:
    """Contradictions between fields. `written` are all keys, `given` are the values of the valid ones."""
    named = [key for key in _WHEN if key in written]
    if len(named) > 1:
        yield Refused(f"{' and '.join(named)}: a job has one schedule; define two jobs", (named[-1],))
    for key in _BOUNDS:
        if key in given and not named:
            yield Refused(f"{key} without cron, every or at", (key,))
    words, shell = given.get("command"), given.get("shell", False)
    if "command" not in written:
        yield Refused('the command is missing: write for example command = ["/usr/local/bin/backup", "--all"]')
    elif isinstance(words, str) and not shell:
        listed = ", ".join(f'"{word}"' for word in _split(words))
        yield Refused(f"it is a string: write a list, [{listed}], or add shell = true", ("command",))
    elif words is not None and shell and not isinstance(words, str):
        yield Refused("it is a list: with shell = true it must be one string; or leave out shell", ("command",))


def job_spec(name: str, given: Mapping[str, Any], timezone: str, calendars: Mapping[str, Calendar]) -> JobSpec:
    """The definition of a job whose fields have no contradictions; raises `Refused` if it is invalid.

    `calendars` are those of the file, by name.
    """
    zone = given.get("timezone", timezone)
    fields = {key: value for key, value in given.items() if key not in _SCHEDULE | _COMMAND}
    fields |= {key: _instant(given[key], zone) for key in _BOUNDS if key in given}
    try:
        job = Job(handler=COMMAND_HANDLER, name=name, schedule=_schedule(given, zone, calendars), **fields)
        return replace(job.spec(zone, b"{}"), command=_command(given))
    except DulyError as exc:
        raise Refused(plain_message(exc).removeprefix(f"job {name!r}: ").removeprefix(f"job {name!r} ")) from exc


def _command(given: Mapping[str, Any]) -> CommandSpec:
    words = given["command"]
    options = {key: value for key, value in given.items() if key in _COMMAND - {"command"}}
    return CommandSpec((words,) if isinstance(words, str) else words, **options)


def _split(words: str) -> list[str]:
    try:
        return shlex.split(words)
    except ValueError:
        return words.split()


def _schedule(given: Mapping[str, Any], zone: str, calendars: Mapping[str, Calendar]) -> ScheduleValue | None:
    """The schedule; None if the job runs only when it is triggered."""
    found = _without_calendars(given, zone)
    excluded = [_calendar(each, calendars) for each in given.get("exclude", ())]
    return found.excluding(*excluded) if found is not None and excluded else found


def _calendar(given: str | Calendar, calendars: Mapping[str, Calendar]) -> Calendar:
    if isinstance(given, Calendar):
        return given
    if given not in calendars:
        known = f"the file has {', '.join(calendars)}" if calendars else f"add a table [calendars.{given}]"
        raise Refused(f"unknown calendar {given!r}; {known}", ("exclude",))
    return calendars[given]


def _without_calendars(given: Mapping[str, Any], zone: str) -> ScheduleValue | None:
    jitter = given.get("jitter", 0)
    match given:
        case {"cron": expressions}:
            dst = given.get("dst", "cron")
            parts = [Cron(each, timezone=zone, dst=dst, jitter=jitter) for each in expressions]
            return parts[0] if len(parts) == 1 else Union(*parts)
        case {"every": interval}:
            return Every(interval, jitter=jitter)
        case {"at": at}:
            return Once(_instant(at, zone), jitter=jitter)
        case _:
            return None


def _instant(at: datetime, zone: str) -> datetime:
    return instant_of(at, zone) if at.tzinfo is None else at
