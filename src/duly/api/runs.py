"""Runs: list, show, cancel and redrive them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from duly.api.calls import Call, Reply, answer
from duly.api.paging import RUNS, links, start_of
from duly.api.problems import Problem, not_found
from duly.api.queries import RunsQuery, repeated, run_query
from duly.api.requests import CancelBody, RedriveBody
from duly.api.responses import CancelAnswer, RedriveAnswer, explanation_answer, run_answer, run_detail
from duly.api.tagged_runs import page_of_tag
from duly.api.visibility import node_seen, sees_run
from duly.model import CancelReply, Page, RedriveReply, Run, iso

_SLICE = 500
_MOST_SLICES = 200  # a call must not read every run of a large store


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
    wanted, start = run_query(query), await start_of(call, RUNS, query.cursor)
    if query.tag is None:
        page = await client.runs(wanted, query.limit, start, query.scan)
    else:
        page = await page_of_tag(client, query.tag, wanted, query.limit, start, query.scan)
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


async def redrive(call: Call[None, None]) -> Reply:
    """Run a failed, lost or cancelled run again, under the same id."""
    run, client = await find_run(call), await call.context.client()
    await call.context.limits(client).count_submissions(client.backend.store, {run.handler: 1})
    [reply] = await client.redrive_each([run])
    match reply:
        case RedriveReply.DONE:
            await call.record("redrive", f"run {run.id}", {"status": run.state})
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


async def redrive_many(call: Call[None, RedriveBody]) -> Reply:
    """Run all matching ended runs again, the newest first."""
    body = call.body
    client = await call.context.client()
    query = run_query(body)
    found: list[Run] = []
    cursor: str | None = None
    for _ in range(_MOST_SLICES):  # find all before redriving the first: a redriven run may fail again in between
        page = await client.backend.store.runs(query, _SLICE, cursor)
        found += [run for run in page.runs if sees_run(call.principal, run)]
        cursor = page.next
        if cursor is None or len(found) >= body.limit:
            break
    wanted = found[: body.limit]
    counted = Counter(run.handler for run in wanted)
    await call.context.limits(client).count_submissions(client.backend.store, counted)
    done = 0
    for start in range(0, len(wanted), _SLICE):
        replies = await client.redrive_each(wanted[start : start + _SLICE])
        done += sum(reply is RedriveReply.DONE for reply in replies)
    if done:
        await call.record("redrive", f"{done} runs", after=body)
    return answer(RedriveAnswer(done, len(wanted) - done))
