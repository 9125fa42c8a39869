"""Opening the store for one command, as a client that needs none of the user's code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from duly.cli.options import namespace
from duly.cli.output import Column, coloured, shown_id, write_table
from duly.cli.settings import read_settings
from duly.cli.text import full
from duly.errors import AmbiguousRun, ConfigurationError, DulyError, JobNotFound, RunNotFound

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from duly.backends.address import Address
    from duly.model import Run
    from duly.scheduler import Scheduler

T = TypeVar("T")

_SESSION = "duly.session"
_CANDIDATES = (
    Column("ID", importance=9),
    Column("JOB", wraps=True, importance=8),
    Column("STATE", importance=7),
    Column("DUE (UTC)", importance=6),
)


def ask(
    url: str | None,
    question: Callable[[Scheduler], Awaitable[T]],
    *,
    default_namespace: str | None = None,
    creates: bool = False,
) -> T:
    """Open the store, await the answer to `question`, close the store. `url` is the value of `--url`.

    `default_namespace` is used if the command line names none. A SQLite file that does not exist is an error, unless
    the command `creates` something in it.
    """
    import asyncio  # noqa: PLC0415  # the help of commands needs none of these

    from duly.model import SchedulerConfig  # noqa: PLC0415
    from duly.scheduler import Scheduler  # noqa: PLC0415

    settings = read_settings()
    address = address_of(url)
    missing = missing_file(address.store)
    if missing is not None and not creates:
        raise ConfigurationError(
            f"there is no file {missing}: `duly run` creates it; give another store with --url or DULY_URL"
        )
    defaults = SchedulerConfig()
    config = SchedulerConfig(
        namespace=namespace() or default_namespace or settings.field("namespace") or defaults.namespace,
        publish_events=settings.field("publish_events") is not False,  # what a command changes is published as well
        keep_events=settings.field("keep_events") or defaults.keep_events,
        audit_key=settings.field("audit_key"),
    )

    def make() -> Scheduler:
        return Scheduler(address.store, config, queue=address.queue, coordinator=address.coordinator)

    async def conversation() -> T:
        async with make().client() as scheduler:
            return await question(scheduler)

    kept = kept_session()
    return asyncio.run(conversation()) if kept is None else kept.ask(make, question)


class KeptSession:
    """One event loop and one opened store for all questions of a command that is repeated."""

    def __init__(self) -> None:
        import asyncio  # noqa: PLC0415

        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()
        self._scheduler: Scheduler | None = None

    def __enter__(self) -> Self:
        click.get_current_context().meta[_SESSION] = self
        return self

    def __exit__(self, *_: object) -> None:
        with self._runner, suppress(DulyError):  # the store may be away
            self._runner.run(self._open.aclose())

    def ask(self, make: Callable[[], Scheduler], question: Callable[[Scheduler], Awaitable[T]]) -> T:
        """The answer to a question. The first one opens the store."""

        async def conversation() -> T:
            if self._scheduler is None:
                self._scheduler = await self._open.enter_async_context(make().client())
            return await question(self._scheduler)

        return self._runner.run(conversation())

    def sleep(self, seconds: float) -> None:
        """Let the event loop run for some time: it serves the connections of the store."""
        import asyncio  # noqa: PLC0415

        self._runner.run(asyncio.sleep(seconds))


def kept_session() -> KeptSession | None:
    """The session that this command keeps open, if it is repeated."""
    ctx = click.get_current_context(silent=True)
    found: KeptSession | None = None if ctx is None else ctx.meta.get(_SESSION)
    return found


async def store_time(scheduler: Scheduler) -> datetime:
    """The time of the store's clock. This machine's clock may be wrong."""
    return (await scheduler.opened()).clock.now()


def ask_with_time(url: str | None, question: Callable[[Scheduler], Awaitable[T]]) -> tuple[T, datetime]:
    """The answer and the store's time, for answers that say how long ago something was."""

    async def both(scheduler: Scheduler) -> tuple[T, datetime]:
        return await question(scheduler), await store_time(scheduler)

    return ask(url, both)


def address_of(url: str | None) -> Address:
    """The address of the store and its parts: from the flag, the environment, the file, or the default."""
    from duly.scheduler.store_address import StoreAddress  # noqa: PLC0415

    if url is not None:
        return StoreAddress(url).address()
    settings = read_settings()
    return StoreAddress(
        settings.url, store=settings.store, queue=settings.queue, coordinator=settings.coordinator
    ).address()


def missing_file(address: str) -> Path | None:
    """The file of a SQLite store, if it does not exist. Commands that only read must not create it."""
    if not address.startswith("sqlite:"):
        return None
    from duly.backends.sqlite.files import parse  # noqa: PLC0415

    path = parse(address).path
    return None if path.exists() else path


# --- runs by shortened ids


async def find_run(scheduler: Scheduler, text: str) -> Run:
    """The run with this id, or the only one whose id begins or ends with it; of several, the candidates are listed."""
    try:
        return await (await scheduler.opened()).find_run(text)
    except AmbiguousRun as exc:
        rows = [(shown_id(run.id), run.job, coloured(run.state.value), full(run.due)) for run in exc.candidates]
        write_table(_CANDIDATES, rows, err=True)
        raise


async def find_instead(scheduler: Scheduler, text: str, missing: JobNotFound) -> Run:
    """The run whose id ends with a text that names no job; if there is none either, the job is missing."""
    try:
        return await find_run(scheduler, text)
    except AmbiguousRun:
        raise
    except RunNotFound:
        raise missing from None


# --- the audit log


def actor() -> str:
    """The user of this command, for the audit log."""
    import getpass  # noqa: PLC0415
    import socket  # noqa: PLC0415

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # the user of a container may have a number and no name
        user = "somebody"
    return f"cli {user}@{socket.gethostname()}"


async def record_action(scheduler: Scheduler, action: str, target: str, before: Any = None, after: Any = None) -> None:
    """Record in the audit log what a command has changed."""
    client = await scheduler.opened()
    await client.audit.record(actor(), action, target, client.clock.now(), before, after)
