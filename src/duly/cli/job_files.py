"""`duly check` and `duly apply`: a file of jobs, by itself and against what is in the store."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from duly.cli import audit_actions
from duly.cli.client import ask, store_address, store_time
from duly.cli.operate import can_ask
from duly.cli.options import command, json_option, store_option
from duly.cli.output import BAD, GOOD, WARN, write_block, write_json
from duly.cli.words import full, line, relative
from duly.errors import ConfigurationError
from duly.job_files import JobFile, JobFileError, read_file
from duly.model import JobSpec
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


class Entry(Struct, frozen=True):
    """One job of the answer: what it is, when it is due, and what changes."""

    name: str
    schedule: str
    command: str
    next: tuple[datetime, ...]
    paused: bool = False
    fields: tuple[FieldChange, ...] = ()


def load(path: str) -> JobFile:
    """A file that is in order. All that is wrong is written to standard error, and the command ends with code 2."""
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


@command("duly check jobs.toml", "duly check jobs.toml -n 10", "duly check jobs.toml --json")
@click.argument("file")
@click.option("-n", "--count", type=click.IntRange(1, 100), default=_NEXT, show_default=True, help="How many instants.")
@json_option
def check(file: str, count: int, as_json: bool) -> None:
    """Check FILE without a store, and show when its jobs are due. All errors are told at once, with their lines."""
    now = datetime.now(UTC)
    found = load(file)
    entries = [_entry(spec, now, count) for spec in found.jobs]
    if as_json:
        write_json({**_names(found), "jobs": entries})
        return
    click.echo(f"{file} is in order: job file {found.name}, {_jobs(len(entries))}")
    for entry in entries:
        write_block(entry.name, [f"{entry.schedule}: {line(entry.command)}", *_instants(entry, now)])


@command("duly apply jobs.toml --dry-run", "duly apply jobs.toml", "duly apply jobs.toml --yes --url redis://cache")
@click.argument("file")
@click.option("--dry-run", is_flag=True, help="Only show the difference.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_option
@json_option
def apply(file: str, dry_run: bool, yes: bool, url: str | None, as_json: bool) -> None:
    """Bring the store in line with FILE: add, change and remove the jobs of this file, and no others.

    The difference is shown first; on a terminal you are asked. Pauses, history and what runs are kept. Whichever file
    stood before, this one does from then on.
    """
    found = load(file)
    where = url or found.url
    compared, now = _ask(where, found, lambda scheduler: _compared(scheduler, found))
    lost: list[str] = []
    if not as_json:
        _write(compared, redacted(store_address(where)), now)
    _refuse_clashes(compared)
    if not dry_run:
        if compared.alterations and not yes and can_ask():
            click.confirm("Apply this?", abort=True, err=True)
        lost = _ask(where, found, lambda scheduler: _apply(scheduler, compared))
    if as_json:
        write_json(_document(compared, lost, now, applied=not dry_run))
    elif compared.alterations and not lost:
        click.echo("nothing was changed: --dry-run" if dry_run else "applied")
    if lost:
        names = ", ".join(lost)
        raise ConfigurationError(f"{names}: somebody else changed that meanwhile; look again with duly apply {file}")


async def _compared(scheduler: Scheduler, job_file: JobFile) -> tuple[Difference, datetime]:
    return await scheduler.compare(job_file), await store_time(scheduler)


async def _apply(scheduler: Scheduler, compared: Difference) -> list[str]:
    (await scheduler.opened()).job_files.actor = audit_actions.actor()
    return await scheduler.apply(compared)


def _ask(url: str | None, file: JobFile, question: Any) -> Any:
    return ask(url, question, named=file.settings.get("namespace"))


def _refuse_clashes(found: Difference) -> None:
    if found.clashes:
        raise ConfigurationError("; ".join(found.clash_words()))


# --- what is told


def _entry(spec: JobSpec, now: datetime, count: int, **more: Any) -> Entry:
    due = () if spec.schedule is None else tuple(from_spec(spec.schedule).preview(count, after=now))
    return Entry(spec.name, schedule_words(spec.schedule), str(spec.command), due, **more)


def _altered(each: Alteration, now: datetime) -> Entry:
    spec = each.after or (each.before.spec if each.before else None)
    assert spec is not None
    paused = each.before is not None and each.before.paused is not None
    return _entry(spec, now, _NEXT, paused=paused, fields=each.fields)


def _document(found: Difference, lost: Iterable[str], now: datetime, *, applied: bool) -> dict[str, Any]:
    altered = {kind.value: [_altered(each, now) for each in found.of(kind)] for kind in AlterationKind}
    return {
        **_names(found.job_file),
        "applied": applied,
        **altered,
        "unchanged": [record.name for record in found.unchanged],
        "lost": list(lost),
    }


def _names(file: JobFile) -> dict[str, str]:
    """The name of the file, and `fleet` as its deprecated key."""
    return {"job_file": file.name, "fleet": file.name}


def _write(found: Difference, where: str, now: datetime) -> None:
    counts = ", ".join(f"{len(found.of(kind))} {kind.value}" for kind in AlterationKind)
    click.echo(f"job file {found.job_file.name} on {where}: {counts}, {len(found.unchanged)} unchanged")
    for each in found.alterations:
        sign, colour = _SIGNS[each.kind]
        entry = _altered(each, now)
        click.secho(f"{sign} {entry.name}: {line(f'{entry.schedule}: {entry.command}')}", fg=colour)
        for text in (*_changes(entry), *_instants(entry, now, gone=each.kind is AlterationKind.REMOVED)):
            click.echo(f"    {text}")


def _changes(entry: Entry) -> list[str]:
    return [line(f"{each.field}: {each.old} → {each.new}") for each in entry.fields]


def _instants(entry: Entry, now: datetime, *, gone: bool = False) -> list[str]:
    """The next runs in one line; or the ones that will not be."""
    if entry.paused and not gone:
        return ["paused, and stays so"]
    if not entry.next:
        return []
    first, *rest = entry.next
    told = ", ".join([f"{full(first)} ({relative(first, now)})", *map(full, rest)])
    return [f"{'no longer' if gone else 'next'} {told}"]


def _jobs(number: int) -> str:
    return f"{number} job{'s'[: number != 1]}"
