"""The routes: one table for routing, authorisation, validation and the OpenAPI document.

Each route names the permission that it requires.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from duly.api import (
    backfills,
    bulk_jobs,
    bulk_runs,
    cluster,
    events,
    health,
    job_versions,
    jobs,
    previews,
    queries,
    requests,
    run_logs,
    runs,
    settings,
    submissions,
)
from duly.api.calls import Call, Reply, Stream
from duly.api.json_input import converted
from duly.api.permissions import Permission
from duly.api.problems import Problem
from duly.api.responses import (
    Accepted,
    AuditAnswer,
    BackfillAnswer,
    BulkCancelAnswer,
    CancelAnswer,
    Defined,
    ExplanationAnswer,
    HealthAnswer,
    JobAnswer,
    LeaderAnswer,
    LogLineAnswer,
    ManyJobsAnswer,
    MetricsAnswer,
    NodeAnswer,
    PreviewAnswer,
    PurgeAnswer,
    QueueAnswer,
    QueueState,
    RedriveAnswer,
    RevisionAnswer,
    RollbackAnswer,
    RunAnswer,
    RunCountAnswer,
    RunDetail,
    Status,
)
from duly.api.settings import SettingAnswer
from duly.model.published_event import PublishedEvent

Handle = Callable[[Call[Any, Any]], Awaitable[Reply | Stream]]

_NAMED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,255}")

TEXT = "text"  # instead of a type: the text format of Prometheus


class Streamed(Struct, frozen=True):
    """Instead of a type: server-sent events with data of one of these types; or a document, where `document` is one."""

    data: tuple[Any, ...]
    document: Any = None


class Body(Struct, frozen=True):
    """The body of a request. `read` turns a JSON value into the handler's; `kinds` are the types it may have."""

    read: Callable[[Any], Any]
    kinds: tuple[Any, ...]
    required: bool = True


def _one(kind: type[Struct], *, required: bool = True) -> Body:
    return Body(lambda value: converted(value, kind), (kind,), required)


class Route(Struct, frozen=True):
    """One operation. `gives` maps statuses to the types of their documents; None means no body.

    `headers` names the request headers that the handler reads. `conflicts` says that 409 is among the statuses; with
    the header `If-Match` it always is.
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

_CREATED = dict.fromkeys((201, 200), Accepted | list[Accepted])
_DEFINED = dict.fromkeys((201, 200), Accepted | list[Accepted] | JobAnswer | list[Defined])
_BACKFILLED = dict.fromkeys((201, 200), BackfillAnswer)
_CANCELLED = dict.fromkeys((200, 202), CancelAnswer)
_JOB_OR_RUN = JobAnswer | RunDetail
_JOBS_OR_RUNS = list[JobAnswer] | list[RunAnswer]
_EVENTS = Streamed((PublishedEvent, events.Gap))
_LINES = Streamed((LogLineAnswer, run_logs.LogEnd), list[LogLineAnswer])

_SUBMISSIONS = Body(submissions.read_submissions, (requests.Submission, list[requests.Submission]))
_DEFINITIONS = (requests.Definition, list[requests.Definition])
_DEFINITION = Body(submissions.read_job_or_submissions, (*_SUBMISSIONS.kinds, *_DEFINITIONS))
_PAUSE = _one(requests.PauseBody, required=False)
_TRIGGER = _one(requests.TriggerBody, required=False)
_ROLLBACK = _one(requests.RollbackBody, required=False)
_BACKFILL = _one(requests.BackfillBody)
_CANCEL = _one(requests.CancelBody, required=False)
_REDRIVE = _one(requests.RedriveBody, required=False)
_RUNS_FILTER = _one(requests.RunsFilter)
_CANCEL_MANY = _one(requests.CancelMany)
_REDRIVE_MANY = _one(requests.RedriveMany)
_PURGE = _one(requests.PurgeBody)
_PAUSE_MANY = _one(requests.PauseMany)
_RESUME_MANY = _one(requests.ManyJobs)
_PREVIEW = _one(requests.PreviewBody)
_SETTING = _one(settings.SettingBody)

_MATCH = ("If-Match",)
_MATCH_OR_NEW = ("If-Match", "If-None-Match")
_LAST_ID = ("Last-Event-ID",)

# The routes of every process with a port, workers included.
HEALTH_ROUTES: tuple[Route, ...] = (
    Route("GET", "/health", _PUBLIC, health.get_health, {200: HealthAnswer, 503: HealthAnswer}),
    Route("GET", "/livez", _PUBLIC, health.livez, {200: Status}),
    Route("GET", "/readyz", _PUBLIC, health.readyz, {200: Status, 503: Status}),
    Route("GET", "/metrics", _READ, health.get_metrics, {200: MetricsAnswer | str}),
    Route("GET", "/metrics/prometheus", _READ, health.prometheus, {200: TEXT}),
    Route("GET", "/leader", _READ, cluster.leader, {200: LeaderAnswer}),
)

ROUTES: tuple[Route, ...] = (
    Route("POST", "/jobs", _SUBMIT, submissions.submit_or_define, _DEFINED, body=_DEFINITION, headers=_MATCH_OR_NEW),
    Route("GET", "/jobs", _READ, jobs.list_jobs, {200: _JOBS_OR_RUNS}, query=queries.JobsQuery),
    Route("GET", "/jobs/{id}", _READ, jobs.get_job, {200: _JOB_OR_RUN}),
    Route("DELETE", "/jobs/{id}", _OPERATE, jobs.remove, {204: None}, headers=_MATCH),
    Route("GET", "/jobs/{id}/runs", _READ, jobs.runs_of_job, {200: list[RunAnswer]}, query=queries.JobRunsQuery),
    Route("GET", "/jobs/{id}/explain", _READ, jobs.explain_job, {200: ExplanationAnswer}, query=queries.ExplainQuery),
    Route("POST", "/jobs/{id}/pause", _OPERATE, jobs.pause, {200: JobAnswer}, body=_PAUSE, headers=_MATCH),
    Route("POST", "/jobs/{id}/resume", _OPERATE, jobs.resume, {200: JobAnswer}, headers=_MATCH),
    Route("POST", "/jobs/{id}/trigger", _OPERATE, jobs.trigger, {201: Accepted}, body=_TRIGGER, headers=_MATCH),
    Route("GET", "/jobs/{id}/history", _READ, job_versions.history, {200: list[RevisionAnswer]}),
    Route(
        "POST",
        "/jobs/{id}/rollback",
        _OPERATE,
        job_versions.rollback,
        {200: RollbackAnswer},
        body=_ROLLBACK,
        headers=_MATCH,
    ),
    Route("POST", "/jobs/{id}/backfill", _OPERATE, backfills.backfill, _BACKFILLED, body=_BACKFILL, headers=_MATCH),
    Route("POST", "/jobs/{id}/restore", _OPERATE, jobs.restore, {200: JobAnswer}, headers=_MATCH),
    Route("POST", "/jobs/pause", _OPERATE, bulk_jobs.pause_jobs, {200: ManyJobsAnswer}, body=_PAUSE_MANY),
    Route("POST", "/jobs/resume", _OPERATE, bulk_jobs.resume_jobs, {200: ManyJobsAnswer}, body=_RESUME_MANY),
    Route("POST", "/runs", _SUBMIT, submissions.submit, _CREATED, body=_SUBMISSIONS, conflicts=True),
    Route("GET", "/runs", _READ, runs.list_runs, {200: list[RunAnswer]}, query=queries.RunsQuery),
    Route("GET", "/runs/{id}", _READ, runs.get_run, {200: RunDetail}),
    Route("GET", "/runs/{id}/logs", _READ, run_logs.get_logs, {200: _LINES}, query=queries.LogsQuery, headers=_LAST_ID),
    Route("GET", "/runs/{id}/explain", _READ, runs.explain_run, {200: ExplanationAnswer}),
    Route("POST", "/runs/{id}/cancel", _OPERATE, runs.cancel, _CANCELLED, body=_CANCEL, conflicts=True),
    Route("POST", "/runs/{id}/redrive", _OPERATE, runs.redrive, {200: RunAnswer}, body=_REDRIVE, conflicts=True),
    Route("POST", "/runs/count", _READ, bulk_runs.count, {200: RunCountAnswer}, body=_RUNS_FILTER),
    Route("POST", "/runs/cancel", _OPERATE, bulk_runs.cancel_many, {200: BulkCancelAnswer}, body=_CANCEL_MANY),
    Route("POST", "/runs/redrive", _OPERATE, bulk_runs.redrive_many, {200: RedriveAnswer}, body=_REDRIVE_MANY),
    Route("POST", "/runs/purge", _ADMINISTER, bulk_runs.purge, {200: PurgeAnswer}, body=_PURGE),
    Route("GET", "/queues", _READ, cluster.list_queues, {200: list[QueueAnswer]}),
    Route("POST", "/queues/{name}/pause", _OPERATE, cluster.pause_queue, {200: QueueState}),
    Route("POST", "/queues/{name}/resume", _OPERATE, cluster.resume_queue, {200: QueueState}),
    Route("GET", "/nodes", _READ, cluster.list_nodes, {200: list[NodeAnswer]}),
    Route("GET", "/events", _READ, events.follow_events, {200: _EVENTS}, query=queries.EventsQuery, headers=_LAST_ID),
    Route("GET", "/config", _READ, settings.list_settings, {200: list[SettingAnswer]}),
    Route("GET", "/config/{name}", _READ, settings.get_setting, {200: SettingAnswer}),
    Route(
        "PUT", "/config/{name}", _ADMINISTER, settings.set_setting, {200: SettingAnswer}, body=_SETTING, headers=_MATCH
    ),
    Route("DELETE", "/config/{name}", _ADMINISTER, settings.unset_setting, {204: None}, headers=_MATCH),
    Route("GET", "/audit", _ADMINISTER, cluster.audit, {200: list[AuditAnswer]}, query=queries.AuditQuery),
    Route("POST", "/preview", _READ, previews.preview, {200: PreviewAnswer}, body=_PREVIEW),
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
        """The route and the variable segment of the path; raises a `Problem` if there is none.

        `/jobs/pause` is a path of its own for POST; for GET it is the job of that name.
        """
        asked = "GET" if method == "HEAD" else method
        exact = self._exact.get(path, {})
        if asked in exact:
            return exact[asked], ""
        shaped, name = self._by_shape(path)
        if asked in shaped:
            return shaped[asked], name
        methods = {*exact, *shaped}
        if not methods:
            raise Problem(404, "not-found", f"there is nothing at {path}: see /openapi.json")
        allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
        raise Problem(
            405,
            "method-not-allowed",
            f"{method} {path}: the allowed methods are {allowed}",
            headers=((b"allow", allowed.encode()),),
        )

    def _by_shape(self, path: str) -> tuple[dict[str, Route], str]:
        """`/jobs/{id}/runs` by what is before and after the segment, which must be a possible name or id.

        Other segments are refused here, so that no store is asked for them: some stores cannot store such characters.
        """
        parts = path.split("/")
        if len(parts) not in {3, 4} or not _NAMED.fullmatch(parts[2]):
            return {}, ""
        after = f"/{parts[3]}" if len(parts) == 4 else ""
        return self._shaped.get((f"/{parts[1]}/", after), {}), parts[2]
