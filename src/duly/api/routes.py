"""The routes: one table that drives routing, authorisation, validation and the OpenAPI document.

A route without a permission cannot be written down, and what is not in the table does not exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from duly.api import answers, bodies, cluster, events, health, jobs, metrics, queries, runs, work
from duly.api.calls import Call, Reply, Stream
from duly.api.documents import shaped
from duly.api.permissions import Permission
from duly.model.notice import Notice

Handle = Callable[[Call[Any, Any]], Awaitable[Reply | Stream]]

TEXT = "text"  # in the place of a type: the text of Prometheus


class Streamed(Struct, frozen=True):
    """In the place of a type: server-sent events, whose data are one of these."""

    data: tuple[Any, ...]


class Body(Struct, frozen=True):
    """What a request may carry. `read` makes the handler's value of a document; one of `kinds` describes it."""

    read: Callable[[Any], Any]
    kinds: tuple[Any, ...]
    required: bool = True


def _one(kind: type[Struct], *, required: bool = True) -> Body:
    return Body(lambda document: shaped(document, kind), (kind,), required)


class Route(Struct, frozen=True):
    """One operation. `gives` maps statuses to the types of their documents, None being no body.

    `conflicts` says that 409 is among the answers, `headers` names request headers that matter.
    """

    method: str
    path: str
    permission: Permission
    handle: Handle
    gives: Mapping[int, Any]
    query: type[Struct] | None = None
    body: Body | None = None
    conflicts: bool = False
    headers: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first sentence of the handler's docstring."""
        return (self.handle.__doc__ or "").partition("\n")[0]

    @property
    def variable(self) -> str | None:
        """The name of the variable part of the path."""
        _, opening, rest = self.path.partition("{")
        return rest.partition("}")[0] if opening else None


_PUBLIC, _READ, _SUBMIT = Permission.PUBLIC, Permission.READ, Permission.SUBMIT
_OPERATE, _ADMINISTER = Permission.OPERATE, Permission.ADMINISTER

_ACCEPTED = answers.Accepted | list[answers.Accepted]
_JOB_OR_RUN = answers.JobAnswer | answers.RunDetail
_JOBS_OR_RUNS = list[answers.JobAnswer] | list[answers.RunAnswer]

_WORK = Body(work.read_work, (bodies.Submission, list[bodies.Submission]))
_ORDER = Body(work.read_order, (bodies.Submission, bodies.Definition, list[bodies.Submission]))

_IF_MATCH = ("If-Match",)

# What every process with a port answers, workers included.
VITALS: tuple[Route, ...] = (
    Route("GET", "/health", _PUBLIC, health.get_health, {200: answers.HealthAnswer, 503: answers.HealthAnswer}),
    Route("GET", "/livez", _PUBLIC, health.livez, {200: answers.Status}),
    Route("GET", "/readyz", _PUBLIC, health.readyz, {200: answers.Status, 503: answers.Status}),
    Route("GET", "/metrics", _READ, metrics.get_metrics, {200: answers.MetricsAnswer | str}),
    Route("GET", "/metrics/prometheus", _READ, metrics.prometheus, {200: TEXT}),
    Route("GET", "/leader", _READ, cluster.leader, {200: answers.LeaderAnswer}),
)

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/jobs",
        _SUBMIT,
        work.order,
        {201: _ACCEPTED | answers.JobAnswer, 200: _ACCEPTED | answers.JobAnswer},
        body=_ORDER,
        conflicts=True,
        headers=("If-Match", "If-None-Match"),
    ),
    Route("GET", "/jobs", _READ, jobs.list_jobs, {200: _JOBS_OR_RUNS}, query=queries.JobsQuery),
    Route("GET", "/jobs/{id}", _READ, jobs.get_job, {200: _JOB_OR_RUN}),
    Route("DELETE", "/jobs/{id}", _OPERATE, jobs.remove, {204: None}, conflicts=True, headers=_IF_MATCH),
    Route(
        "GET", "/jobs/{id}/runs", _READ, jobs.runs_of_job, {200: list[answers.RunAnswer]}, query=queries.JobRunsQuery
    ),
    Route(
        "GET",
        "/jobs/{id}/explain",
        _READ,
        jobs.explain_job,
        {200: answers.ExplanationAnswer},
        query=queries.ExplainQuery,
    ),
    Route(
        "POST",
        "/jobs/{id}/pause",
        _OPERATE,
        jobs.pause,
        {200: answers.JobAnswer},
        body=_one(bodies.PauseBody, required=False),
        conflicts=True,
        headers=_IF_MATCH,
    ),
    Route(
        "POST",
        "/jobs/{id}/resume",
        _OPERATE,
        jobs.resume,
        {200: answers.JobAnswer},
        conflicts=True,
        headers=_IF_MATCH,
    ),
    Route(
        "POST",
        "/jobs/{id}/trigger",
        _OPERATE,
        jobs.trigger,
        {201: answers.Accepted},
        body=_one(bodies.TriggerBody, required=False),
        conflicts=True,
        headers=_IF_MATCH,
    ),
    Route("POST", "/runs", _SUBMIT, work.submit, {201: _ACCEPTED, 200: _ACCEPTED}, body=_WORK, conflicts=True),
    Route("GET", "/runs", _READ, runs.list_runs, {200: list[answers.RunAnswer]}, query=queries.RunsQuery),
    Route("GET", "/runs/{id}", _READ, runs.get_run, {200: answers.RunDetail}),
    Route("GET", "/runs/{id}/explain", _READ, runs.explain_run, {200: answers.ExplanationAnswer}),
    Route(
        "POST",
        "/runs/{id}/cancel",
        _OPERATE,
        runs.cancel,
        {200: answers.CancelAnswer, 202: answers.CancelAnswer},
        body=_one(bodies.CancelBody, required=False),
        conflicts=True,
    ),
    Route("POST", "/runs/{id}/redrive", _OPERATE, runs.redrive, {200: answers.RunAnswer}, conflicts=True),
    Route(
        "POST",
        "/runs/redrive",
        _OPERATE,
        runs.redrive_many,
        {200: answers.RedriveAnswer},
        body=_one(bodies.RedriveBody),
    ),
    Route("GET", "/queues", _READ, cluster.list_queues, {200: list[answers.QueueAnswer]}),
    Route("POST", "/queues/{name}/pause", _OPERATE, cluster.pause_queue, {200: answers.QueueState}),
    Route("POST", "/queues/{name}/resume", _OPERATE, cluster.resume_queue, {200: answers.QueueState}),
    Route("GET", "/nodes", _READ, cluster.list_nodes, {200: list[answers.NodeAnswer]}),
    Route(
        "GET",
        "/events",
        _READ,
        events.follow_events,
        {200: Streamed((Notice, events.Gap))},
        query=queries.EventsQuery,
        headers=("Last-Event-ID",),
    ),
    Route("GET", "/audit", _ADMINISTER, cluster.audit, {200: list[answers.AuditAnswer]}, query=queries.AuditQuery),
    Route("POST", "/preview", _READ, cluster.preview, {200: answers.PreviewAnswer}, body=_one(bodies.PreviewBody)),
    *VITALS,
)
