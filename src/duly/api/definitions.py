"""Definitions, which become jobs: one, or an array of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, UnsetType

from duly.api import requests
from duly.api.calls import Call, Reply, answer
from duly.api.conditions import Condition, condition_of
from duly.api.json_input import converted
from duly.api.problems import Problem, not_found, problems_in
from duly.api.requests import Definition
from duly.api.responses import Defined, job_answer
from duly.api.visibility import require_definition, require_start, sees_job
from duly.model import JobRecord, JobSpec, Run
from duly.rules.schedules import Schedule
from duly.scheduler import Job
from duly.scheduler.client import Client

MAX_DEFINITIONS = 1000
_AT_A_TIME = 50  # definitions checked before other calls get their turn
_ITEM = "definition"
# Fields that `Job` takes in another form.
_CONVERTED = {"handler", "schedule", "timezone", "payload", "timeout", "retry", "expect_every"}


class Definitions(Struct, frozen=True):
    """An array of definitions, as `POST /jobs` takes it."""

    jobs: list[Definition]


def is_definition(document: Any) -> bool:
    """Whether a document is meant to be a definition rather than a submission."""
    return isinstance(document, dict) and ("schedule" in document or "name" in document)


def read_definitions(document: Sequence[Any]) -> Definitions:
    """An array of definitions, each of another name."""
    if len(document) > MAX_DEFINITIONS:
        detail = f"expected an array of 1 to {MAX_DEFINITIONS} definitions, not of {len(document)}"
        raise Problem(422, "invalid", detail)
    found = [converted(each, Definition, f"/{index}") for index, each in enumerate(document)]
    first: dict[str, int] = {}
    for index, each in enumerate(found):
        if first.setdefault(each.name, index) != index:
            detail = f"name: definition {first[each.name]} has the name {each.name!r}, too: give each another one"
            raise Problem(422, "invalid", detail, pointer="/name").within(_ITEM, index)
    return Definitions(found)


async def define(call: Call[None, Any], body: Definition) -> Reply:
    """Create or replace a job, and show it."""
    client = await call.context.client()
    defining = _Defining(call, client, condition_of(call.headers))
    named, home = await defining.handler(body)
    schedule = await call.context.threads.run(lambda: requests.schedule(body.schedule, body.timezone))
    job = _job(body, named, schedule)
    guard = partial(defining.guard, job, home)
    guard(await client.backend.store.job(job.name))  # before any error about the definition itself
    record, before = await client.definitions.define(job, guard, call.principal.name)
    if before is None or record.revision != before.revision:
        await call.record("define", f"job {job.name}", before and _audited(before.spec), _audited(record.spec))
    view = await client.definitions.view(job.name)
    if not sees_job(call.principal, view):  # it was moved in between
        raise not_found("job", job.name)
    headers = ((b"etag", b'"%d"' % record.revision), call.location(f"/jobs/{job.name}"))
    return answer(job_answer(view), 201 if before is None else 200, headers)


async def define_each(call: Call[None, Any], bodies: Sequence[Definition]) -> Reply:
    """Create or replace jobs. All of them are checked before the first is stored; answers in their order."""
    client = await call.context.client()
    defining = _Defining(call, client, condition_of(call.headers))
    handlers = []
    for index, body in enumerate(bodies):
        with problems_in(_ITEM, index):
            handlers.append(await defining.handler(body))
    schedules = await call.context.threads.run(lambda: _schedules(bodies))
    jobs, guards = [], []
    for index, (body, (named, home), schedule) in enumerate(zip(bodies, handlers, schedules, strict=True)):
        if index % _AT_A_TIME == 0:
            await asyncio.sleep(0)
        with problems_in(_ITEM, index):
            jobs.append(job := _job(body, named, schedule))
        guards.append(partial(_guarded, index, partial(defining.guard, job, home)))
    about, by = partial(problems_in, _ITEM), call.principal.name
    defined = await client.definitions.define_each(jobs, guards, about, by)
    written = [(now, before) for now, before in defined if before is None or now.revision != before.revision]
    await call.record_each(
        [("define", f"job {now.name}", before and _audited(before.spec), _audited(now.spec)) for now, before in written]
    )
    answers = [Defined(now.name, now.revision, created=before is None) for now, before in defined]
    return answer(answers, 201 if any(each.created for each in answers) else 200)


class _Defining:
    """One call that defines jobs: what the caller may do, and the handlers that have been looked up for it."""

    def __init__(self, call: Call[None, Any], client: Client, condition: Condition) -> None:
        self._call = call
        self._client = client
        self._condition = condition
        self._found: dict[str | None, tuple[str, Run]] = {}

    async def handler(self, body: Definition) -> tuple[str, Run]:
        """The handler that a definition names, and what its own runs are alike."""
        principal = self._call.principal
        registered = body.handler or (body.name if self._client.knows(body.name) else None)
        name = registered or self._call.context.scheduler.config.default_handler
        if principal.limited and name is not None:
            require_start(principal, name, (await self._client.submitter.blueprint(name)).alike, body.queue)
        if registered not in self._found:
            named = await self._call.context.handler(registered, self._client, principal)
            self._found[registered] = named, (await self._client.submitter.blueprint(named)).alike
        return self._found[registered]

    def guard(self, job: Job, home: Run, before: JobRecord | None) -> None:
        """Refuse a definition that the caller may not make, or that does not match the call's condition."""
        becomes = JobSpec(name=job.name, handler=job.handler_name, queue=job.queue)
        require_definition(self._call.principal, before, becomes, home, job.handler_name)
        self._condition.check(job.name, None if before is None else before.revision)


def _guarded(index: int, guard: Any, before: JobRecord | None) -> None:
    with problems_in(_ITEM, index):
        guard(before)


def _schedules(bodies: Sequence[Definition]) -> list[Schedule]:
    found: list[Schedule] = []
    for index, body in enumerate(bodies):
        with problems_in(_ITEM, index):
            found.append(requests.schedule(body.schedule, body.timezone))
    return found


def _audited(spec: JobSpec) -> dict[str, Any]:
    """A definition for the audit log, with its payload as JSON."""
    return {**msgspec.to_builtins(spec), "payload": msgspec.json.decode(spec.payload)}


def _job(body: Definition, handler: str, schedule: Schedule) -> Job:
    same = {name: getattr(body, name) for name in Definition.__struct_fields__ if name not in _CONVERTED}
    return Job(
        **same,
        handler=handler,
        schedule=schedule,
        payload=requests.arguments(body.payload),
        timeout=None if body.timeout is None else requests.seconds(body.timeout),
        expect_every=None if body.expect_every is None else requests.seconds(body.expect_every),
        retry=body.retry if isinstance(body.retry, UnsetType) else requests.retry_policy(body.retry),
    )
