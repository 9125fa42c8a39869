"""Job files: `duly check` and `duly apply`, and the program that `duly run jobs.toml` runs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from duly.cli.client import actor, address_of, ask, store_time
from duly.cli.confirming import can_ask, yes_option
from duly.cli.options import command, json_option, store_option
from duly.cli.output import BAD, GOOD, WARN, write_block, write_json, write_line
from duly.cli.text import full, line, relative
from duly.errors import ConfigurationError, DulyError
from duly.job_files import JobFile, JobFileError, read_file
from duly.model import JobSpec, SchedulerConfig
from duly.rules.definition_words import FieldChange, schedule_words
from duly.rules.forecast import Forecast, forecasts
from duly.rules.job_files import Alteration, AlterationKind, Difference
from duly.rules.redaction import redacted
from duly.rules.schedules import from_spec

if TYPE_CHECKING:
    from duly.scheduler import Scheduler

_NEXT = 3
_SHOWN = 50  # changed jobs that are shown one by one
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
        from duly.runtime.notify.tables import targets_of  # noqa: PLC0415  # `duly check` needs none of these
        from duly.scheduler import Scheduler  # noqa: PLC0415

        self._file = file
        defaults = {} if namespace is None else {"namespace": namespace}
        config = SchedulerConfig(allow_commands="stored", **{**defaults, **file.settings})
        targets = targets_of(file.notify, Path(file.path).parent) if file.notify else None
        self.scheduler = Scheduler(file.url, config, notify=targets)

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
            if (file.url, file.settings, file.notify) != (self._file.url, self._file.settings, self._file.notify):
                _log.warning("%s: the url and the settings of the node changed: restart the node to use them", path)
            self._file = file

    def _refuse_rename(self, file: JobFile) -> None:
        """Under another name, no file would own the old jobs."""
        if file.name != self._file.name:
            raise DulyError(f"the name {self._file.name!r} is now {file.name!r}: restart the node to use it")


# --- duly check, duly apply


class Entry(Struct, frozen=True):
    """One job of the answer: its definition, its next due times, the fields that change, and its runs of 30 days.

    `runs` is None where nothing is compared, or where the file changes too many jobs.
    """

    name: str
    schedule: str
    command: str
    next: tuple[datetime, ...]
    paused: bool = False
    fields: tuple[FieldChange, ...] = ()
    runs: Forecast | None = None


@command(
    "duly check jobs.toml",
    "duly check jobs.toml -n 10",
    "duly check jobs.toml --diff",
    "duly check jobs.toml --url redis://cache",
)
@click.argument("file")
@click.option("-n", "--count", type=click.IntRange(1, 100), default=_NEXT, show_default=True, help="How many times.")
@click.option("--diff", is_flag=True, help="Compare it with the store, as duly apply --dry-run does.")
@store_option
@json_option
def check(file: str, count: int, diff: bool, url: str | None, as_json: bool) -> None:
    """Check FILE without a store, and show when its jobs are due. All errors are shown at once, with their lines.

    With --diff or --url, compare it with a store instead: what `duly apply` would change, and which runs of the next 30
    days would appear, vanish or move.
    """
    if diff or url is not None:
        _apply_file(file, url, as_json, dry_run=True, yes=False)
        return
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
@yes_option
@store_option
@json_option
def apply(file: str, dry_run: bool, yes: bool, url: str | None, as_json: bool) -> None:
    """Write the jobs of FILE to the store: add, change and remove the jobs of this file, and no others.

    The difference is shown first, with the runs of the next 30 days that appear, vanish or move; on a terminal you are
    asked to confirm it. Pauses, history and running runs are kept. FILE is in force from then on, even if a newer
    version of it was applied before.
    """
    _apply_file(file, url, as_json, dry_run=dry_run, yes=yes)


def _apply_file(file: str, url: str | None, as_json: bool, *, dry_run: bool, yes: bool) -> None:
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


def _altered(found: Difference, now: datetime) -> list[tuple[Alteration, Entry]]:
    """What a file changes, as entries."""
    runs = forecasts(((each.before, each.after) for each in found.alterations), now)
    return [(each, _altered_entry(each, now, of_job)) for each, of_job in zip(found.alterations, runs, strict=True)]


def _altered_entry(each: Alteration, now: datetime, runs: Forecast | None) -> Entry:
    spec = each.after or (each.before.spec if each.before else None)
    assert spec is not None
    paused = each.before is not None and each.before.paused is not None
    return _entry(spec, now, _NEXT, paused=paused, fields=each.fields, runs=runs)


def _names(file: JobFile) -> dict[str, str]:
    """The name of the file, and `fleet` as its deprecated key."""
    return {"job_file": file.name, "fleet": file.name}


def _document(found: Difference, lost: Iterable[str], now: datetime, *, applied: bool) -> dict[str, Any]:
    entries = _altered(found, now)
    altered = {kind.value: [entry for each, entry in entries if each.kind is kind] for kind in AlterationKind}
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
    entries = _altered(found, now)
    for each, entry in entries[:_SHOWN]:
        sign, colour = _SIGNS[each.kind]
        lead = click.style(f"{sign} ", fg=colour)
        write_line(f"{entry.name}: {line(f'{entry.schedule}: {entry.command}')}", lead, colour=colour)
        changes = [line(f"{field.field}: {field.old} → {field.new}") for field in entry.fields]
        due = _due_times(entry, now, removed=each.kind is AlterationKind.REMOVED)
        for text in (*changes, *due, *_run_words(entry, now)):
            write_line(text, "    ")
    if len(entries) > _SHOWN:
        _write_rest(entries[_SHOWN:])


def _run_words(entry: Entry, now: datetime) -> tuple[str, ...]:
    """The runs of the next 30 days. Of a job without a schedule there is nothing to say."""
    if entry.runs is None:
        return ("runs of the next 30 days: not computed, because the file changes too many",)
    nothing = not entry.next and not (entry.runs.appear or entry.runs.vanish or entry.runs.move)
    return () if nothing else tuple(line(text) for text in entry.runs.words(now))


def _write_rest(entries: Sequence[tuple[Alteration, Entry]]) -> None:
    """What is not shown one by one."""
    counts = Counter(each.kind for each, _ in entries)
    jobs = ", ".join(f"{number} {kind.value}" for kind, number in counts.items())
    known = [entry.runs for _, entry in entries if entry.runs is not None]
    runs = ", ".join(f"{sum(getattr(each, what) for each in known)} {what}" for what in ("appear", "vanish", "move"))
    write_line(f"… and {len(entries)} more jobs ({jobs}), of whose runs {runs}; --json shows all")


def _due_times(entry: Entry, now: datetime, *, removed: bool = False) -> list[str]:
    """The next due times in one line; of a removed job, those that will not run."""
    if entry.paused and not removed:
        return ["paused, and stays paused"]
    if not entry.next:
        return []
    first, *rest = entry.next
    times = ", ".join([f"{full(first)} ({relative(first, now)})", *map(full, rest)])
    return [f"{'no longer' if removed else 'next'} {times}"]
