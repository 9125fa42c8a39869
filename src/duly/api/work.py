"""Work: how submissions become runs, and definitions become jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UnsetType

from duly.api import bodies
from duly.api.answers import Accepted, accepted, job_answer
from duly.api.bodies import Definition, Submission
from duly.api.calls import Call, Reply, answer
from duly.api.documents import shaped
from duly.api.permissions import Permission
from duly.api.problems import Problem
from duly.errors import ConfigurationError
from duly.model import JobSpec, Put, iso
from duly.model.trace import trace_headers
from duly.scheduler import Job
from duly.scheduler.client import Client
from duly.scheduler.submitting import Options

MOST_AT_ONCE = 1000

Order = Submission | Definition | list[Submission]


def read_work(document: Any) -> Submission | list[Submission]:
    """The body of `POST /runs`: one submission, or an array of them."""
    if not isinstance(document, list):
        return shaped(document, Submission)
    if not 1 <= len(document) <= MOST_AT_ONCE:
        raise Problem(422, "invalid", f"an array of 1 to {MOST_AT_ONCE} submissions is needed, not {len(document)}")
    return [shaped(each, Submission, f"/{index}") for index, each in enumerate(document)]


def read_order(document: Any) -> Order:
    """The body of `POST /jobs`: what has a schedule is a definition."""
    if isinstance(document, dict) and ("schedule" in document or "name" in document):
        return shaped(document, Definition)
    return read_work(document)


async def submit(call: Call[None, Submission | list[Submission]]) -> Reply:
    """Submit one run, or many."""
    if isinstance(call.body, list):
        return await _submit_each(call, call.body)
    client = await call.desk.client()
    name, options = await _target(call, call.body, client)
    if call.desk.settings.limits.handlers:
        await call.desk.settings.limits.count_submissions(client.backend.store, {name: 1})
    put = await client.submitter.submit(name, bodies.arguments(call.body.payload), options)
    return answer(await _answer(call, put), 201 if put.created else 200)


async def _submit_each(call: Call[None, Any], submissions: Sequence[Submission]) -> Reply:
    """All of them are checked before the first is put; answered in order."""
    client = await call.desk.client()
    wanted = []
    for index, each in enumerate(submissions):
        try:
            name, options = await _target(call, each, client)
        except ConfigurationError as exc:
            raise Problem(422, "invalid", f"submission {index}: {exc}", pointer=f"/{index}") from exc
        wanted.append((name, bodies.arguments(each.payload), options))
    if call.desk.settings.limits.handlers:
        counted = Counter(name for name, _, _ in wanted)
        await call.desk.settings.limits.count_submissions(client.backend.store, counted)
    puts = await client.submitter.submit_each(wanted)
    answers = [await _answer(call, put) for put in puts]
    return answer(answers, 201 if any(put.created for put in puts) else 200)


async def _answer(call: Call[None, Any], put: Put) -> Accepted:
    if put.created:
        return accepted(put.id, put.created_at)
    run = await (await call.desk.client()).backend.store.run(put.id)
    return Accepted(put.id, None if run is None else run.state, iso(put.created_at), deduplicated=True)


async def _target(call: Call[None, Any], body: Submission, client: Client) -> tuple[str, Options]:
    """Which handler is meant and how it is to start, if the caller may do that."""
    name = await call.desk.handler(body.handler, client)
    options = _options(call, body)
    if call.principal.limited:
        blueprint = await client.submitter.blueprint(name)
        call.principal.require_target(options.queue or blueprint.alike.queue, blueprint.alike.handler)
    return name, options


def _options(call: Call[None, Any], body: Submission) -> Options:
    return Options(
        headers=trace_headers(call.header(b"traceparent"), call.header(b"tracestate")),
        at=body.schedule_at,
        delay=None if body.delay is None else bodies.seconds(body.delay),
        priority=body.priority,
        dedupe_key=body.dedupe_key,
        unique_for=_unique_for(call, body),
        queue=body.queue,
        timeout=None if body.timeout is None else bodies.seconds(body.timeout),
        retry=bodies.retry_spec(body.retry),
    )


def _unique_for(call: Call[None, Any], body: Submission) -> float | None:
    """For how long the key is unique: as the body says, else as this server does; null is while unfinished."""
    if body.dedupe_key is None and isinstance(body.unique_for, UnsetType):
        return None
    if isinstance(body.unique_for, UnsetType):
        return call.desk.settings.unique_for
    return None if body.unique_for is None else bodies.seconds(body.unique_for)


async def order(call: Call[None, Order]) -> Reply:
    """Submit work, or create or replace a recurring job."""
    body = call.body
    if not isinstance(body, Definition):
        return await submit(call)  # type: ignore[arg-type]  # the body is one of the other two
    call.principal.require(Permission.OPERATE)
    return await _define(call, body)


async def _define(call: Call[None, Order], body: Definition) -> Reply:
    client = await call.desk.client()
    job = await _job(call, body, client)
    call.principal.require_target(job.queue, job.handler_name)
    expect, new = _condition(call.header(b"if-match"), call.header(b"if-none-match"))
    before = await client.backend.store.job(job.name)
    if expect == _ANY_REVISION:
        if before is None:
            raise Problem(409, "conflict", f"job {job.name!r} does not exist, and If-Match: * asks that it does")
        expect = None
    record, created = await client.definitions.define(job, expect, new=new)
    if before is None or record.revision != before.revision:
        await call.note("define", f"job {job.name}", before and _told(before.spec), _told(record.spec))
    view = await client.definitions.view(job.name)
    return answer(job_answer(view), 201 if created else 200, ((b"etag", b'"%d"' % record.revision),))


def _told(spec: JobSpec) -> dict[str, Any]:
    """A definition for the audit log: its payload is JSON, not bytes."""
    return {**msgspec.to_builtins(spec), "payload": msgspec.json.decode(spec.payload)}


async def _job(call: Call[None, Any], body: Definition, client: Client) -> Job:
    registered = body.handler or (body.name if client.knows(body.name) else None)
    return Job(
        handler=await call.desk.handler(registered, client),
        name=body.name,
        schedule=bodies.schedule(body.schedule, body.timezone),
        payload=bodies.arguments(body.payload),
        queue=body.queue,
        priority=body.priority,
        timeout=None if body.timeout is None else bodies.seconds(body.timeout),
        retry=body.retry if isinstance(body.retry, UnsetType) else bodies.retry_policy(body.retry),
        delivery=body.delivery,
        overlap=body.overlap,
        misfire=body.misfire,
        on_store_loss=body.on_store_loss,
        start_at=body.start_at,
        end_at=body.end_at,
        max_runs=body.max_runs,
        selector=body.selector,
        description=body.description,
        tags=body.tags,
    )


_ANY_REVISION = -1


def _condition(match: str | None, none_match: str | None) -> tuple[int | None, bool]:
    """The revision that a job must have (None: any), and whether it must be new."""
    if none_match is not None and none_match.strip() != "*":
        raise Problem(
            400, "malformed", f"If-None-Match: {none_match}: only * is understood, for a job that must be new"
        )
    if match is None:
        return None, none_match is not None
    text = match.strip().removeprefix("W/").strip('"')
    if text == "*":
        return _ANY_REVISION, False
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Problem(400, "malformed", f'If-Match: {match}: a revision is needed, as in the ETag: "3"')
    return int(text), False
