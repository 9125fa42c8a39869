"""Entries: one job of a file, from the fields it gives to the definition that the store holds."""

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
from duly.rules.schedules import Cron, Every, Once
from duly.rules.zones import instant_of
from duly.scheduler import Job

_WHEN = ("cron", "every", "at")
_BOUNDS = ("start_at", "end_at")
_OF_JOB = (
    "description",
    "max_runs",
    "timeout",
    "retry",
    "delivery",
    "overlap",
    "misfire",
    "on_store_loss",
    "queue",
    "priority",
    "tags",
    "selector",
)


def conflicts(given: Mapping[str, Any], written: Collection[str]) -> Iterator[Refused]:
    """What does not go together. `written` are all keys, `given` the values of those that can be by themselves."""
    named = [key for key in _WHEN if key in written]
    if len(named) > 1:
        yield Refused(f"{' and '.join(named)}: a job has one schedule; make two jobs of it", (named[-1],))
    for key in _BOUNDS:
        if key in given and not named:
            yield Refused(f"{key} without cron, every or at", (key,))
    words, shell = given.get("command"), given.get("shell", False)
    if "command" not in written:
        yield Refused('there is no command: write for example command = ["/usr/local/bin/backup", "--all"]')
    elif isinstance(words, str) and not shell:
        listed = ", ".join(f'"{word}"' for word in _split(words))
        yield Refused(f"it is a text: write a list, [{listed}], or add shell = true", ("command",))
    elif words is not None and shell and not isinstance(words, str):
        yield Refused("it is a list: with shell = true it must be one text; or leave shell out", ("command",))


def job_spec(name: str, given: Mapping[str, Any], timezone: str) -> JobSpec:
    """The definition that fields without conflicts make; raises `Refused` if it cannot be."""
    zone = given.get("timezone", timezone)
    fields = {key: given[key] for key in _OF_JOB if key in given}
    fields |= {key: _instant(given[key], zone) for key in _BOUNDS if key in given}
    try:
        job = Job(handler=COMMAND_HANDLER, name=name, schedule=_schedule(given, zone), **fields)
        return replace(job.spec(zone, b"{}"), command=_command(given))
    except DulyError as exc:
        raise Refused(plain_message(exc).removeprefix(f"job {name!r}: ").removeprefix(f"job {name!r} ")) from exc


def _command(given: Mapping[str, Any]) -> CommandSpec:
    words = given["command"]
    return CommandSpec(
        argv=(words,) if isinstance(words, str) else words,
        shell=given.get("shell", False),
        cwd=given.get("cwd"),
        environment=given.get("environment", {}),
        pass_environment=given.get("pass_environment", ()),
    )


def _split(words: str) -> list[str]:
    try:
        return shlex.split(words)
    except ValueError:
        return words.split()


def _schedule(given: Mapping[str, Any], zone: str) -> Cron | Every | Once | None:
    """When it is due; None if it only runs when it is triggered."""
    jitter = given.get("jitter", 0)
    match given:
        case {"cron": expression}:
            return Cron(expression, timezone=zone, dst=given.get("dst", "cron"), jitter=jitter)
        case {"every": interval}:
            return Every(interval, jitter=jitter)
        case {"at": moment}:
            return Once(_instant(moment, zone), jitter=jitter)
        case _:
            return None


def _instant(moment: datetime, zone: str) -> datetime:
    return instant_of(moment, zone) if moment.tzinfo is None else moment
