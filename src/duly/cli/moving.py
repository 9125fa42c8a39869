"""`duly export`, `import` and `copy`: backups, restores, and moving to another store."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from duly.cli.client import actor, address_of
from duly.cli.options import command, duration, namespace, namespace_option, store_option
from duly.cli.output import write_line
from duly.cli.settings import read_settings
from duly.errors import ConfigurationError, DulyError
from duly.rules.redaction import redacted

if TYPE_CHECKING:
    from duly.backends.address import Address
    from duly.ports import Backend

T = TypeVar("T")

_STANDARD = "-"


@command(
    "duly export backup.duly --url postgresql://jobs.internal/duly",
    "duly export - --logs | ssh vault.internal 'cat > duly-backup'",
)
@click.argument("file", metavar="FILE")
@click.option("--logs", is_flag=True, help="Include the audit log, events and outages.")
@click.option("--secrets", is_flag=True, help="Include the hashes of API tokens, and keys.")
@click.option("--freeze", is_flag=True, help="Let no run start meanwhile: for an exact copy of a Redis store.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@store_option
def export(file: str, logs: bool, secrets: bool, freeze: bool, force: bool, url: str | None) -> None:
    """Write everything in the store to FILE, or to standard output if it is -, while nodes work.

    Jobs with their cursors, queues, waiting and running runs, history and settings. The file contains payloads and
    results as they are: only its owner can read it.
    """
    if file == _STANDARD and sys.stdout.isatty():
        raise ConfigurationError("an export is binary: redirect standard output, or name a file")
    if file != _STANDARD and not force and os.path.lexists(file):
        raise ConfigurationError(f"{file} exists: choose another name, or replace it with --force")

    async def write(backend: Backend) -> Any:
        from duly.moving import export_store  # noqa: PLC0415

        with _written(file) as out, _progress("exported") as progress:
            return await export_store(
                backend, _namespace(), out, logs=logs, secrets=secrets, freeze=freeze, progress=progress
            )

    done = _with_store(_existing(address_of(url)), write)
    click.echo(f"exported {_summary(done.counts)}", err=True)
    if done.damaged:
        shown = ", ".join(done.damaged[:3])
        click.echo(f"{len(done.damaged)} records cannot be read and are left out: {shown}", err=True)
    if not done.exact and not freeze:
        click.echo("the store worked meanwhile, so this is not one moment: see --freeze", err=True)


@command(
    "duly import backup.duly --url sqlite:///restored.db",
    "duly import backup.duly --url redis://cache.internal/1 --namespace restored",
    name="import",
)
@click.argument("file", metavar="FILE")
@store_option
def import_(file: str, url: str | None) -> None:
    """Load an export from FILE, or from standard input if it is -, into an empty store of any kind.

    Runs that were running wait again (at_most_once: they are lost). Schedules continue where they were: due times that
    have passed since are missed ones, for which the job's misfire policy decides. Nodes refuse to start on the store
    until everything is loaded; after an interruption, import again.
    """

    async def load(backend: Backend) -> Any:
        from duly.moving import import_file  # noqa: PLC0415

        with _read(file) as source, _progress("imported") as progress:
            done = await import_file(backend, source, file, progress=progress)
        await _record(backend, "import", {"source": done.header.source, "at": done.header.at, "counts": done.counts})
        return done

    if file != _STANDARD:
        _verify(file)
    done = _with_store(address_of(url), load, migrates=False)
    write_line(f"imported {_summary(done.counts)}, as of {done.header.at:%Y-%m-%d %H:%M:%S} UTC")


@command(
    "duly copy sqlite:///duly.db postgresql://jobs.internal/duly",
    "duly copy redis://old.internal redis://new.internal --wait 10m",
    "duly copy --abort sqlite:///duly.db",
)
@click.argument("source", metavar="A")
@click.argument("target", metavar="B", required=False)
@click.option(
    "--wait",
    type=duration,
    default="15s",
    show_default=True,
    metavar="DURATION",
    help="How long running handlers have to end. Those that take longer run again in B.",
)
@click.option("--abort", is_flag=True, help="Let A work again after an interrupted copy, or go back to it.")
@namespace_option("The namespace in both stores.")
def copy(source: str, target: str | None, wait: float, abort: bool) -> None:
    """Move everything from store A to the empty store B while nodes work, and mark A as moved.

    Copies while A works. Then lets no run start, waits for running handlers, copies what has changed, and compares both
    stores: for these seconds submissions wait or are refused. From then on every call to A raises StoreMoved with the
    address of B. Nodes with DULY_FOLLOW=1 go on there, others stop. If the copy fails, A goes on as before.
    """
    if abort:
        _abort(source, target)
        return
    if target is None:
        raise click.UsageError("missing argument 'B': the store to move to")
    done = _copy(source, target, wait)
    if done is None:
        write_line(f"{redacted(source)} had moved already: {redacted(target)} is open now")
        return
    waiting, ended = sum(done.unfinished.values()), sum(done.ended.values())
    write_line(f"moved {waiting} unfinished and {ended} ended runs to {redacted(target)}")
    if done.running:
        click.echo(
            f"{done.running} were still running: they run again, or are lost if they may start only once", err=True
        )


def _abort(source: str, target: str | None) -> None:
    if target is not None:
        raise click.UsageError("--abort takes one store: the one that works again")

    async def reopen(backend: Backend) -> Any:
        from duly.moving import reopen_store  # noqa: PLC0415

        return await reopen_store(backend)

    mark = _with_store(_existing(address_of(source)), reopen, migrates=False)
    was = "" if mark is None or not mark.address else f"; stop all nodes of {mark.address}, and do not use it any more"
    write_line(f"{redacted(source)} works again{was}")


def _copy(source: str, target: str, wait: float) -> Any:
    """Move a store; None if it had moved, and only the target had to be opened."""
    here, there = _existing(address_of(source)), address_of(target)

    async def finish(backend: Backend) -> bool:
        from duly.moving import finish_copy  # noqa: PLC0415

        async with _opened(there, migrates=False) as other:
            return await finish_copy(backend, other, _reachable(other.url))

    async def move(backend: Backend) -> Any:
        from duly.moving import copy_store  # noqa: PLC0415

        async with _opened(there, migrates=False) as other:
            with _progress("copied") as progress:
                done = await copy_store(backend, other, _reachable(other.url), wait=wait, progress=progress)
            await _record(other, "copy", {"source": backend.url, "unfinished": sum(done.unfinished.values())})
            return done

    return None if _with_store(here, finish, migrates=False) else _with_store(here, move)


# --- stores


def _namespace() -> str:
    from duly.model import SchedulerConfig  # noqa: PLC0415

    return namespace() or read_settings().field("namespace") or SchedulerConfig().namespace


def _opened(address: Address, *, migrates: bool = True) -> Backend:
    """The backend of an address, not yet opened."""
    from duly.backends.address import open_address  # noqa: PLC0415
    from duly.ports import Opening  # noqa: PLC0415

    return open_address(address, Opening(_namespace(), migrates=migrates))


def _with_store(address: Address, work: Callable[[Backend], Awaitable[T]], *, migrates: bool = True) -> T:
    import asyncio  # noqa: PLC0415  # the help of commands needs none of these

    async def open_and_work() -> T:
        async with _opened(address, migrates=migrates) as backend:
            return await work(backend)

    return asyncio.run(open_and_work())


def _reachable(url: str) -> str:
    """The address of a store for processes in other directories."""
    if not url.startswith("sqlite:"):
        return redacted(url)
    from duly.backends.sqlite.files import parse  # noqa: PLC0415

    return f"sqlite:///{parse(url).path.resolve()}"


def _existing(address: Address) -> Address:
    """The address, unless it is that of a file that does not exist."""
    from duly.cli.client import missing_file  # noqa: PLC0415

    missing = missing_file(address.store)
    if missing is not None:
        raise ConfigurationError(f"there is no file {missing}: give another store with --url or DULY_URL")
    return address


async def _record(backend: Backend, action: str, after: Mapping[str, Any]) -> None:
    """Record in the audit log what was done."""
    from duly.scheduler.audit import Audit  # noqa: PLC0415

    audit = Audit(backend.store, read_settings().field("audit_key"))
    await audit.record(actor(), action, "store", backend.clock.now(), after=after)


# --- files


@contextmanager
def _written(file: str) -> Iterator[BinaryIO]:
    """A file that only its owner can read, which appears under its name when it is complete."""
    if file == _STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = Path(f"{file}.partial")
    try:
        number = os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        partial.replace(file)
    except OSError as exc:
        raise DulyError(f"{file} cannot be written: {exc.strerror or exc}") from exc
    finally:
        with suppress(OSError):  # a name that is too long never existed
            partial.unlink()


@contextmanager
def _read(file: str) -> Iterator[BinaryIO]:
    if file == _STANDARD:
        yield sys.stdin.buffer
        return
    try:
        source = Path(file).open("rb")  # noqa: SIM115  # closed below; errors of the block are not those of the file
    except OSError as exc:
        raise DulyError(f"{file} cannot be read: {exc.strerror or exc}") from exc
    with source:
        yield source


def _verify(file: str) -> None:
    """Refuse a damaged file before anything is loaded."""
    from duly.moving.importing import verified  # noqa: PLC0415

    with _read(file) as source:
        verified(source, file)


@contextmanager
def _progress(verb: str) -> Iterator[Callable[[int], None] | None]:
    """Show how many records are done, on a terminal, in one line that is removed at the end."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        yield lambda done: click.echo(f"\r{verb} {done:,} records", nl=False, err=True)
    finally:
        click.echo("\r" + " " * 40 + "\r", nl=False, err=True)


def _summary(counts: Mapping[str, int]) -> str:
    """The most important numbers in words."""
    runs, jobs = counts.get("run", 0), counts.get("job", 0)
    others = sum(counts.values()) - runs - jobs
    return f"{jobs:,} jobs, {runs:,} runs and {others:,} other records"
