"""The routes: one table that drives routing, authorisation, validation and the OpenAPI document.

A route without a permission cannot be written down, and what is not in the table does not exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from duly.api import cluster, events, health, jobs, metrics, queries, requests, responses, runs, settings, submissions
from duly.api.calls import Call, Reply, Stream
from duly.api.json_input import shaped
from duly.api.permissions import Permission
from duly.model.published_event import PublishedEvent

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

_ACCEPTED = responses.Accepted | list[responses.Accepted]
_JOB_OR_RUN = responses.JobAnswer | responses.RunDetail
_JOBS_OR_RUNS = list[responses.JobAnswer] | list[responses.RunAnswer]

_WORK = Body(submissions.read_work, (requests.Submission, list[requests.Submission]))
_ORDER = Body(submissions.read_order, (requests.Submission, requests.Definition, list[requests.Submission]))

_IF_MATCH = ("If-Match",)

# What every process with a port answers, workers included.
VITALS: tuple[Route, ...] = (
    Route("GET", "/health", _PUBLIC, health.get_health, {200: responses.HealthAnswer, 503: responses.HealthAnswer}),
    Route("GET", "/livez", _PUBLIC, health.livez, {200: responses.Status}),
    Route("GET", "/readyz", _PUBLIC, health.readyz, {200: responses.Status, 503: responses.Status}),
    Route("GET", "/metrics", _READ, metrics.get_metrics, {200: responses.MetricsAnswer | str}),
    Route("GET", "/metrics/prometheus", _READ, metrics.prometheus, {200: TEXT}),
    Route("GET", "/leader", _READ, cluster.leader, {200: responses.LeaderAnswer}),
)

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/jobs",
        _SUBMIT,
        submissions.order,
        {201: _ACCEPTED | responses.JobAnswer, 200: _ACCEPTED | responses.JobAnswer},
        body=_ORDER,
        conflicts=True,
        headers=("If-Match", "If-None-Match"),
    ),
    Route("GET", "/jobs", _READ, jobs.list_jobs, {200: _JOBS_OR_RUNS}, query=queries.JobsQuery),
    Route("GET", "/jobs/{id}", _READ, jobs.get_job, {200: _JOB_OR_RUN}),
    Route("DELETE", "/jobs/{id}", _OPERATE, jobs.remove, {204: None}, conflicts=True, headers=_IF_MATCH),
    Route(
        "GET", "/jobs/{id}/runs", _READ, jobs.runs_of_job, {200: list[responses.RunAnswer]}, query=queries.JobRunsQuery
    ),
    Route(
        "GET",
        "/jobs/{id}/explain",
        _READ,
        jobs.explain_job,
        {200: responses.ExplanationAnswer},
        query=queries.ExplainQuery,
    ),
    Route(
        "POST",
        "/jobs/{id}/pause",
        _OPERATE,
        jobs.pause,
        {200: responses.JobAnswer},
        body=_one(requests.PauseBody, required=False),
        conflicts=True,
        headers=_IF_MATCH,
    ),
    Route(
        "POST",
        "/jobs/{id}/resume",
        _OPERATE,
        jobs.resume,
        {200: responses.JobAnswer},
        conflicts=True,
        headers=_IF_MATCH,
    ),
    Route(
        "POST",
        "/jobs/{id}/trigger",
        _OPERATE,
        jobs.trigger,
        {201: responses.Accepted},
        body=_one(requests.TriggerBody, required=False),
        conflicts=True,
        headers=_IF_MATCH,
    ),
    Route("POST", "/runs", _SUBMIT, submissions.submit, {201: _ACCEPTED, 200: _ACCEPTED}, body=_WORK, conflicts=True),
    Route("GET", "/runs", _READ, runs.list_runs, {200: list[responses.RunAnswer]}, query=queries.RunsQuery),
    Route("GET", "/runs/{id}", _READ, runs.get_run, {200: responses.RunDetail}),
    Route("GET", "/runs/{id}/explain", _READ, runs.explain_run, {200: responses.ExplanationAnswer}),
    Route(
        "POST",
        "/runs/{id}/cancel",
        _OPERATE,
        runs.cancel,
        {200: responses.CancelAnswer, 202: responses.CancelAnswer},
        body=_one(requests.CancelBody, required=False),
        conflicts=True,
    ),
    Route("POST", "/runs/{id}/redrive", _OPERATE, runs.redrive, {200: responses.RunAnswer}, conflicts=True),
    Route(
        "POST",
        "/runs/redrive",
        _OPERATE,
        runs.redrive_many,
        {200: responses.RedriveAnswer},
        body=_one(requests.RedriveBody),
    ),
    Route("GET", "/queues", _READ, cluster.list_queues, {200: list[responses.QueueAnswer]}),
    Route("POST", "/queues/{name}/pause", _OPERATE, cluster.pause_queue, {200: responses.QueueState}),
    Route("POST", "/queues/{name}/resume", _OPERATE, cluster.resume_queue, {200: responses.QueueState}),
    Route("GET", "/nodes", _READ, cluster.list_nodes, {200: list[responses.NodeAnswer]}),
    Route(
        "GET",
        "/events",
        _READ,
        events.follow_events,
        {200: Streamed((PublishedEvent, events.Gap))},
        query=queries.EventsQuery,
        headers=("Last-Event-ID",),
    ),
    Route("GET", "/config", _READ, settings.list_settings, {200: list[settings.SettingAnswer]}),
    Route("GET", "/config/{name}", _READ, settings.get_setting, {200: settings.SettingAnswer}),
    Route(
        "PUT",
        "/config/{name}",
        _ADMINISTER,
        settings.set_setting,
        {200: settings.SettingAnswer},
        body=_one(settings.SettingBody),
        conflicts=True,
        headers=_IF_MATCH,
    ),
    Route(
        "DELETE",
        "/config/{name}",
        _ADMINISTER,
        settings.unset_setting,
        {204: None},
        conflicts=True,
        headers=_IF_MATCH,
    ),
    Route("GET", "/audit", _ADMINISTER, cluster.audit, {200: list[responses.AuditAnswer]}, query=queries.AuditQuery),
    Route("POST", "/preview", _READ, cluster.preview, {200: responses.PreviewAnswer}, body=_one(requests.PreviewBody)),
    *VITALS,
)
