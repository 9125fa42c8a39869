"""Job files: what a file's jobs would change in the store, and which version of a file is in force.

A job file changes its own jobs and no others; a name that is already defined elsewhere is a clash, and with a clash
nothing may be written. Pauses, cursors and history are kept, as by every deploy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from duly.deprecation import renamed_attribute
from duly.model import CommandSpec, JobChange, JobFile, JobRecord, JobSpec, Origin, ScheduleSpec
from duly.model.job_file import InForce
from duly.rules import job_changes
from duly.rules.schedules import from_spec

REMEMBERED = 100  # versions of a file that are known as replaced

_HIDDEN, _NEW, _NONE = "set", "set anew", "–"


class AlterationKind(StrEnum):
    """What happens to a job."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class FieldChange(Struct, frozen=True):
    """One field of a definition, before and after, in words. Values of the environment are not shown."""

    field: str
    old: str
    new: str


class Alteration(Struct, frozen=True):
    """One job that is to be added, changed or removed: the record as it was read, and the definition to be."""

    kind: AlterationKind
    name: str
    before: JobRecord | None = None
    after: JobSpec | None = None
    fields: tuple[FieldChange, ...] = ()

    def words(self) -> str:
        """The alteration as one line."""
        match self.kind:
            case AlterationKind.ADDED:
                assert self.after is not None
                return f"added {self.name}: {schedule_words(self.after.schedule)}: {self.after.command}"
            case AlterationKind.CHANGED:
                changes = "; ".join(f"{each.field}: {each.old} → {each.new}" for each in self.fields)
                return f"changed {self.name}: {changes}"
            case AlterationKind.REMOVED:
                return f"removed {self.name}"


class Clash(Struct, frozen=True):
    """A name in the job file that is already defined elsewhere."""

    name: str
    owner: str


class Difference(Struct, frozen=True):
    """What a job file would change, by name. `unchanged` are the records that are as the file has them.

    `stands` is the version that was in force when this was found, and `version` is the version of the value that
    records it: if that has changed, the difference is out of date.
    """

    job_file: JobFile
    alterations: tuple[Alteration, ...] = ()
    unchanged: tuple[JobRecord, ...] = ()
    clashes: tuple[Clash, ...] = ()
    stands: InForce | None = None
    version: int = 0

    fleet = renamed_attribute("fleet", "job_file")

    def of(self, kind: AlterationKind) -> list[Alteration]:
        return [each for each in self.alterations if each.kind is kind]

    def clash_words(self) -> list[str]:
        """A message for each clash."""
        mine, way_out = f"job file {self.job_file.name!r}", "give one of them another name"
        return [f"job {each.name!r} of {mine} is defined by {each.owner} already: {way_out}" for each in self.clashes]


def difference(job_file: JobFile, records: Iterable[JobRecord]) -> Difference:
    """Compare a job file with the records of the jobs that it names or owns; others are left alone."""
    stored = {record.name: record for record in records}
    wanted = {spec.name: spec for spec in job_file.jobs}
    own = {name: record for name, record in stored.items() if _own(record, job_file)}
    clashes = [Clash(name, owner(stored[name])) for name in wanted if name in stored and name not in own]
    found = [_alteration(spec, own.get(name)) for name, spec in wanted.items()]
    removed = [Alteration(AlterationKind.REMOVED, name, own[name]) for name in own if name not in wanted]
    return Difference(
        job_file,
        tuple(sorted((each for each in (*found, *removed) if each is not None), key=lambda each: each.name)),
        tuple(own[name] for name, same in zip(wanted, found, strict=True) if same is None and name in own),
        tuple(clashes),
    )


def _own(record: JobRecord, job_file: JobFile) -> bool:
    return record.origin is Origin.FILE and record.job_file == job_file.name


def owner(record: JobRecord) -> str:
    """Who defines a job, for messages."""
    match record.origin:
        case Origin.FILE:
            return f"job file {record.job_file!r}"
        case Origin.API:
            return "the API"
        case Origin.CODE:
            return "code" if record.removed_at is None else "code, and was removed by an operator"


def _alteration(spec: JobSpec, record: JobRecord | None) -> Alteration | None:
    if record is None:
        return Alteration(AlterationKind.ADDED, spec.name, None, spec)
    if record.spec.digest() == spec.digest():
        return None
    return Alteration(AlterationKind.CHANGED, spec.name, record, spec, tuple(field_changes(record.spec, spec)))


FieldTexts = dict[str, dict[str, str]]


def before_and_after(alterations: Iterable[Alteration]) -> tuple[FieldTexts, FieldTexts]:
    """The old and new state, by job, in words: for a changed job, the fields that changed."""
    before: FieldTexts = {}
    after: FieldTexts = {}
    for each in alterations:
        match each.kind:
            case AlterationKind.ADDED:
                assert each.after is not None
                after[each.name] = _brief(each.after)
            case AlterationKind.REMOVED:
                assert each.before is not None
                before[each.name] = _brief(each.before.spec)
            case AlterationKind.CHANGED:
                before[each.name] = {field.field: field.old for field in each.fields}
                after[each.name] = {field.field: field.new for field in each.fields}
    return before, after


def _brief(spec: JobSpec) -> dict[str, str]:
    return {"schedule": schedule_words(spec.schedule), "command": str(spec.command)}


def change_of(alteration: Alteration, job_file: str, uid: Callable[[], str], now: datetime) -> JobChange | None:
    """The edit that adds or changes a job; None if nothing is to be written."""
    spec = alteration.after
    assert spec is not None
    schedule = None if spec.schedule is None else from_spec(spec.schedule)
    if alteration.before is not None:
        return job_changes.deploy(alteration.before, spec, schedule, now, None)
    born = job_changes.create(uid(), spec, schedule, Origin.FILE, now, None)
    return replace(born, record=replace(born.record, job_file=job_file))


# --- versions of a file


def outdated(stands: InForce | None, job_file: JobFile, since: datetime) -> bool:
    """Whether a file that was read at `since` must not come into force automatically: a newer one has replaced it."""
    digest = job_file.digest()
    return stands is not None and digest != stands.digest and (digest in stands.replaced or since < stands.since)


def put_in_force(before: InForce | None, job_file: JobFile, since: datetime) -> InForce:
    """The record of a file that replaces the version in force."""
    digest = job_file.digest()
    older = () if before is None else (*before.replaced, before.digest)
    replaced = tuple(dict.fromkeys(each for each in older if each != digest))[-REMEMBERED:]
    return InForce(digest, since, tuple(spec.name for spec in job_file.jobs), replaced)


# --- in words


def field_changes(old: JobSpec, new: JobSpec) -> list[FieldChange]:
    """The fields in which two definitions differ."""
    found = [] if old.schedule == new.schedule else [FieldChange("schedule", *_schedules(old.schedule, new.schedule))]
    found += _command_changes(old.command, new.command)
    before, after = _plain(old), _plain(new)
    found += [FieldChange(field, before[field], after[field]) for field in after if before[field] != after[field]]
    return found


def schedule_words(schedule: ScheduleSpec | None) -> str:
    """A schedule in plain words."""
    return "when submitted" if schedule is None else from_spec(schedule).describe()


def _schedules(old: ScheduleSpec | None, new: ScheduleSpec | None) -> tuple[str, str]:
    """Two schedules in words, or as they are written where the words are the same."""
    words = schedule_words(old), schedule_words(new)
    if words[0] != words[1]:
        return words
    return (_NONE if old is None else repr(from_spec(old))), (_NONE if new is None else repr(from_spec(new)))


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
        "timeout": _NONE if policy.timeout is None else f"{policy.timeout:g} s",
        "retry": f"{retry.max_retries} × {retry.strategy} from {retry.initial_interval:g} s"
        f" up to {retry.max_interval:g} s, multiplier {retry.multiplier:g}, jitter {retry.jitter:g}"
        if retry.max_retries
        else "none",
        "delivery": policy.delivery.value,
        "on_store_loss": policy.on_store_loss.value,
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


def _yes(value: bool) -> str:
    return "yes" if value else "no"
