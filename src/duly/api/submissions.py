"""Submissions, which become runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UnsetType

from duly.api import requests
from duly.api.calls import Call, Reply, answer
from duly.api.definitions import Definitions, define, define_each, is_definition, read_definitions
from duly.api.json_input import converted
from duly.api.permissions import Permission
from duly.api.problems import Problem, problems_in
from duly.api.requests import Definition, Submission
from duly.api.responses import Accepted, accepted
from duly.api.visibility import require_start, sees_run
from duly.model import Put, Run, State, iso
from duly.model.trace import trace_headers
from duly.scheduler.client import Client
from duly.scheduler.submitting import Options

MAX_SUBMISSIONS = 1000
JobOrSubmissions = Submission | Definition | list[Submission] | Definitions


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
    """The body of `POST /jobs`: an object with a schedule or a name is a definition, and so an array that begins so."""
    if is_definition(document):
        return converted(document, Definition)
    if isinstance(document, list) and document and is_definition(document[0]):
        return read_definitions(document)
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
        with problems_in("submission", index):
            runs.append(await _composed(call, each, client))
    limits = call.context.limits(client)
    if limits.handlers:
        await limits.count_submissions(client.backend.store, Counter(run.handler for run in runs))
    puts = await client.submitter.put_each(runs)
    answers = [await _answer(call, put) or _hidden_duplicate(client) for put in puts]
    return answer(answers, 201 if any(put.created for put in puts) else 200)


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
        name = await call.context.handler(body.handler, client, call.principal, force=body.force)
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
    """Submit runs, or create or replace recurring jobs."""
    body = call.body
    if not isinstance(body, Definition | Definitions):
        return await submit(call)  # type: ignore[arg-type]  # the body is one of the other two
    call.principal.require(Permission.OPERATE)
    return await (define(call, body) if isinstance(body, Definition) else define_each(call, body.jobs))
