"""Many jobs at once: pause and resume them by name or by tag."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from duly.api.calls import Call, Reply, answer
from duly.api.problems import Problem, not_found
from duly.api.requests import ManyJobs, PauseMany
from duly.api.responses import ManyJobsAnswer
from duly.api.visibility import sees_job
from duly.errors import JobNotFound
from duly.model import JobRecord
from duly.scheduler.job_admin import Guard
from duly.scheduler.tagged_jobs import jobs_with_tag

Change = Callable[[str, Guard], Awaitable[JobRecord]]


async def pause_jobs(call: Call[None, PauseMany]) -> Reply:
    """Stop planning and starting the runs of several jobs until they are resumed."""
    definitions = (await call.context.client()).definitions
    return await _change_each(call, "pause", lambda name, guard: definitions.pause(name, call.body.note, guard))


async def resume_jobs(call: Call[None, ManyJobs]) -> Reply:
    """Resume several paused jobs."""
    definitions = (await call.context.client()).definitions
    return await _change_each(call, "resume", definitions.resume)


async def _change_each(call: Call[None, Any], action: str, change: Change) -> Reply:
    """Change one job after the other: what was changed before an error stays changed, and is recorded."""
    changed, unchanged, unknown = list[str](), list[str](), list[str]()
    for name in await _names(call):
        seen: list[JobRecord] = []

        def guard(record: JobRecord | None, name: str = name, seen: list[JobRecord] = seen) -> None:
            if record is None or not sees_job(call.principal, record.spec):
                raise not_found("job", name)
            seen.append(record)

        try:
            after = await change(name, guard)
        except (JobNotFound, Problem):
            unknown.append(name)
            continue
        before = seen[-1]
        if after.revision == before.revision:
            unchanged.append(name)
            continue
        changed.append(name)
        was, is_now = (
            {"status": each.status, "note": each.paused.note if each.paused else ""} for each in (before, after)
        )
        await call.record(action, f"job {name}", was, is_now)
    return answer(ManyJobsAnswer(tuple(changed), tuple(unchanged), tuple(unknown)))


async def _names(call: Call[None, ManyJobs]) -> list[str]:
    body = call.body
    if (body.names is None) == (body.tag is None):
        raise Problem(422, "invalid", "expected either names or a tag", pointer="/names")
    if body.names is not None:
        return list(dict.fromkeys(body.names))
    assert body.tag is not None
    store = (await call.context.client()).backend.store
    return [record.name for record in await jobs_with_tag(store, body.tag) if sees_job(call.principal, record.spec)]
