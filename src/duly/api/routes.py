"""The routes: one table for routing, authorisation, validation and the OpenAPI document.

Each route names the permission that it requires.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from duly.api import cluster, events, health, jobs, metrics, previews, queries, requests, responses, runs, submissions
from duly.api.calls import Call, Reply, Stream
from duly.api.json_input import converted
from duly.api.permissions import Permission
from duly.api.problems import Problem
from duly.model.published_event import PublishedEvent

Handle = Callable[[Call[Any, Any]], Awaitable[Reply | Stream]]

_NAMED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,255}")

TEXT = "text"  # instead of a type: the text format of Prometheus


class Streamed(Struct, frozen=True):
    """Instead of a type: server-sent events with data of one of these types."""

    data: tuple[Any, ...]


class Body(Struct, frozen=True):
    """The body of a request. `read` turns a JSON value into the handler's; `kinds` are the types it may have."""

    read: Callable[[Any], Any]
    kinds: tuple[Any, ...]
    required: bool = True


def _one(kind: type[Struct], *, required: bool = True) -> Body:
    return Body(lambda value: converted(value, kind), (kind,), required)


class Route(Struct, frozen=True):
    """One operation. `gives` maps statuses to the types of their documents; None means no body.

    `headers` names the request headers that the handler reads. `conflicts` adds 409 to the documented statuses, as does
    the header `If-Match`.
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
        """The first line of the handler's docstring."""
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

_SUBMISSIONS = Body(submissions.read_submissions, (requests.Submission, list[requests.Submission]))
_JOB_OR_SUBMISSIONS = Body(
    submissions.read_job_or_submissions, (requests.Submission, requests.Definition, list[requests.Submission])
)

_IF_MATCH = ("If-Match",)

# The routes of every process with a port, workers included.
HEALTH_ROUTES: tuple[Route, ...] = (
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
        submissions.submit_or_define,
        {201: _ACCEPTED | responses.JobAnswer, 200: _ACCEPTED | responses.JobAnswer},
        body=_JOB_OR_SUBMISSIONS,
        headers=("If-Match", "If-None-Match"),
    ),
    Route("GET", "/jobs", _READ, jobs.list_jobs, {200: _JOBS_OR_RUNS}, query=queries.JobsQuery),
    Route("GET", "/jobs/{id}", _READ, jobs.get_job, {200: _JOB_OR_RUN}),
    Route("DELETE", "/jobs/{id}", _OPERATE, jobs.remove, {204: None}, headers=_IF_MATCH),
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
        headers=_IF_MATCH,
    ),
    Route("POST", "/jobs/{id}/resume", _OPERATE, jobs.resume, {200: responses.JobAnswer}, headers=_IF_MATCH),
    Route(
        "POST",
        "/jobs/{id}/trigger",
        _OPERATE,
        jobs.trigger,
        {201: responses.Accepted},
        body=_one(requests.TriggerBody, required=False),
        headers=_IF_MATCH,
    ),
    Route(
        "POST",
        "/runs",
        _SUBMIT,
        submissions.submit,
        {201: _ACCEPTED, 200: _ACCEPTED},
        body=_SUBMISSIONS,
        conflicts=True,
    ),
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
    Route("GET", "/audit", _ADMINISTER, cluster.audit, {200: list[responses.AuditAnswer]}, query=queries.AuditQuery),
    Route("POST", "/preview", _READ, previews.preview, {200: responses.PreviewAnswer}, body=_one(requests.PreviewBody)),
    *HEALTH_ROUTES,
)


class Routing:
    """Finds the route of a path: by the whole path, or by the parts around its variable segment."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._exact: defaultdict[str, dict[str, Route]] = defaultdict(dict)
        self._shaped: defaultdict[tuple[str, str], dict[str, Route]] = defaultdict(dict)
        for route in routes:
            if route.variable is None:
                self._exact[route.path][route.method] = route
            else:
                before, _, after = route.path.partition("{" + route.variable + "}")
                self._shaped[before, after][route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, str]:
        """The route and the variable segment of the path; raises a `Problem` if there is none."""
        methods, name = self._exact.get(path), ""
        if methods is None:
            methods, name = self._by_shape(path)
        if methods is None:
            raise Problem(404, "not-found", f"there is nothing at {path}: see /openapi.json")
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
            raise Problem(
                405,
                "method-not-allowed",
                f"{method} {path}: the allowed methods are {allowed}",
                headers=((b"allow", allowed.encode()),),
            )
        return route, name

    def _by_shape(self, path: str) -> tuple[dict[str, Route] | None, str]:
        """`/jobs/{id}/runs` by what is before and after the segment, which must be a possible name or id.

        Other segments are refused here, so that no store is asked for them: some stores cannot store such characters.
        """
        parts = path.split("/")
        if len(parts) not in {3, 4} or not _NAMED.fullmatch(parts[2]):
            return None, ""
        after = f"/{parts[3]}" if len(parts) == 4 else ""
        return self._shaped.get((f"/{parts[1]}/", after)), parts[2]
