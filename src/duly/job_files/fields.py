"""Fields: single keys of a job's table, each turned into what `Job` takes, or refused.

What a value may be is decided where it is decided for code: a field is checked by making a job, a schedule or a policy
of nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Any

from duly.errors import ConfigurationError, DulyError
from duly.job_files.problems import unknown
from duly.model import EPOCH
from duly.model.job import COMMAND_HANDLER
from duly.rules.durations import seconds_of
from duly.rules.retry import RetryPolicy
from duly.rules.schedules import Cron, Every, Once
from duly.rules.zones import zone_key
from duly.scheduler import Job

_PROBE = "job"
_PREFIXES = (f"job {_PROBE!r}: ", f"job {_PROBE!r} ", "RetryPolicy ")


class Refused(Exception):
    """A value that cannot be; `inside` leads to the part of it that is at fault."""

    def __init__(self, message: str, inside: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.inside = inside


Convert = Callable[[str, Any], Any]


def plain_message(error: DulyError) -> str:
    """What an error says, without the name of the thing: the place says that."""
    text = str(error)
    for prefix in _PREFIXES:
        text = text.removeprefix(prefix)
    return text


def checked(make: Callable[[], object]) -> None:
    """Let something be made, and refuse what it refuses."""
    try:
        make()
    except DulyError as exc:
        raise Refused(plain_message(exc)) from exc


def text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Refused(f"{key} = {_shown(value)} must be text")
    if "\0" in value:
        raise Refused(f"{key} holds a NUL, which no program can be given")
    return value


def truth(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"{key} = {_shown(value)} must be true or false")
    return value


def texts(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise Refused(f"{key} = {_shown(value)} must be a list of texts")
    for number, each in enumerate(value):
        if not isinstance(each, str) or "\0" in each:
            raise Refused(f"{key} has {_shown(each)} in it: write texts only", (number,))
    return tuple(value)


def seconds(key: str, value: Any) -> float:
    """A duration: text such as "10m", or a number of seconds."""
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


def moment(key: str, value: Any) -> datetime:
    """A date and time; without an offset it is meant in the job's zone."""
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError as exc:
            raise Refused(f"invalid {key} {value!r}: expected e.g. 2027-03-14T02:30:00+01:00") from exc
    if not isinstance(value, datetime):
        raise Refused(f"{key} = {_shown(value)} must be a date and time such as 2027-03-14T02:30:00+01:00")
    return value


def environment(key: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise Refused(f'{key} must be a table of texts: {key} = {{ NAME = "value" }}')
    for name, each in value.items():
        if not name or "=" in name or "\0" in name:
            raise Refused(f"{name!r} cannot name a variable of the environment", (name,))
        if not isinstance(each, str):
            raise Refused(f"{name} must be text, in quotes", (name,))
        if "\0" in each:
            raise Refused(f"{name} holds a NUL, which no program can be given", (name,))
    return dict(sorted(value.items()))


def retry(_: str, value: Any) -> RetryPolicy | int:
    """A number of retries, or a table of what `RetryPolicy` takes."""
    if not isinstance(value, Mapping):
        checked(lambda: RetryPolicy.of(value))
        number: int = value
        return number
    return RetryPolicy(**{name: _retry_field(name, each) for name, each in value.items()})


def _retry_field(name: str, value: Any) -> Any:
    if name not in _RETRY:
        raise Refused(unknown(name, _RETRY), (name,))
    try:
        given = _RETRY[name](name, value)
        checked(lambda: RetryPolicy(**{name: given}))
    except Refused as exc:
        raise Refused(str(exc), (name,)) from exc
    return given


def _as_is(_: str, value: Any) -> Any:
    return value


_RETRY: dict[str, Convert] = {
    "max_retries": _as_is,
    "initial_interval": seconds,
    "max_interval": seconds,
    "multiplier": _as_is,
    "strategy": text,
    "jitter": _as_is,
}


def command(key: str, value: Any) -> tuple[str, ...] | str:
    """A list of words, or one text for a shell; which of them is right is seen later."""
    if isinstance(value, str):
        return text(key, value) if value.strip() else _refuse_empty(key)
    words = texts(key, value)
    return words if words and words[0] else _refuse_empty(key)


def _refuse_empty(key: str) -> Any:
    raise Refused(f"{key} is empty: write the program and its arguments as a list of texts")


def cron(key: str, value: Any) -> str:
    expression = text(key, value)
    checked(lambda: Cron(expression))
    return expression


def every(key: str, value: Any) -> float:
    interval = seconds(key, value)
    checked(lambda: Every(interval))
    return interval


def jitter(key: str, value: Any) -> float:
    spread = seconds(key, value)
    checked(lambda: Once(EPOCH, jitter=spread))
    return spread


def dst(key: str, value: Any) -> str:
    policy = text(key, value)
    checked(lambda: Cron("* * * * *", dst=policy))
    return policy


def timezone(key: str, value: Any) -> str:
    name = text(key, value)
    checked(lambda: zone_key(name))
    return name


def delivery(_: str, value: Any) -> Any:
    if value == "exactly_once":
        raise Refused("exactly_once needs a transaction that a command cannot join: at_least_once or at_most_once")
    return value


def of_job(name: str, convert: Convert = _as_is) -> Convert:
    """A field that `Job` checks itself."""

    def field(key: str, value: Any) -> Any:
        given = convert(key, value)
        checked(lambda: Job(handler=COMMAND_HANDLER, name=_PROBE, **{name: given}))
        return given

    return field


# All that a job's table may say, in the order of the documentation.
FIELDS: dict[str, Convert] = {
    "description": text,
    "cron": cron,
    "every": every,
    "at": moment,
    "timezone": timezone,
    "dst": dst,
    "jitter": jitter,
    "start_at": moment,
    "end_at": moment,
    "max_runs": of_job("max_runs"),
    "command": command,
    "shell": truth,
    "cwd": text,
    "environment": environment,
    "pass_environment": texts,
    "timeout": of_job("timeout", seconds),
    "retry": of_job("retry", retry),
    "delivery": of_job("delivery", delivery),
    "overlap": of_job("overlap", text),
    "misfire": of_job("misfire", text),
    "on_store_loss": of_job("on_store_loss", text),
    "queue": of_job("queue"),
    "priority": of_job("priority"),
    "tags": of_job("tags", texts),
    "selector": of_job("selector"),
}

# What says which job it is cannot be a default of all.
DEFAULTS = {key: FIELDS[key] for key in FIELDS if key not in {"description", "cron", "every", "at", "command", "shell"}}


def _shown(value: Any) -> str:
    """A value as the file has it, as far as that matters."""
    match value:
        case bool():
            return "true" if value else "false"
        case date() | time():
            return str(value)
        case Mapping():
            return "a table"
        case _:
            return repr(value)
