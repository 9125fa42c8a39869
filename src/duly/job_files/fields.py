"""The keys of a job's table: each value is converted to what `Job` takes, or refused.

The rules for values are those for jobs in code: a field is checked by creating a job, a schedule or a policy from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from duly.errors import ConfigurationError, DulyError
from duly.job_files.problems import unknown
from duly.model import EPOCH
from duly.model.confinement import Confinement
from duly.model.job import COMMAND_HANDLER
from duly.rules.calendars import Calendar, calendar_of
from duly.rules.durations import seconds_of
from duly.rules.retry import RetryPolicy
from duly.rules.schedule_text import interval_of
from duly.rules.schedules import Cron, Every, Once
from duly.rules.time_words import read_time
from duly.rules.zones import zone_key
from duly.scheduler import Job

_ANY_NAME = "job"
_PREFIXES = (f"job {_ANY_NAME!r}: ", f"job {_ANY_NAME!r} ", "RetryPolicy ")


class Refused(Exception):
    """A value that is not valid; `inside` is the path to the invalid part of it."""

    def __init__(self, message: str, inside: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.inside = inside


Convert = Callable[[str, Any], Any]


def plain_message(error: DulyError) -> str:
    """The message of an error without the name of the job, because the position in the file shows it."""
    text = str(error)
    for prefix in _PREFIXES:
        text = text.removeprefix(prefix)
    return text


def checked(convert: Convert, create: Callable[[Any], object]) -> Convert:
    """A conversion whose result is valid if `create` accepts it."""

    def field(key: str, value: Any) -> Any:
        given = convert(key, value)
        try:
            create(given)
        except DulyError as exc:
            raise Refused(plain_message(exc)) from exc
        return given

    return field


def text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Refused(f"{key} = {_shown(value)} must be a string")
    if "\0" in value:
        raise Refused(f"{key} contains a NUL character, which cannot be passed to a program")
    return value


def boolean(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"{key} = {_shown(value)} must be true or false")
    return value


def strings(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise Refused(f"{key} = {_shown(value)} must be a list of strings")
    for number, each in enumerate(value):
        if not isinstance(each, str) or "\0" in each:
            raise Refused(f"{key} contains {_shown(each)}: write strings only", (number,))
    return tuple(value)


def seconds(key: str, value: Any) -> float:
    """A duration: a string such as "10m", or a number of seconds."""
    if isinstance(value, str):
        try:
            return seconds_of(value)
        except ConfigurationError as exc:
            raise Refused(str(exc)) from exc
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f'{key} = {_shown(value)} must be a duration such as "90s", "10m" or "1h30m"')
    try:
        return float(value)
    except OverflowError as exc:
        raise Refused(f"{key} = {_shown(value)} is too large") from exc


def interval(key: str, value: Any) -> float:
    """A duration, or the words with which Duly shows an interval: "every 15 minutes"."""
    if not isinstance(value, str):
        return seconds(key, value)
    try:
        return interval_of(value)
    except ConfigurationError as exc:
        raise Refused(str(exc)) from exc


def date_and_time(key: str, value: Any) -> datetime:
    """A date and time. Without an offset it is in the job's time zone."""
    if isinstance(value, str):
        return _read_date_and_time(key, value)
    if not isinstance(value, datetime):
        raise Refused(f"{key} = {_shown(value)} must be a date and time such as 2027-03-14T02:30:00+01:00")
    return value


def _read_date_and_time(key: str, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    try:
        written = read_time(text)
        found = written.resolve(EPOCH, "UTC")
    except ConfigurationError as exc:
        raise Refused(f"invalid {key} {text!r}: expected e.g. 2027-03-14T02:30:00+01:00") from exc
    if written.relative:
        raise Refused(f"{key} = {text!r} means another time whenever the file is read: write a date, as in 2027-03-14")
    return found if written.zoned else found.replace(tzinfo=None)


def expressions(key: str, value: Any) -> tuple[str, ...]:
    """One cron expression, or a list of them: the job is due whenever one of them is."""
    if not isinstance(value, list):
        return (checked(text, Cron)(key, value),)
    if not value:
        raise Refused(f"{key} is an empty list: write at least one expression")
    for number, each in enumerate(value):
        try:
            checked(text, Cron)(key, each)
        except Refused as exc:
            raise Refused(str(exc), (number,)) from exc
    return tuple(value)


def calendars(key: str, value: Any) -> tuple[Any, ...]:
    """Names of calendars of the file, and tables that describe one. Names are looked up later."""
    if not isinstance(value, list):
        raise Refused(f'{key} = {_shown(value)} must be a list: {key} = [{{ weekends = true }}, "closed"]')
    return tuple(_calendar_or_name(key, number, each) for number, each in enumerate(value))


def _calendar_or_name(key: str, number: int, value: Any) -> Calendar | str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and "ical" in value:
        raise Refused("a calendar from a file needs a table of its own: [calendars.NAME]", (number,))
    try:
        return calendar(f"{key}[{number}]", value)
    except Refused as exc:
        raise Refused(str(exc), (number, *exc.inside)) from exc


def calendar(key: str, value: Any) -> Calendar:
    """A table that describes a calendar."""
    if not isinstance(value, Mapping):
        raise Refused(f"{key} = {_shown(value)} must be a table such as {{ weekends = true }}")
    table = {name: _calendar_value(name, each) for name, each in value.items()}
    try:
        return calendar_of(table)
    except DulyError as exc:
        raise Refused(plain_message(exc)) from exc


def _calendar_value(name: str, value: Any) -> Any:
    """A path of a file for `ical`; texts for dates and times, which TOML has types for."""
    if name == "ical" and isinstance(value, str):
        return Path(value)
    if name == "dates" and isinstance(value, list):
        return [each.isoformat() if isinstance(each, date) else each for each in value]
    return value


def environment(key: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise Refused(f'{key} must be a table of strings: {key} = {{ NAME = "value" }}')
    for name, each in value.items():
        if not name or "=" in name or "\0" in name:
            raise Refused(f"{name!r} cannot be the name of an environment variable", (name,))
        if not isinstance(each, str):
            raise Refused(f"{name} must be a string, in quotes", (name,))
        if "\0" in each:
            raise Refused(f"{name} contains a NUL character, which cannot be passed to a program", (name,))
    return dict(sorted(value.items()))


def confine(key: str, value: Any) -> Confinement:
    """A table of limits, each checked by itself."""
    if not isinstance(value, Mapping):
        raise Refused(f'{key} must be a table: {key} = {{ memory = "512M", cpu_seconds = 60 }}')
    for name, each in value.items():
        if name not in Confinement.__struct_fields__:
            raise Refused(unknown(name, Confinement.__struct_fields__), (name,))
        try:
            Confinement(**{name: each})
        except ConfigurationError as exc:
            raise Refused(str(exc).removeprefix("confine: "), (name,)) from exc
    return Confinement(**value)


def command(key: str, value: Any) -> tuple[str, ...] | str:
    """A list of words, or one string for a shell. Which of the two the job needs is checked later."""
    given = text(key, value) if isinstance(value, str) else strings(key, value)
    if not (given.strip() if isinstance(given, str) else given and given[0]):
        raise Refused(f"{key} is empty: write the program and its arguments as a list of strings")
    return given


def retry(_: str, value: Any) -> RetryPolicy | int:
    """A number of retries, or a table of arguments for `RetryPolicy`."""
    if not isinstance(value, Mapping):
        number: int = checked(_unchanged, RetryPolicy.of)("retry", value)
        return number
    return RetryPolicy(**{name: _retry_field(name, each) for name, each in value.items()})


def _retry_field(name: str, value: Any) -> Any:
    if name not in _RETRY:
        raise Refused(unknown(name, _RETRY), (name,))
    try:
        return checked(_RETRY[name], lambda given: RetryPolicy(**{name: given}))(name, value)
    except Refused as exc:
        raise Refused(str(exc), (name,)) from exc


def delivery(_: str, value: Any) -> Any:
    if value == "exactly_once":
        raise Refused("exactly_once needs a transaction that a command cannot join: at_least_once or at_most_once")
    return value


def _unchanged(_: str, value: Any) -> Any:
    return value


def _of_job(name: str, convert: Convert = _unchanged) -> Convert:
    """A field that `Job` checks."""
    return checked(convert, lambda given: Job(handler=COMMAND_HANDLER, name=_ANY_NAME, **{name: given}))


_RETRY: dict[str, Convert] = {
    "max_retries": _unchanged,
    "initial_interval": seconds,
    "max_interval": seconds,
    "multiplier": _unchanged,
    "strategy": text,
    "jitter": _unchanged,
}

# All keys of a job's table, in the order of the documentation.
FIELDS: dict[str, Convert] = {
    "description": text,
    "cron": expressions,
    "every": checked(interval, Every),
    "at": date_and_time,
    "exclude": calendars,
    "timezone": checked(text, zone_key),
    "dst": checked(text, lambda policy: Cron("* * * * *", dst=policy)),
    "jitter": checked(seconds, lambda spread: Once(EPOCH, jitter=spread)),
    "start_at": date_and_time,
    "end_at": date_and_time,
    "max_runs": _of_job("max_runs"),
    "command": command,
    "shell": boolean,
    "cwd": text,
    "environment": environment,
    "pass_environment": strings,
    "confine": confine,
    "timeout": _of_job("timeout", seconds),
    "retry": _of_job("retry", retry),
    "delivery": _of_job("delivery", delivery),
    "overlap": _of_job("overlap", text),
    "misfire": _of_job("misfire", text),
    "on_store_loss": _of_job("on_store_loss", text),
    "queue": _of_job("queue"),
    "priority": _of_job("priority"),
    "tags": _of_job("tags", strings),
    "selector": _of_job("selector"),
    "notify": _of_job("notify"),
    "expect_every": _of_job("expect_every", seconds),
    "keep_logs": _of_job("keep_logs"),
}

# The keys that may be in `[defaults]`: all except those that define what a job does and when.
DEFAULTS = {key: FIELDS[key] for key in FIELDS if key not in {"description", "cron", "every", "at", "command", "shell"}}


def _shown(value: Any) -> str:
    """A value approximately as it is written in the file."""
    match value:
        case bool():
            return "true" if value else "false"
        case date() | time():
            return str(value)
        case Mapping():
            return "a table"
        case _:
            return repr(value)
