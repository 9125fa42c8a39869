"""The versions of a job's definition: list them, and go back to an earlier one."""

from __future__ import annotations

from typing import Any

from duly.api.calls import Call, Reply, answer
from duly.api.jobs import JobGuard, find_job, same_not_found
from duly.api.requests import RollbackBody
from duly.api.responses import RevisionAnswer, RollbackAnswer, response
from duly.api.visibility import sees_job
from duly.model import JobSpec
from duly.scheduler.job_history import Seen


async def history(call: Call[None, None]) -> Reply:
    """The versions of a job's definition, newest first: who wrote each, when, and what it changed."""
    view = await find_job(call)
    with same_not_found(call):
        found = await (await call.context.client()).history.revisions(view.name, _seen(call))
    return answer([response(RevisionAnswer, each) for each in found])


async def rollback(call: Call[None, RollbackBody]) -> Reply:
    """Give a job the definition it had at a revision, or its previous one, as a new revision."""
    view, guard = await find_job(call), JobGuard(call)
    call.context.scheduler.refuse_if_frozen(f"rolling back {view.name!r}")
    body = call.body
    with same_not_found(call):
        done = await (await call.context.client()).history.rollback(
            view.name, body.revision, by=call.principal.name, dry_run=body.dry_run, guard=guard, seen=_seen(call)
        )
    if done.revision != view.revision and not done.dry_run:
        was, is_now = {"revision": view.revision}, {"revision": done.revision, "to": done.to}
        await call.record("rollback", f"job {view.name}", was, is_now)
    return answer(response(RollbackAnswer, done), headers=((b"etag", b'"%d"' % done.revision),))


def _seen(call: Call[Any, Any]) -> Seen:
    """Versions outside of the caller's limits do not exist for it: neither to see nor to go back to."""

    def seen(spec: JobSpec) -> bool:
        return sees_job(call.principal, spec)

    return seen
