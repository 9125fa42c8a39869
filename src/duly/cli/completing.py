"""What the shell completes: names of jobs and queues, and ids of runs, from the store.

The user waits for it at the prompt. So it has a second, changes nothing in the store, and any error means that nothing
is completed.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from duly.model import JobRecord
    from duly.ports import Store

_LIMIT = 1.0  # seconds
_LAST_RESORT = 3.0  # seconds after which the process ends, whatever the store does
_MOST = 200

Question = Callable[["Store"], Awaitable[list[CompletionItem]]]


def job_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Jobs that have not been removed."""
    return _answer(ctx, lambda store: _jobs(store, incomplete, removed=False))


def removed_job_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _answer(ctx, lambda store: _jobs(store, incomplete, removed=True))


def queue_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Queues that have runs, that are paused, or that one of the first jobs uses."""

    async def found(store: Store) -> list[CompletionItem]:
        names = {*(await store.counts(scan=1000)).queues, *(job.spec.queue for job in await store.jobs(limit=_MOST))}
        return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]

    return _answer(ctx, found)


def run_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The newest runs whose ids begin so."""

    async def found(store: Store) -> list[CompletionItem]:
        from duly.model import RunQuery  # noqa: PLC0415

        page = await store.runs(RunQuery(id=incomplete or None), _MOST, scan=2000)
        return [CompletionItem(run.id, help=f"{run.job} {run.state.value}") for run in page.runs]

    return _answer(ctx, found)


def job_names_and_run_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of runs begin with a digit, names of jobs do not."""
    return (run_ids if incomplete[:1].isdigit() else job_names)(ctx, param, incomplete)


async def _jobs(store: Store, incomplete: str, *, removed: bool) -> list[CompletionItem]:
    from duly.model import JobStatus  # noqa: PLC0415

    def wanted(record: JobRecord) -> bool:
        return (record.status is JobStatus.REMOVED) is removed and record.name.startswith(incomplete)

    records = await store.jobs(after=_before(incomplete), limit=_MOST)
    return [CompletionItem(each.name, help=each.spec.description or None) for each in records if wanted(each)]


def _before(incomplete: str) -> str:
    """A text after all names that come before those that begin so."""
    return f"{incomplete[:-1]}{chr(max(1, ord(incomplete[-1]) - 1))}~" if incomplete else ""


def _answer(ctx: click.Context, question: Question) -> list[CompletionItem]:
    try:
        with ctx.scope(cleanup=False), redirect_stderr(io.StringIO()), _last_resort():
            return _ask(ctx.params.get("url"), question)
    except Exception:  # noqa: BLE001  # a traceback at the prompt helps nobody; the command itself will say what is wrong
        return []


def _ask(url: str | None, question: Question) -> list[CompletionItem]:
    import asyncio  # noqa: PLC0415

    from duly.backends import open_backend  # noqa: PLC0415
    from duly.cli.client import address_of, missing_file  # noqa: PLC0415
    from duly.cli.options import namespace  # noqa: PLC0415
    from duly.cli.settings import read_settings  # noqa: PLC0415
    from duly.model import SchedulerConfig  # noqa: PLC0415
    from duly.ports import Opening  # noqa: PLC0415

    address = address_of(url).store
    if missing_file(address) is not None:
        return []
    opening = Opening(namespace() or read_settings().field("namespace") or SchedulerConfig().namespace, migrates=False)

    async def conversation() -> list[CompletionItem]:
        async with open_backend(address, opening) as backend:
            return await question(backend.store)

    return asyncio.run(asyncio.wait_for(conversation(), _LIMIT))


@contextmanager
def _last_resort() -> Iterator[None]:
    """End the process if it does not come back: a driver may block, and the prompt with it."""
    timer = threading.Timer(_LAST_RESORT, os._exit, (0,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
