"""Runs: list, show, cancel and redrive them. `bulk_runs` treats many at once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import UNSET

from duly.api.calls import Call, Reply, answer
from duly.api.paging import RUNS, links, start_of
from duly.api.problems import Problem, not_found
from duly.api.queries import RunsQuery, repeated, run_filter
from duly.api.requests import CancelBody, RedriveBody, arguments
from duly.api.responses import CancelAnswer, explanation_answer, run_answer, run_detail
from duly.api.visibility import node_seen, sees_run
from duly.model import CancelReply, Page, RedriveReply, Run, iso
from duly.scheduler.audit_actions import redriven
from duly.scheduler.run_search import page_of


async def find_run(call: Call[Any, Any]) -> Run:
    """The run in the path. A run that the caller may not see is not found."""
    client = await call.context.client()
    run = await client.backend.store.run(call.name)
    if run is None or not sees_run(call.principal, run):
        raise not_found("run", call.name)
    return run


async def list_runs(call: Call[RunsQuery, None]) -> Reply:
    """A page of runs, the newest first."""
    return await page_of_runs(call, call.query, repeated(call.query))


async def page_of_runs(call: Call[Any, None], query: RunsQuery, again: Mapping[str, object]) -> Reply:
    client = await call.context.client()
    start = await start_of(call, RUNS, query.cursor)
    page = await page_of(client, run_filter(query), query.limit, start, query.scan)
    seen = [run_answer(run) for run in page.runs if sees_run(call.principal, run)]
    return answer(seen, headers=(*await links(call, RUNS, again, page.next), *_searched(page)))


def _searched(page: Page) -> tuple[tuple[bytes, bytes], ...]:
    """How far a search came that stopped before its page was full."""
    if page.reached is None:
        return ()
    return ((b"x-searched", str(page.searched).encode()), (b"x-searched-to", iso(page.reached).encode()))


async def get_run(call: Call[Any, None]) -> Reply:
    """One run with its attempts."""
    run = await find_run(call)
    attempts = await (await call.context.client()).attempts(run.id)
    return answer(run_detail(run, attempts))


async def explain_run(call: Call[Any, None]) -> Reply:
    """The state of a run explained, with the setting that decided."""
    run = await find_run(call)
    client = await call.context.client()
    return answer(explanation_answer(await client.explainer.run(run.id, partial(node_seen, call.principal))))


async def cancel(call: Call[None, CancelBody]) -> Reply:
    """Cancel a run: at once if it waits; if it is running, its worker is asked to stop it."""
    done = await cancel_run(call, call.body.reason)
    return answer(CancelAnswer(call.name, "cancelled" if done else "cancelling"), 200 if done else 202)


async def cancel_run(call: Call[Any, Any], reason: str | None) -> bool:
    """Cancel the run in the path. False: it is running, and its worker has been asked to stop it."""
    run = await find_run(call)
    reply = await call.context.scheduler.cancel(run.id, reason)
    if reply is CancelReply.TOO_LATE:
        raise Problem(409, "conflict", f"run {run.id} had ended already: see GET /runs/{run.id}")
    await call.record("cancel", f"run {run.id}", {"status": run.state}, {"reason": reason})
    return reply is CancelReply.DONE


async def redrive(call: Call[None, RedriveBody]) -> Reply:
    """Run a failed, lost or cancelled run again, under the same id."""
    run, client = await find_run(call), await call.context.client()
    given = None if call.body.payload is UNSET else arguments(call.body.payload)
    payload = client.checked_payload(run.handler, given)
    await call.context.limits(client).count_submissions(client.backend.store, {run.handler: 1})
    [reply] = await client.redrive_each([run], payload)
    match reply:
        case RedriveReply.DONE:
            await call.record("redrive", f"run {run.id}", *redriven(run, payload))
            return answer(run_answer(await find_run(call)))
        case RedriveReply.UNKNOWN:
            raise not_found("run", run.id)
        case RedriveReply.DUPLICATE:
            why = "which is unfinished, or was submitted less than its unique_for ago"
            raise Problem(
                409, "conflict", f"the dedupe_key {run.dedupe_key!r} of run {run.id} belongs to another run, {why}"
            )
        case _:
            way_out = "only failed, lost and cancelled runs are redriven; trigger the job for a new run"
            raise Problem(409, "conflict", f"run {run.id} is {run.state.value}: {way_out}")
