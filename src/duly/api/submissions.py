"""Submissions, which become runs, and definitions, which become jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import UnsetType

from duly.api import requests
from duly.api.calls import Call, Reply, answer
from duly.api.conditions import condition_of
from duly.api.json_input import converted
from duly.api.permissions import Permission
from duly.api.problems import Problem, not_found, problem_of
from duly.api.requests import Definition, Submission
from duly.api.responses import Accepted, accepted, job_answer
from duly.api.visibility import require_definition, require_start, sees_job, sees_run
from duly.errors import DulyError
from duly.model import JobRecord, JobSpec, Put, Run, State, iso
from duly.model.trace import trace_headers
from duly.scheduler import Job
from duly.scheduler.client import Client
from duly.scheduler.submitting import Options

MAX_SUBMISSIONS = 1000
_SERVER_ERROR = 500
_CONVERTED = {
    "handler",
    "schedule",
    "timezone",
    "payload",
    "timeout",
    "retry",
}  # fields that `Job` takes in another form

JobOrSubmissions = Submission | Definition | list[Submission]


def read_submissions(document: Any) -> Submission | list[Submission]:
    """The body of `POST /runs`: one submission, or an array of them."""
    if not isinstance(document, list):
        return converted(document, Submission)
    if not 1 <= len(document) <= MAX_SUBMISSIONS:
        raise Problem(
            422, "invalid", f"expected an array of 1 to {MAX_SUBMISSIONS} submissions, not of {len(document)}"
        )
    return [converted(each, Submission, f"/{index}") for index, each in enumerate(document)]


def read_job_or_submissions(document: Any) -> JobOrSubmissions:
    """The body of `POST /jobs`: an object with a schedule or a name is a definition."""
    if isinstance(document, dict) and ("schedule" in document or "name" in document):
        return converted(document, Definition)
    return read_submissions(document)


async def submit(call: Call[None, Submission | list[Submission]]) -> Reply:
    """Submit one run, or several."""
    if isinstance(call.body, list):
        return await _submit_each(call, call.body)
    client = await call.context.client()
    run = await _composed(call, call.body, client)
    limits = call.context.limits(client)
    if limits.handlers:
        await limits.count_submissions(client.backend.store, {run.handler: 1})
    put = await client.submitter.put(run)
    document = await _answer(call, put)
    if document is None:
        detail = "dedupe_key: it is in use outside of this token's limits; choose another one"
        raise Problem(409, "conflict", detail, pointer="/dedupe_key")
    return answer(document, 201 if put.created else 200, (call.location(f"/runs/{put.id}"),))


async def _submit_each(call: Call[None, Any], submissions: Sequence[Submission]) -> Reply:
    """Check all of them before the first is stored; answer in their order."""
    client = await call.context.client()
    runs = []
    for index, each in enumerate(submissions):
        with _problems_in(index):
            runs.append(await _composed(call, each, client))
    limits = call.context.limits(client)
    if limits.handlers:
        await limits.count_submissions(client.backend.store, Counter(run.handler for run in runs))
    puts = await client.submitter.put_each(runs)
    answers = [await _answer(call, put) or _hidden_duplicate(client) for put in puts]
    return answer(answers, 201 if any(put.created for put in puts) else 200)


@contextmanager
def _problems_in(index: int) -> Iterator[None]:
    """Add the index of an array's item to its problems."""
    try:
        yield
    except Problem as problem:
        raise problem.within(index) from problem
    except DulyError as error:
        found = problem_of(error)
        if found is None or found.status >= _SERVER_ERROR:
            raise
        raise found.within(index) from error


async def _answer(call: Call[None, Any], put: Put) -> Accepted | None:
    """The answer to a submission; None if it duplicates a run that the caller may not see."""
    if put.created:
        return accepted(put.id, put.created_at)
    run = await (await call.context.client()).backend.store.run(put.id)
    if call.principal.limited if run is None else not sees_run(call.principal, run):
        return None
    return Accepted(put.id, None if run is None else run.state, iso(put.created_at), deduplicated=True)


def _hidden_duplicate(client: Client) -> Accepted:
    """The answer in an array to such a duplicate: the other submissions are accepted, and their ids are returned."""
    return Accepted("", State.PENDING, iso(client.clock.now()), deduplicated=True)


async def _composed(call: Call[None, Any], body: Submission, client: Client) -> Run:
    """The run of a submission, if the caller may submit it."""
    options, payload = _options(call, body), requests.arguments(body.payload)
    if not call.principal.limited:
        name = await call.context.handler(body.handler, client, call.principal)
        return await client.submitter.composed(name, payload, options)

    def guard(alike: Run) -> None:
        require_start(call.principal, alike.job, alike, options.queue or alike.queue)

    wanted = body.handler or call.context.scheduler.config.default_handler
    if wanted is not None:  # do not reveal whether a handler outside of the limits exists
        guard((await client.submitter.blueprint(wanted)).alike)
    name = await call.context.handler(body.handler, client, call.principal)
    return await client.submitter.composed(name, payload, options, guard)


def _options(call: Call[None, Any], body: Submission) -> Options:
    return Options(
        headers=_trace(call.headers),
        at=body.schedule_at,
        delay=None if body.delay is None else requests.seconds(body.delay),
        priority=body.priority,
        dedupe_key=body.dedupe_key,
        unique_for=_unique_for(call, body),
        queue=body.queue,
        timeout=None if body.timeout is None else requests.seconds(body.timeout),
        retry=requests.retry_spec(body.retry),
    )


def _trace(headers: Mapping[bytes, bytes]) -> dict[str, str] | None:
    """The trace that a submission belongs to."""
    given = headers.get(b"traceparent")
    if given is None:
        return None
    return trace_headers(given.decode("latin-1"), headers.get(b"tracestate", b"").decode("latin-1"))


def _unique_for(call: Call[None, Any], body: Submission) -> float | None:
    """How long the key is unique: the body's value, or the server's; null means until the run has ended."""
    if body.dedupe_key is None and isinstance(body.unique_for, UnsetType):
        return None
    if isinstance(body.unique_for, UnsetType):
        return call.context.settings.unique_for
    return None if body.unique_for is None else requests.seconds(body.unique_for)


async def submit_or_define(call: Call[None, JobOrSubmissions]) -> Reply:
    """Submit runs, or create or replace a recurring job."""
    body = call.body
    if not isinstance(body, Definition):
        return await submit(call)  # type: ignore[arg-type]  # the body is one of the other two
    call.principal.require(Permission.OPERATE)
    return await _define(call, body)


async def _define(call: Call[None, JobOrSubmissions], body: Definition) -> Reply:
    client = await call.context.client()
    condition = condition_of(call.headers)
    named, home = await _handler(call, body, client)
    job = await _job(call, body, named)
    becomes = JobSpec(name=job.name, handler=job.handler_name, queue=job.queue)

    def guard(before: JobRecord | None) -> None:
        require_definition(call.principal, before, becomes, home, named)
        condition.check(job.name, None if before is None else before.revision)

    guard(await client.backend.store.job(job.name))  # before any error about the definition itself
    record, before = await client.definitions.define(job, guard)
    if before is None or record.revision != before.revision:
        await call.record("define", f"job {job.name}", before and _audited(before.spec), _audited(record.spec))
    view = await client.definitions.view(job.name)
    if not sees_job(call.principal, view):  # it was moved in between
        raise not_found("job", job.name)
    headers = ((b"etag", b'"%d"' % record.revision), call.location(f"/jobs/{job.name}"))
    return answer(job_answer(view), 201 if before is None else 200, headers)


async def _handler(call: Call[None, Any], body: Definition, client: Client) -> tuple[str, Run]:
    """The handler that a definition names, and what its own runs are alike."""
    registered = body.handler or (body.name if client.knows(body.name) else None)
    name = registered or call.context.scheduler.config.default_handler
    if call.principal.limited and name is not None:
        alike = (await client.submitter.blueprint(name)).alike
        require_start(call.principal, name, alike, body.queue)
    named = await call.context.handler(registered, client, call.principal)
    return named, (await client.submitter.blueprint(named)).alike


def _audited(spec: JobSpec) -> dict[str, Any]:
    """A definition for the audit log, with its payload as JSON."""
    return {**msgspec.to_builtins(spec), "payload": msgspec.json.decode(spec.payload)}


async def _job(call: Call[None, Any], body: Definition, handler: str) -> Job:
    schedule = await call.context.threads.run(lambda: requests.schedule(body.schedule, body.timezone))
    same = {name: getattr(body, name) for name in Definition.__struct_fields__ if name not in _CONVERTED}
    return Job(
        **same,
        handler=handler,
        schedule=schedule,
        payload=requests.arguments(body.payload),
        timeout=None if body.timeout is None else requests.seconds(body.timeout),
        retry=body.retry if isinstance(body.retry, UnsetType) else requests.retry_policy(body.retry),
    )
