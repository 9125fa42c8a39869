"""Definitions in words: a schedule, and the fields in which two definitions of a job differ."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct, UnsetType

from duly.errors import InvalidSchedule
from duly.model import CommandSpec, JobSpec, ScheduleSpec
from duly.rules.schedules import Schedule, describe_schedule, from_spec

_HIDDEN, _NEW, _NONE = "set", "set anew", "–"
_LONGEST_PAYLOAD = 200  # characters


class FieldChange(Struct, frozen=True):
    """One field of a definition, before and after, in words. Values of the environment are not shown."""

    field: str
    old: str
    new: str


def field_changes(old: JobSpec, new: JobSpec) -> list[FieldChange]:
    """The fields in which two definitions differ."""
    found = [] if old.schedule == new.schedule else [FieldChange("schedule", *_schedules(old.schedule, new.schedule))]
    found += _command_changes(old.command, new.command)
    before, after = _plain(old), _plain(new)
    found += [FieldChange(field, before[field], after[field]) for field in after if before[field] != after[field]]
    return found


def schedule_words(schedule: ScheduleSpec | None) -> str:
    """A schedule in plain words. Of one that only code can compute, the name of its class."""
    return describe_schedule(schedule, _schedule(schedule)) or "when submitted"


def _schedules(old: ScheduleSpec | None, new: ScheduleSpec | None) -> tuple[str, str]:
    """Two schedules in words, or as they are written where the words are the same."""
    words = schedule_words(old), schedule_words(new)
    if words[0] != words[1]:
        return words
    return _as_written(old), _as_written(new)


def _as_written(schedule: ScheduleSpec | None) -> str:
    return _NONE if schedule is None else repr(_schedule(schedule) or schedule)


def _schedule(schedule: ScheduleSpec | None) -> Schedule | None:
    """What computes a schedule, None where only code can, or where it cannot be read."""
    with suppress(InvalidSchedule):
        return None if schedule is None else from_spec(schedule)
    return None


def _command_changes(old: CommandSpec | None, new: CommandSpec | None) -> list[FieldChange]:
    before, after = _command_words(old), _command_words(new)
    found = [FieldChange(field, before[field], after[field]) for field in after if before[field] != after[field]]
    return found + _environment_changes(old.environment if old else {}, new.environment if new else {})


def _command_words(command: CommandSpec | None) -> dict[str, str]:
    return {
        "command": _NONE if command is None else str(command),
        "shell": _yes(command is not None and command.shell),
        "cwd": _NONE if command is None or command.cwd is None else command.cwd,
        "pass_environment": _NONE if command is None else ", ".join(command.pass_environment) or _NONE,
        "confine": _NONE if command is None or command.confine is None else str(command.confine),
    }


def _environment_changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[FieldChange]:
    found = []
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            texts = (_HIDDEN, _NEW) if name in old and name in new else (_NONE, _HIDDEN)
            found.append(FieldChange(f"environment.{name}", *(texts if name in new else (_HIDDEN, _NONE))))
    return found


def _plain(spec: JobSpec) -> dict[str, str]:
    policy = spec.policy
    retry = policy.retry
    return {
        "handler": spec.handler,
        "payload": _payload(spec.payload),
        "timeout": _NONE if policy.timeout is None else f"{policy.timeout:g} s",
        "retry": f"{retry.max_retries} × {retry.strategy} from {retry.initial_interval:g} s"
        f" up to {retry.max_interval:g} s, multiplier {retry.multiplier:g}, jitter {retry.jitter:g}"
        if retry.max_retries
        else "none",
        "delivery": policy.delivery.value,
        "on_store_loss": policy.on_store_loss.value,
        "keep_logs": _NONE if isinstance(policy.keep_logs, UnsetType) else str(policy.keep_logs),
        "queue": spec.queue,
        "priority": str(spec.priority),
        "overlap": _NONE if spec.overlap is None else spec.overlap.value,
        "misfire": spec.misfire.value,
        "max_runs": _NONE if spec.max_runs is None else str(spec.max_runs),
        "description": spec.description or _NONE,
        "tags": ", ".join(spec.tags) or _NONE,
        "notify": _NONE if spec.notify is None else ", ".join(spec.notify) or "nobody",
        "expect_every": _NONE if spec.expect_every is None else f"{spec.expect_every:g} s",
        "selector": ", ".join(f"{name}={value}" for name, value in sorted((spec.selector or {}).items())) or _NONE,
    }


def _payload(payload: bytes) -> str:
    text = payload.decode(errors="replace")
    return text if len(text) <= _LONGEST_PAYLOAD else f"{text[: _LONGEST_PAYLOAD - 1]}… ({len(payload)} bytes)"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
