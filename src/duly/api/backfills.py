"""Backfills: create the runs of past due times that have none."""

from __future__ import annotations

from msgspec.structs import replace

from duly.api.calls import Call, Reply, answer
from duly.api.jobs import JobGuard, find_job, same_not_found
from duly.api.requests import BackfillBody
from duly.api.responses import backfill_answer
from duly.model import iso
from duly.scheduler.backfills import Backfill


async def backfill(call: Call[None, BackfillBody]) -> Reply:
    """Create the runs of a job's past due times that have none; with `dry_run`, only count them."""
    view, guard, body = await find_job(call), JobGuard(call), call.body
    client = await call.context.client()

    async def look(*, dry_run: bool) -> Backfill:
        with same_not_found(call):
            return await client.backfills.backfill(
                view.name,
                body.start,
                body.end,
                limit=body.limit,
                by=call.principal.name,
                dry_run=dry_run,
                guard=guard,
            )

    planned = await look(dry_run=True)  # the rate limit counts what will be created
    if body.dry_run or not planned.created:
        return answer(backfill_answer(replace(planned, dry_run=body.dry_run)))
    await call.context.limits(client).count_submissions(client.backend.store, {view.handler: planned.created})
    done = await look(dry_run=False)
    what = {"from": iso(done.start), "to": iso(done.end), "created": done.created}
    await call.record("backfill", f"job {view.name}", after=what)
    return answer(backfill_answer(done), 201)
