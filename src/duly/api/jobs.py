"""Jobs: list, show and change them. Where a path has the id of a run instead of a name, the run is meant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from msgspec import UNSET

from duly.api import requests
from duly.api.calls import Call, Reply, answer
from duly.api.conditions import condition_of, refuse_unknown
from duly.api.paging import JOBS, links, start_of
from duly.api.problems import Problem, not_found
from duly.api.queries import ExplainQuery, JobRunsQuery, JobsQuery, repeated
from duly.api.requests import PauseBody, TriggerBody
from duly.api.responses import accepted, explanation_answer, job_answer
from duly.api.runs import cancel_run, explain_run, get_run, page_of_runs
from duly.api.visibility import node_seen, sees_job
from duly.errors import JobNotFound
from duly.model import JobRecord, JobStatus, State, is_run_id
from duly.scheduler.job_admin import Guard, no_definition
from duly.scheduler.views import JobView

_RUN_STATES = frozenset(State)


async def list_jobs(call: Call[JobsQuery, None]) -> Reply:
    """A page of jobs by name; with the state of a run as status, a page of runs."""
    query = call.query
    states = tuple(State(each) for each in query.status if each in _RUN_STATES)
    if states and len(states) == len(query.status):
        return await page_of_runs(call, query.runs(states), repeated(query))
    if states:
        raise Problem(422, "invalid", "status: states of runs and of jobs cannot be mixed", pointer="/status")
    client = await call.context.client()
    start = await start_of(call, JOBS, query.cursor) or ""
    views, following = await client.definitions.page(start, query.limit, removed=JobStatus.REMOVED in query.status)
    seen = [job_answer(view) for view in views if _matches(view, query) and sees_job(call.principal, view)]
    return answer(seen, headers=await links(call, JOBS, repeated(query), following))


def _matches(view: JobView, query: JobsQuery) -> bool:
    due = view.next_run_at
    return (
        (not query.status or view.status in query.status)
        and all(getattr(query, name) in (None, getattr(view, name)) for name in ("name", "handler", "queue"))
        and (query.tag is None or query.tag in view.tags)
        and (query.due_from is None or (due is not None and due >= query.due_from))
        and (query.due_until is None or (due is not None and due <= query.due_until))
    )


async def explain_job(call: Call[ExplainQuery, None]) -> Reply:
    """Why a run did or did not happen at a time, or at the nearest due time; or the state of a run explained."""
    if is_run_id(call.name):
        return await explain_run(call)
    view = await find_job(call)
    client, seen = await call.context.client(), partial(node_seen, call.principal)
    return answer(explanation_answer(await client.explainer.instant(view.name, call.query.at, seen)))


async def find_job(call: Call[Any, Any]) -> JobView:
    """The job in the path. A job that the caller may not see is not found."""
    try:
        view = await call.context.scheduler.get_job(call.name)
    except JobNotFound as exc:  # a similar name is told only to callers who may see every job
        raise not_found("job", call.name, None if call.principal.limited else exc.near) from None
    if not sees_job(call.principal, view):
        raise not_found("job", call.name)
    return view


@contextmanager
def same_not_found(call: Call[Any, Any]) -> Iterator[None]:
    """The same error for a job that does not exist and for one that the caller may not see."""
    try:
        yield
    except JobNotFound:
        raise not_found("job", call.name) from None


class JobGuard:
    """Refuses a change of a job that the caller may not see, or that does not match the call's condition."""

    def __init__(self, call: Call[Any, Any]) -> None:
        self._call = call
        self._condition = condition_of(call.headers)

    def __call__(self, record: JobRecord | None) -> None:
        if record is None or not sees_job(self._call.principal, record.spec):
            raise not_found("job", self._call.name)
        self._condition.check(record.name, record.revision)


async def get_job(call: Call[Any, None]) -> Reply:
    """A job, or a run by its id."""
    if _is_run(call.name):
        return await get_run(call)
    view = await find_job(call)
    return answer(job_answer(view), headers=((b"etag", b'"%d"' % view.revision),))


def _is_run(name: str) -> bool:
    """Ids of runs begin with a digit, names of jobs do not."""
    return name[:1].isdigit()


async def runs_of_job(call: Call[JobRunsQuery, None]) -> Reply:
    """A page of a job's runs, the newest first."""
    view = await find_job(call)
    return await page_of_runs(call, call.query.runs(view.name), repeated(call.query))


async def pause(call: Call[None, PauseBody]) -> Reply:
    """Stop planning and starting a job's runs until it is resumed."""
    definitions = (await call.context.client()).definitions
    return await _change(call, "pause", lambda guard: definitions.pause(call.name, call.body.note, guard))


async def resume(call: Call[None, None]) -> Reply:
    """Resume a paused job."""
    definitions = (await call.context.client()).definitions
    return await _change(call, "resume", lambda guard: definitions.resume(call.name, guard))


async def _change(call: Call[None, Any], action: str, change: Callable[[Guard], Awaitable[JobRecord]]) -> Reply:
    before, guard = await find_job(call), JobGuard(call)
    with same_not_found(call):
        await change(guard)
    after = await find_job(call)
    if after.revision != before.revision:
        was, is_now = ({"status": view.status, "note": view.note} for view in (before, after))
        await call.record(action, f"job {before.name}", was, is_now)
    return answer(job_answer(after), headers=((b"etag", b'"%d"' % after.revision),))


async def restore(call: Call[None, None]) -> Reply:
    """Plan a removed job again, if the store still has its definition."""
    condition = condition_of(call.headers)

    def guard(record: JobRecord | None) -> None:
        if record is None or not sees_job(call.principal, record.spec):
            raise Problem(404, "not-found", no_definition(call.name))
        condition.check(record.name, record.revision)

    call.context.scheduler.refuse_if_frozen(f"restoring {call.name!r}")
    await (await call.context.client()).definitions.restore(call.name, guard)
    after = await find_job(call)
    await call.record("restore", f"job {after.name}", after={"status": after.status, "revision": after.revision})
    return answer(job_answer(after), headers=((b"etag", b'"%d"' % after.revision),))


async def trigger(call: Call[None, TriggerBody]) -> Reply:
    """Run a job now."""
    client = await call.context.client()
    view, guard = await find_job(call), JobGuard(call)
    with same_not_found(call):
        guard(await client.definitions.record(view.name))  # a refused call does not count against the rate
    await call.context.limits(client).count_submissions(client.backend.store, {view.handler: 1})
    payload = None if call.body.payload is UNSET else requests.arguments(call.body.payload)
    with same_not_found(call):
        put = await client.submitter.trigger(view.name, payload, guard)
    await call.record("trigger", f"job {view.name}", after={"run": put.id})
    return answer(accepted(put.id, put.created_at), 201, (call.location(f"/runs/{put.id}"),))


async def remove(call: Call[None, None]) -> Reply:
    """Remove a job and cancel its waiting runs; with the id of a run, cancel that run."""
    if _is_run(call.name):
        refuse_unknown(call.headers, ())  # a run has no revisions
        await cancel_run(call, None)
        return Reply(204, b"")
    view, guard = await find_job(call), JobGuard(call)
    call.context.scheduler.refuse_if_frozen(f"removing {view.name!r}")
    with same_not_found(call):
        await (await call.context.client()).definitions.remove(view.name, guard)
    await call.record("remove", f"job {view.name}", before={"status": view.status, "revision": view.revision})
    return Reply(204, b"")
