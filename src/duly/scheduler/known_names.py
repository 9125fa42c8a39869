"""The jobs and handlers that the store and the live nodes know, to say whether a name is one, and which was meant.

Only a name that is not known causes a search for similar ones, and that reads a bounded number of jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duly.errors import BackendUnavailable, JobNotFound, shown
from duly.model import JobStatus, is_job_name
from duly.ports import JobStore
from duly.rules.suggestions import nearest

if TYPE_CHECKING:
    from duly.scheduler.client import Client

_READ = 500  # jobs


async def no_such_job(store: JobStore, name: object) -> JobNotFound:
    """The error for a job that does not exist, with the name of a similar one."""
    near = await _similar_job(store, name) if isinstance(name, str) else None
    if near is None:
        return JobNotFound(f"there is no job {shown(name)}: register it, or see `duly jobs`")
    return JobNotFound(f"there is no job {shown(name)}: did you mean {near}? See `duly jobs`", near=near)


async def _similar_job(store: JobStore, name: str) -> str | None:
    """A similar name among the jobs that begin with the same letter, or else among the first ones."""
    for after in dict.fromkeys((name[:1] if is_job_name(name[:1]) else "", "")):
        records = await store.jobs(after=after, limit=_READ)
        near = nearest(name, [each.name for each in records if each.status is not JobStatus.REMOVED])
        if near is not None:
            return near
    return None


async def is_known_handler(client: Client, name: str) -> bool:
    """Whether a job of this process or of the store, or a live node, has this name. Names are never imported."""
    if client.knows(name) or await client.backend.store.job(name) is not None:
        return True
    return any(name in node.handlers for node in await client.backend.coordinator.nodes())


async def no_such_handler(client: Client, name: str) -> str:
    """The message for a handler that nobody knows, with the name of a similar one."""
    known = await known_handlers(client)
    near = nearest(name, known) or await _similar_job(client.backend.store, name)
    if near is not None:
        hint = f": did you mean {near}?"
    else:
        some = ", ".join(sorted(known)[:20])
        hint = f"; known are {some}" if some else "; no handlers are known yet"
    return f"handler={name!r}: no such handler is registered{hint}"


async def known_handlers(client: Client) -> set[str]:
    """The handlers of this process, of the live nodes, and of the recurring jobs in the store."""
    store = client.backend.store
    found = {*client.handlers(), *await store.handlers(retired=False), *await store.handlers(retired=True)}
    try:
        nodes = await client.backend.coordinator.nodes()
    except BackendUnavailable:  # a coordinator of its own; the store has answered
        nodes = []
    return found.union(*(node.handlers for node in nodes))
