"""Job files: `duly check` and `duly apply`, and the program that `duly run jobs.toml` runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from duly.cli.client import actor, address_of, ask, store_time
from duly.cli.operate import can_ask
from duly.cli.options import command, json_option, store_option
from duly.cli.output import BAD, GOOD, WARN, write_block, write_json, write_line
from duly.cli.text import full, line, relative
from duly.errors import ConfigurationError, DulyError
from duly.job_files import JobFile, JobFileError, read_file
from duly.model import JobSpec, SchedulerConfig
from duly.rules.job_files import Alteration, AlterationKind, Difference, FieldChange, schedule_words
from duly.rules.redaction import redacted
from duly.rules.schedules import from_spec

if TYPE_CHECKING:
    from duly.scheduler import Scheduler

_NEXT = 3
_WRONG_FILE = 2
_SIGNS = {
    AlterationKind.ADDED: ("+", GOOD),
    AlterationKind.CHANGED: ("~", WARN),
    AlterationKind.REMOVED: ("-", BAD),
}

_log = logging.getLogger("duly.job_files")


def load(path: str) -> JobFile:
    """A valid job file. Problems are written to standard error, and the command ends with exit code 2."""
    try:
        found = read_file(path)
    except JobFileError as exc:
        for problem in exc.problems:
            click.echo(line(str(problem)), err=True)
        number = len(exc.problems)
        click.echo(f"Error: {path} has {number} problem{'s'[: number != 1]}, nothing was changed", err=True)
        raise click.exceptions.Exit(_WRONG_FILE) from exc
    except ConfigurationError as exc:
        raise click.UsageError(str(exc)) from exc
    for message in found.deprecations:
        click.echo(line(message), err=True)
    return found


# --- duly run jobs.toml


class JobFileProgram:
    """A scheduler that runs the commands of stored jobs, and keeps the jobs of one file in the store up to date."""

    def __init__(self, file: JobFile, namespace: str | None) -> None:
        from duly.scheduler import Scheduler  # noqa: PLC0415  # `duly check` needs none

        self._file = file
        defaults = {} if namespace is None else {"namespace": namespace}
        config = SchedulerConfig(allow_commands="stored", **{**defaults, **file.settings})
        self.scheduler = Scheduler(file.url, config)

    async def carry(self) -> None:
        """Write the jobs of the file to the store when the node starts."""
        await self.scheduler.carry(self._file)

    async def reload(self) -> None:
        """Read the file again. If that fails, the node continues with what it had."""
        path = self._file.path
        try:
            file = read_file(path)
            for message in file.deprecations:
                _log.warning("%s", message)
            self._refuse_rename(file)
            stands = await self.scheduler.carry(file)
        except JobFileError as exc:
            for problem in exc.problems:
                _log.error("%s", problem)
            _log.error("%s was not reloaded: the previous version stays in force", path)
        except DulyError as exc:
            _log.error("%s was not reloaded, the previous version stays in force: %s", path, exc)
        else:
            if stands:
                _log.info("%s is reloaded: %d jobs", path, len(file.jobs))
            if (file.url, file.settings) != (self._file.url, self._file.settings):
                _log.warning("%s: the url and the settings of the node changed: restart the node to use them", path)
            self._file = file

    def _refuse_rename(self, file: JobFile) -> None:
        """Under another name, no file would own the old jobs."""
        if file.name != self._file.name:
            raise DulyError(f"the name {self._file.name!r} is now {file.name!r}: restart the node to use it")


# --- duly check, duly apply


class Entry(Struct, frozen=True):
    """One job of the answer: its definition, its next due times, and the fields that change."""

    name: str
    schedule: str
    command: str
    next: tuple[datetime, ...]
    paused: bool = False
    fields: tuple[FieldChange, ...] = ()


@command("duly check jobs.toml", "duly check jobs.toml -n 10", "duly check jobs.toml --json")
@click.argument("file")
@click.option("-n", "--count", type=click.IntRange(1, 100), default=_NEXT, show_default=True, help="How many times.")
@json_option
def check(file: str, count: int, as_json: bool) -> None:
    """Check FILE without a store, and show when its jobs are due. All errors are shown at once, with their lines."""
    now = datetime.now(UTC)
    found = load(file)
    entries = [_entry(spec, now, count) for spec in found.jobs]
    if as_json:
        write_json({**_names(found), "jobs": entries})
        return
    click.echo(f"{file} is valid: job file {found.name}, {len(entries)} job{'s'[: len(entries) != 1]}")
    for entry in entries:
        write_block(entry.name, [f"{entry.schedule}: {line(entry.command)}", *_due_times(entry, now)])


@command("duly apply jobs.toml --dry-run", "duly apply jobs.toml", "duly apply jobs.toml --yes --url redis://cache")
@click.argument("file")
@click.option("--dry-run", is_flag=True, help="Only show the difference.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@store_option
@json_option
def apply(file: str, dry_run: bool, yes: bool, url: str | None, as_json: bool) -> None:
    """Write the jobs of FILE to the store: add, change and remove the jobs of this file, and no others.

    The difference is shown first, and on a terminal you are asked to confirm it. Pauses, history and running runs are
    kept. FILE is in force from then on, even if a newer version of it was applied before.
    """
    found = load(file)
    where = url or found.url
    compared, now = _ask(where, found, lambda scheduler: _compare(scheduler, found))
    lost: list[str] = []
    if not as_json:
        _write(compared, redacted(address_of(where).store), now)
    if compared.clashes:
        raise ConfigurationError("; ".join(compared.clash_words()))
    if not dry_run:
        if compared.alterations and not yes and can_ask():
            click.confirm("Apply this?", abort=True, err=True)
        lost = _ask(where, found, lambda scheduler: _apply(scheduler, compared))
    if as_json:
        write_json(_document(compared, lost, now, applied=not dry_run))
    elif compared.alterations and not lost:
        click.echo("nothing was changed: --dry-run" if dry_run else "applied")
    if lost:
        raise ConfigurationError(f"{', '.join(lost)} changed in the meantime: run duly apply {file} again")


async def _compare(scheduler: Scheduler, file: JobFile) -> tuple[Difference, datetime]:
    return await scheduler.compare(file), await store_time(scheduler)


async def _apply(scheduler: Scheduler, compared: Difference) -> list[str]:
    return await scheduler.apply(compared, by=actor())


def _ask(url: str | None, file: JobFile, question: Any) -> Any:
    return ask(url, question, default_namespace=file.settings.get("namespace"))


def _entry(spec: JobSpec, now: datetime, count: int, **more: Any) -> Entry:
    due = () if spec.schedule is None else tuple(from_spec(spec.schedule).preview(count, after=now))
    return Entry(spec.name, schedule_words(spec.schedule), str(spec.command), due, **more)


def _altered(each: Alteration, now: datetime) -> Entry:
    spec = each.after or (each.before.spec if each.before else None)
    assert spec is not None
    paused = each.before is not None and each.before.paused is not None
    return _entry(spec, now, _NEXT, paused=paused, fields=each.fields)


def _names(file: JobFile) -> dict[str, str]:
    """The name of the file, and `fleet` as its deprecated key."""
    return {"job_file": file.name, "fleet": file.name}


def _document(found: Difference, lost: Iterable[str], now: datetime, *, applied: bool) -> dict[str, Any]:
    altered = {kind.value: [_altered(each, now) for each in found.of(kind)] for kind in AlterationKind}
    return {
        **_names(found.job_file),
        "applied": applied,
        **altered,
        "unchanged": [record.name for record in found.unchanged],
        "lost": list(lost),
    }


def _write(found: Difference, where: str, now: datetime) -> None:
    counts = ", ".join(f"{len(found.of(kind))} {kind.value}" for kind in AlterationKind)
    write_line(f"job file {found.job_file.name} on {where}: {counts}, {len(found.unchanged)} unchanged")
    for each in found.alterations:
        sign, colour = _SIGNS[each.kind]
        entry = _altered(each, now)
        lead = click.style(f"{sign} ", fg=colour)
        write_line(f"{entry.name}: {line(f'{entry.schedule}: {entry.command}')}", lead, colour=colour)
        changes = [line(f"{field.field}: {field.old} → {field.new}") for field in entry.fields]
        for text in (*changes, *_due_times(entry, now, removed=each.kind is AlterationKind.REMOVED)):
            write_line(text, "    ")


def _due_times(entry: Entry, now: datetime, *, removed: bool = False) -> list[str]:
    """The next due times in one line; of a removed job, those that will not run."""
    if entry.paused and not removed:
        return ["paused, and stays paused"]
    if not entry.next:
        return []
    first, *rest = entry.next
    times = ", ".join([f"{full(first)} ({relative(first, now)})", *map(full, rest)])
    return [f"{'no longer' if removed else 'next'} {times}"]
