"""Jobs: listing them, looking at one, operating them. A run's id in the place of a name answers that run."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from duly.api import bodies
from duly.api.answers import accepted, job_answer
from duly.api.bodies import PauseBody, TriggerBody
from duly.api.calls import Call, Reply, answer
from duly.api.paging import links, unwrapped
from duly.api.problems import Problem, not_found
from duly.api.queries import JobRunsQuery, JobsQuery, RunsQuery, repeated
from duly.api.runs import cancel_run, get_run, page_of_runs
from duly.model import State
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
    client = await call.desk.client()
    views, following = await client.definitions.page(unwrapped(query.cursor) or "", query.limit)
    seen = [job_answer(view) for view in views if _matches(view, query) and _visible(call, view)]
    return answer(seen, headers=links(call.path, repeated(query), following))


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


def _visible(call: Call[Any, Any], view: JobView) -> bool:
    return call.principal.covers(view.queue, view.handler)


async def the_job(call: Call[Any, Any]) -> JobView:
    """The job that the path names; one that the caller may not see does not exist."""
    view = await call.desk.scheduler.get_job(call.name)
    if not _visible(call, view):
        raise not_found("job", call.name)
    return view


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
    before = await the_job(call)
    await call.desk.scheduler.pause(before.name, call.body.note)
    return await _changed(call, "pause", before)


async def resume(call: Call[None, None]) -> Reply:
    """Let a paused job go on."""
    before = await the_job(call)
    await call.desk.scheduler.resume(before.name)
    return await _changed(call, "resume", before)


async def _changed(call: Call[None, Any], action: str, before: JobView) -> Reply:
    after = await call.desk.scheduler.get_job(before.name)
    if after.revision != before.revision:
        was, is_now = ({"status": view.status, "note": view.note} for view in (before, after))
        await call.note(action, f"job {before.name}", was, is_now)
    return answer(job_answer(after), headers=((b"etag", b'"%d"' % after.revision),))


async def trigger(call: Call[None, TriggerBody]) -> Reply:
    """Run a job once more, now."""
    view = await the_job(call)
    payload = None if call.body.payload is UNSET else bodies.arguments(call.body.payload)
    handle = await call.desk.scheduler.trigger(view.name, payload)
    await call.note("trigger", f"job {view.name}", after={"run": handle.id})
    return answer(accepted(handle.id, handle.created_at), 201)


async def remove(call: Call[None, None]) -> Reply:
    """Stop planning a job and cancel its waiting runs; a submitted one, a run, is cancelled."""
    if _is_run(call.name):
        await cancel_run(call, None)
        return Reply(204, b"")
    view = await the_job(call)
    await call.desk.scheduler.remove(view.name)
    await call.note("remove", f"job {view.name}", before={"status": view.status, "revision": view.revision})
    return Reply(204, b"")
