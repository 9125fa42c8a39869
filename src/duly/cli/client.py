"""Asking the store: a scheduler opened as a client for one question. It needs none of the user's code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from duly.cli.options import namespace
from duly.cli.settings import read_settings
from duly.errors import ConfigurationError

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from duly.backends.address import Address
    from duly.model import SchedulerConfig
    from duly.scheduler import Scheduler

T = TypeVar("T")


def ask(
    url: str | None,
    question: Callable[[Scheduler], Awaitable[T]],
    *,
    named: str | None = None,
    creates: bool = False,
) -> T:
    """Open the store, ask, close it. `url` is what the command line says, if it says something.

    `named` is the namespace that is meant where the command line names none. A file that does not exist is an error,
    unless the command `creates` something in it.
    """
    import asyncio  # noqa: PLC0415  # commands are listed and helped without it

    from duly.model import SchedulerConfig  # noqa: PLC0415

    settings = read_settings()
    chosen = namespace() or named or settings.namespace or SchedulerConfig().namespace
    address = address_of(url)
    missing = missing_file(address.store)
    if missing is not None and not creates:
        raise ConfigurationError(
            f"there is no file {missing}: `duly run` makes it; give another store with --url or DULY_URL"
        )

    # What a command changes is published like what others change, where somebody may follow it.
    config = SchedulerConfig(
        namespace=chosen,
        publish_events=settings.publish_events is not False,
        keep_events=settings.keep_events or SchedulerConfig().keep_events,
        audit_key=settings.audit_key,
    )

    async def conversation() -> T:
        async with _scheduler(address, config).client() as scheduler:
            return await question(scheduler)

    return asyncio.run(conversation())


async def store_time(scheduler: Scheduler) -> datetime:
    """What time it is for the store: this machine's clock decides nothing."""
    return (await scheduler.opened()).clock.now()


def ask_with_time(url: str | None, question: Callable[[Scheduler], Awaitable[T]]) -> tuple[T, datetime]:
    """Ask, and the store's time: for answers that say how long ago something was."""

    async def both(scheduler: Scheduler) -> tuple[T, datetime]:
        return await question(scheduler), await store_time(scheduler)

    return ask(url, both)


def _scheduler(address: Address, config: SchedulerConfig) -> Scheduler:
    from duly.scheduler import Scheduler  # noqa: PLC0415

    return Scheduler(address.store, config, queue=address.queue, coordinator=address.coordinator)


def address_of(url: str | None) -> Address:
    """The store that is meant, and its parts: the flag's, the environment's, the file's, or the default one."""
    from duly.scheduler.store_address import StoreAddress  # noqa: PLC0415

    if url is not None:
        return StoreAddress(url).address()
    said = read_settings()
    return StoreAddress(said.url, store=said.store, queue=said.queue, coordinator=said.coordinator).address()


def store_address(url: str | None) -> str:
    """The store alone, where what is beside it does not matter."""
    return address_of(url).store


def missing_file(address: str) -> Path | None:
    """The file of an embedded store, if it does not exist: looking at it must not create it."""
    if not address.startswith("sqlite:"):
        return None
    from duly.backends.sqlite.files import parse  # noqa: PLC0415

    path = parse(address).path
    return None if path.exists() else path
