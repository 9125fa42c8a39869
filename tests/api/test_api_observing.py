"""What a process tells about itself: health, metrics as JSON and for Prometheus, the OpenAPI document."""

import json
from functools import partial

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.api.api_support import Caller, caller_for, shop

from duly import Scheduler
from duly.api import Api
from duly.api.openapi import document_of
from duly.api.routes import HEALTH_ROUTES, ROUTES
from duly.model import Lease, Run, State, from_micros
from duly.model import event as events
from duly.model.outcome import OutcomeKind
from duly.observe.metrics import Histogram, MetricsRecorder
from duly.observe.prometheus import DulyCollector

NOON = from_micros(1_800_000_000_000_000)


def families(text: str):
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(text: str, name: str, **labels) -> float:
    [found] = [
        sample.value
        for family in families(text).values()
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    return found


async def test_metrics_are_json_by_default_and_of_the_whole_cluster(admin, scheduler):
    for body in ({"payload": 1, "delay": 60}, {"payload": 2}, {"payload": 3}):
        await admin.post("/jobs", body)
    before = (await admin.get("/metrics")).json
    assert (before["pending_jobs"], before["queued_jobs"], before["running_jobs"]) == (1, 2, 0)
    assert (before["jobs_dispatched"], before["last_dispatch"]) == (0, 0)
    async with scheduler:
        bad = await scheduler.submit("explode")
        for run in (await scheduler.runs(state=[State.QUEUED, State.PENDING])).runs:
            if run.ready_at < NOON and run.due <= run.created_at:
                await (await scheduler.opened()).ended(run.id, 30)
        await (await scheduler.opened()).ended(bad.id, 30)
        after = (await admin.get("/metrics", accept="application/json")).json
    assert (after["completed_jobs"], after["failed_jobs"]) == (2, 1)
    assert after["pending_jobs"] >= 1
    assert after["jobs_dispatched"] == 3
    assert isinstance(after["timestamp"], int)
    assert isinstance(after["last_dispatch"], int)
    assert 0 <= after["timestamp"] - after["last_dispatch"] < 60
    assert set(before) == {
        "timestamp",
        "pending_jobs",
        "queued_jobs",
        "running_jobs",
        "completed_jobs",
        "failed_jobs",
        "cancelled_jobs",
        "lost_jobs",
        "skipped_jobs",
        "jobs_dispatched",
        "last_dispatch",
        "at_least",
    }
    assert before["at_least"] == after["at_least"] == []


@pytest.fixture
async def counting_few(tmp_path, monkeypatch):
    """An administrator of a store that counts two runs, in which more wait."""
    scheduler = shop(f"sqlite:///{tmp_path}/few.db")
    async with scheduler.client():
        store = (await scheduler.opened()).backend.store
        monkeypatch.setattr(store, "counts", partial(store.counts, scan=2))
        for _ in range(5):
            await scheduler.submit("note", queue="long")
        await scheduler.submit("note", queue="later", delay=60)
        yield await caller_for(scheduler)


async def test_numbers_that_are_lower_bounds_are_marked(counting_few):
    queues = {queue["name"]: queue for queue in (await counting_few.get("/queues")).json}
    assert queues["long"]["at_least"] == ["queued"]
    assert 1 < queues["long"]["queued"] < 5
    assert (queues["later"]["pending"], queues["later"]["at_least"]) == (1, [])
    metrics = (await counting_few.get("/metrics")).json
    assert (metrics["queued_jobs"], metrics["at_least"]) == (queues["long"]["queued"], ["queued"])
    text = (await counting_few.get("/metrics/prometheus")).body.decode()
    assert value(text, "duly_runs_at_least", state="queued") == 1
    assert value(text, "duly_runs_at_least", state="pending") == 0
    assert value(text, "duly_queue_runs_at_least", queue="long", state="queued") == 1
    assert value(text, "duly_queue_runs_at_least", queue="later", state="pending") == 0
    assert value(text, "duly_queue_runs", queue="long", state="queued") == queues["long"]["queued"]


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("text/plain;version=0.0.4", "text/plain"),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics",
        ),
        ("application/json, text/plain;q=0.5", "application/json"),
    ],
)
async def test_what_the_scraper_accepts_decides(caller, accept, kind):
    answer = await caller.get("/metrics", accept=accept)
    assert answer.headers["content-type"].startswith(kind)


async def test_prometheus_has_runs_queues_and_the_process(admin, scheduler):
    async with scheduler:
        good = await scheduler.submit("greet", {"name": "Ada"})
        bad = await scheduler.submit("explode")
        for handle in (good, bad):
            await (await scheduler.opened()).ended(handle.id, 30)
        waiting = await scheduler.submit("note", queue="slow", delay=3600)
        text = (await admin.get("/metrics/prometheus")).body.decode()
    assert waiting
    assert value(text, "duly_runs_ended_total", job="greet", queue="mail", outcome="succeeded") == 1
    assert value(text, "duly_runs_ended_total", job="explode", queue="default", outcome="failed") == 1
    assert value(text, "duly_runs_started_total", job="greet", queue="mail") == 1
    assert value(text, "duly_run_duration_seconds_count", job="greet") == 1
    assert value(text, "duly_run_lateness_seconds_count", job="greet") == 1
    assert value(text, "duly_queue_runs", queue="slow", state="pending") == 1
    assert value(text, "duly_queue_oldest_seconds", queue="slow") == 0
    assert value(text, "duly_runs_final_total", state="completed") == 1
    assert value(text, "duly_store_latency_seconds_count", call="claim") >= 1
    assert value(text, "duly_settle_batch_runs_count") >= 1
    assert "process_cpu_seconds_total" in text


def run(job="report", queue="default"):
    return Run(id="0" * 26, job=job, handler=job, queue=queue, due=NOON, ready_at=NOON)


def test_meters_count_what_is_told():
    meters = MetricsRecorder()
    for event in (
        events.RunStarted(run(), 0.02),
        events.RunEnded(run(), OutcomeKind.FAILED, State.PENDING, 0.3, retry_at=NOON),
        events.RunEnded(run(), OutcomeKind.SUCCEEDED, State.COMPLETED, 0.2),
        events.RunsClaimed(7, 0.001),
        events.RunsSettled(3, 0.002),
        events.RunsReaped(("a", "b"), ("n",)),
        events.ClaimsLost(("a",)),
        events.LeaderElected(Lease("main", "n", 1, NOON), 1),
        events.LeaderLost("main", resigned=True),
        events.LeaderElected(Lease("main/3", "n", 1, NOON), 1),
        events.LoopStalled(5.0, ""),
    ):
        meters(event)
    registry = CollectorRegistry()
    registry.register(DulyCollector(meters))
    text = generate_latest(registry).decode()
    assert value(text, "duly_runs_ended_total", job="report", queue="default", outcome="retried") == 1
    assert value(text, "duly_runs_ended_total", job="report", queue="default", outcome="succeeded") == 1
    assert value(text, "duly_run_lateness_seconds_bucket", job="report", le="0.025") == 1
    assert value(text, "duly_run_lateness_seconds_bucket", job="report", le="0.01") == 0
    assert value(text, "duly_claim_batch_runs_sum") == 7
    assert value(text, "duly_leader_changes_total") == 2
    assert value(text, "duly_shard_changes_total") == 1
    assert value(text, "duly_reaped_total") == 2
    assert value(text, "duly_claims_lost_total") == 1
    assert value(text, "duly_loop_stalls_total") == 1


def test_a_scraper_does_not_drown_in_names():
    meters = MetricsRecorder()
    for number in range(1500):
        meters(events.RunStarted(run(f"job{number}"), 0.0))
    assert len(meters.lateness) == 1001
    assert meters.started["(other)", "default"] == 500


def test_a_histogram_counts_up_to_its_bounds():
    histogram = Histogram((1.0, 2.0))
    for each in (0.5, 1.0, 1.5, 99.0):
        histogram.add(each)
    assert histogram.cumulated() == [("1.0", 2.0), ("2.0", 3.0), ("+Inf", 4.0)]
    assert histogram.total == 102.0


async def test_health_of_a_node_names_it(url):
    scheduler = shop(url, node_id="node-1")
    async with scheduler:
        caller = await caller_for(scheduler)
        answer = await caller.with_token(None).get("/health")
        assert answer.status == 200
        assert (answer.json["status"], answer.json["instance_id"]) == ("healthy", "node-1")
        assert answer.json["role"] == "scheduler+worker"
        assert (await caller.get("/livez")).json == {"status": "alive"}
        assert (await caller.get("/readyz")).json == {"status": "ready"}


async def test_a_store_that_cannot_be_reached_is_unhealthy_and_not_ready_but_alive():
    caller = Caller(Api(Scheduler("redis://127.0.0.1:1")))
    assert (await caller.get("/livez")).status == 200
    health = await caller.get("/health")
    assert (health.status, health.json["status"], health.json["coordinator_health"]) == (503, "unhealthy", False)
    assert (await caller.get("/readyz")).status == 503


# --- the document


def test_the_document_describes_every_route_and_nothing_else():
    document = json.loads(document_of(ROUTES))
    assert document["openapi"] == "3.1.0"
    told = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert told == {(route.method, route.path) for route in ROUTES}
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))
    for methods in document["paths"].values():
        for operation in methods.values():
            assert operation["summary"].endswith((".", "not well."))


def test_references_in_the_document_lead_somewhere():
    document = json.loads(document_of(ROUTES))

    def references(value):
        if isinstance(value, dict):
            yield from ([value["$ref"]] if "$ref" in value else [])
            for each in value.values():
                yield from references(each)
        elif isinstance(value, list):
            for each in value:
                yield from references(each)

    for reference in set(references(document)):
        assert reference.rpartition("/")[2] in document["components"]["schemas"]


async def test_a_worker_has_the_vitals_only(memory):
    api = Api(memory, routes=HEALTH_ROUTES)
    caller = Caller(api)
    document = (await caller.get("/openapi.json")).json
    assert set(document["paths"]) == {route.path for route in HEALTH_ROUTES} | {"/openapi.json"}
    assert (await caller.get("/jobs")).status == 404


async def test_it_can_be_mounted_below_a_path(caller):
    told = []

    async def send(message):
        told.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/duly/livez",
        "root_path": "/duly",
        "query_string": b"",
        "headers": [],
    }
    await caller.api(scope, receive, send)
    assert told[0]["status"] == 200


async def test_a_server_that_tells_its_life_opens_and_closes_the_store():
    scheduler = shop("memory://")
    api = Api(scheduler)
    inbox = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    told = []

    async def receive():
        return inbox.pop(0)

    async def send(message):
        told.append((message["type"], scheduler._sessions.is_open()))

    await api({"type": "lifespan"}, receive, send)
    assert told == [("lifespan.startup.complete", True), ("lifespan.shutdown.complete", False)]


async def test_a_fault_of_ours_is_logged_under_an_id_and_tells_nothing(caller, memory, caplog, monkeypatch):
    async def broken(*_, **__):
        raise RuntimeError("the cellar is flooded")

    monkeypatch.setattr(memory, "nodes", broken)
    answer = await caller.get("/nodes")
    assert answer.status == 500
    assert "cellar" not in answer.body.decode()
    fault = answer.problem["detail"].rpartition(" ")[2]
    [record] = [record for record in caplog.records if fault in record.getMessage()]
    assert "the cellar is flooded" in record.exc_text
