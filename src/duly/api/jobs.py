"""Jobs: listing them, looking at one, operating them. A run's id in the place of a name answers that run."""

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
from duly.api.queries import ExplainQuery, JobRunsQuery, JobsQuery, RunsQuery, repeated
from duly.api.requests import PauseBody, TriggerBody
from duly.api.responses import accepted, explanation_answer, job_answer
from duly.api.runs import cancel_run, explain_run, get_run, page_of_runs
from duly.api.visibility import node_seen, sees_job
from duly.errors import JobNotFound
from duly.model import JobRecord, JobStatus, State, is_run_id
from duly.scheduler.job_admin import Guard
from duly.scheduler.views import JobView

_RUN_STATES = frozenset(State)


async def list_jobs(call: Call[JobsQuery, None]) -> Reply:
    """A page of jobs by name; with the state of a run as status, a page of runs."""
    query = call.query
    states = tuple(State(each) for each in query.status if each in _RUN_STATES)
    if states and len(states) == len(query.status):
        return await page_of_runs(call, _runs_query(query, states), repeated(query))
    if states:
        raise Problem(422, "invalid", "status: states of runs and of jobs cannot be mixed", pointer="/status")
    client = await call.context.client()
    start = await start_of(call, JOBS, query.cursor) or ""
    views, following = await client.definitions.page(start, query.limit, removed=JobStatus.REMOVED in query.status)
    seen = [job_answer(view) for view in views if _matches(view, query) and sees_job(call.principal, view)]
    return answer(seen, headers=await links(call, JOBS, repeated(query), following))


def _runs_query(query: JobsQuery, states: tuple[State, ...]) -> RunsQuery:
    return RunsQuery(
        status=states,
        job=query.name,
        handler=query.handler,
        queue=query.queue,
        tag=query.tag,
        due_from=query.due_from,
        due_until=query.due_until,
        limit=query.limit,
        cursor=query.cursor,
    )


def _matches(view: JobView, query: JobsQuery) -> bool:
    due = view.next_run_at
    return (
        (not query.status or view.status in query.status)
        and (query.name is None or view.name == query.name)
        and (query.handler is None or view.handler == query.handler)
        and (query.queue is None or view.queue == query.queue)
        and (query.tag is None or query.tag in view.tags)
        and (query.due_from is None or (due is not None and due >= query.due_from))
        and (query.due_until is None or (due is not None and due <= query.due_until))
    )


async def explain_job(call: Call[ExplainQuery, None]) -> Reply:
    """Why the run of a moment did or did not happen, or of the nearest instant; or why a run is as it is."""
    if is_run_id(call.name):
        return await explain_run(call)
    view = await the_job(call)
    client, seen = await call.context.client(), partial(node_seen, call.principal)
    return answer(explanation_answer(await client.explainer.instant(view.name, call.query.at, seen)))


async def the_job(call: Call[Any, Any]) -> JobView:
    """The job that the path names; one that the caller may not see does not exist."""
    with _missing(call):
        view = await call.context.scheduler.get_job(call.name)
    if not sees_job(call.principal, view):
        raise not_found("job", call.name)
    return view


@contextmanager
def _missing(call: Call[Any, Any]) -> Iterator[None]:
    """The same words for a job that is not there as for one that the caller may not see."""
    try:
        yield
    except JobNotFound:
        raise not_found("job", call.name) from None


class _Guard:
    """Lets a change of a job pass if the caller may see what it changes, and the call's condition is fulfilled."""

    def __init__(self, call: Call[Any, Any]) -> None:
        self._call = call
        self._condition = condition_of(call.headers)

    def __call__(self, record: JobRecord | None) -> None:
        if record is None or not sees_job(self._call.principal, record.spec):
            raise not_found("job", self._call.name)
        self._condition.check(record.name, record.revision)


async def get_job(call: Call[Any, None]) -> Reply:
    """A job as it stands, or a submitted one: a run."""
    if _is_run(call.name):
        return await get_run(call)
    view = await the_job(call)
    return answer(job_answer(view), headers=((b"etag", b'"%d"' % view.revision),))


def _is_run(name: str) -> bool:
    """Ids of runs begin with a digit, names of jobs never do."""
    return name[:1].isdigit()


async def runs_of_job(call: Call[JobRunsQuery, None]) -> Reply:
    """A page of a job's runs, newest first."""
    query, view = call.query, await the_job(call)
    wanted = RunsQuery(
        status=query.status,
        job=view.name,
        due_from=query.due_from,
        due_until=query.due_until,
        limit=query.limit,
        cursor=query.cursor,
    )
    return await page_of_runs(call, wanted, repeated(query))


async def pause(call: Call[None, PauseBody]) -> Reply:
    """Neither plan nor start a job's runs until it is resumed."""
    definitions = (await call.context.client()).definitions
    return await _changed(call, "pause", lambda guard: definitions.pause(call.name, call.body.note, guard))


async def resume(call: Call[None, None]) -> Reply:
    """Let a paused job go on."""
    definitions = (await call.context.client()).definitions
    return await _changed(call, "resume", lambda guard: definitions.resume(call.name, guard))


async def _changed(call: Call[None, Any], action: str, change: Callable[[Guard], Awaitable[JobRecord]]) -> Reply:
    before, guard = await the_job(call), _Guard(call)
    with _missing(call):
        await change(guard)
    after = await the_job(call)
    if after.revision != before.revision:
        was, is_now = ({"status": view.status, "note": view.note} for view in (before, after))
        await call.note(action, f"job {before.name}", was, is_now)
    return answer(job_answer(after), headers=((b"etag", b'"%d"' % after.revision),))


async def trigger(call: Call[None, TriggerBody]) -> Reply:
    """Run a job once more, now."""
    client = await call.context.client()
    view, guard = await the_job(call), _Guard(call)
    with _missing(call):
        guard(await client.definitions.record(view.name))  # before anything is counted
    await (await call.context.limits()).count_submissions(client.backend.store, {view.handler: 1})
    payload = None if call.body.payload is UNSET else requests.arguments(call.body.payload)
    with _missing(call):
        put = await client.submitter.trigger(view.name, payload, guard)
    await call.note("trigger", f"job {view.name}", after={"run": put.id})
    return answer(accepted(put.id, put.created_at), 201, (call.location(f"/runs/{put.id}"),))


async def remove(call: Call[None, None]) -> Reply:
    """Stop planning a job and cancel its waiting runs; a submitted one, a run, is cancelled."""
    if _is_run(call.name):
        refuse_unknown(call.headers, ())  # a run has no revisions
        await cancel_run(call, None)
        return Reply(204, b"")
    view, guard = await the_job(call), _Guard(call)
    call.context.scheduler.refuse_if_frozen(f"removing {view.name!r}")
    with _missing(call):
        await (await call.context.client()).definitions.remove(view.name, guard)
    await call.note("remove", f"job {view.name}", before={"status": view.status, "revision": view.revision})
    return Reply(204, b"")
