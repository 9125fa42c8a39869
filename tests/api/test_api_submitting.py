"""Submitting work over HTTP: what comes in, what comes back, and that it is in the store."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from tests.api.api_support import Caller, caller_for, new_token, shop

from duly import ConfigurationError, Scheduler, State
from duly.api import Api
from duly.api.config import ApiSettings

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.mark.parametrize("path", ["/jobs", "/runs"])
async def test_a_submission_is_accepted_as_pending_and_is_in_the_store(admin, scheduler, path):
    before = datetime.now(UTC)
    answer = await admin.post(path, {"payload": "process me", "priority": 5})
    assert answer.status == 201
    document = answer.json
    assert set(document) == {"id", "status", "created_at"}
    assert document["status"] == "pending"
    assert INSTANT.fullmatch(document["created_at"])
    assert abs(datetime.fromisoformat(document["created_at"]) - before) < timedelta(seconds=10)
    run = await scheduler.get_run(document["id"])
    assert (run.handler, run.priority, run.payload) == ("note", 5, b'{"payload":"process me"}')


@pytest.mark.parametrize("payload", ["text", 7, 1.5, True, None, [1, {"a": []}]])
async def test_what_is_no_object_becomes_the_single_parameter_payload(caller, memory, payload):
    async with memory:
        accepted = await caller.post("/jobs", {"payload": payload})
        assert accepted.status == 201
        assert await memory._result(accepted.json["id"], 20) == payload
        assert (await caller.get(f"/jobs/{accepted.json['id']}")).json["result"] == payload


async def test_an_object_becomes_the_keyword_arguments_of_the_named_handler(caller, memory):
    async with memory:
        accepted = await caller.post("/jobs", {"handler": "greet", "payload": {"name": "Ada", "times": 2}})
        assert await memory._result(accepted.json["id"], 20) == "hello Ada hello Ada"


async def test_a_job_is_told_as_it_stands_with_worker_and_instants(admin, scheduler):
    run_id = (await admin.post("/jobs", {"payload": "x"})).json["id"]
    waiting = (await admin.get(f"/jobs/{run_id}")).json
    assert waiting["status"] in {"pending", "queued"}
    assert (waiting["worker_id"], waiting["started_at"], waiting["completed_at"]) == (None, None, None)
    async with scheduler:
        await scheduler._result(run_id, 30)
        done = (await admin.get(f"/jobs/{run_id}")).json
        node = (await scheduler.nodes())[0].id
    assert (done["id"], done["status"], done["worker_id"]) == (run_id, "completed", node)
    for field in ("created_at", "started_at", "completed_at", "due", "ready_at"):
        assert INSTANT.fullmatch(done[field]), field
    assert done["created_at"] <= done["started_at"] <= done["completed_at"]
    assert [attempt["outcome"] for attempt in done["attempts"]] == ["succeeded"]


async def test_a_second_submission_with_an_unfinished_key_answers_the_first(admin):
    first = await admin.post("/jobs", {"payload": "a", "dedupe_key": "one"})
    second = await admin.post("/jobs", {"payload": "b", "dedupe_key": "one"})
    assert (first.status, second.status) == (201, 200)
    assert second.json["id"] == first.json["id"]
    assert second.json["deduplicated"] is True
    assert "deduplicated" not in first.json


async def _ended(scheduler, run_id):
    async with scheduler:
        await scheduler._result(run_id, 30)


async def test_a_key_is_unique_for_a_day_whatever_becomes_of_its_run(admin, scheduler):
    first = await admin.post("/jobs", {"payload": "a", "dedupe_key": "one"})
    await _ended(scheduler, first.json["id"])
    second = await admin.post("/runs", {"payload": "b", "dedupe_key": "one"})
    assert second.status == 200
    assert second.json == first.json | {"status": "completed", "deduplicated": True}
    told = (await admin.get(f"/jobs/{first.json['id']}")).json
    assert told["created_at"] == first.json["created_at"]


async def test_a_key_outlives_the_purge_of_its_run(admin, scheduler):
    first = await admin.post("/jobs", {"payload": "a", "dedupe_key": "one"})
    await _ended(scheduler, first.json["id"])
    store = (await scheduler.opened()).backend.store
    assert await store.purge(State.COMPLETED, None, 0, 10) == 1
    second = await admin.post("/jobs", {"payload": "b", "dedupe_key": "one"})
    assert second.status == 200
    assert second.json == first.json | {"status": None, "deduplicated": True}


@pytest.mark.parametrize("asked", [{"unique_for": None}, {"unique_for": "1ms"}])
async def test_a_caller_says_for_how_long_a_key_is_unique(admin, scheduler, asked):
    body = {"payload": "a", "dedupe_key": "one", **asked}
    first = await admin.post("/jobs", body)
    await _ended(scheduler, first.json["id"])
    assert (await admin.post("/jobs", body)).status == 201


async def test_a_server_says_for_how_long_keys_are_unique(memory):
    caller = await caller_for(memory, "admin", unique_for=None)
    body = {"payload": "a", "dedupe_key": "one"}
    first = await caller.post("/jobs", body)
    await _ended(memory, first.json["id"])
    assert (await caller.post("/jobs", body)).status == 201
    with pytest.raises(ConfigurationError, match="unique_for"):
        ApiSettings(unique_for=-1.0)


@pytest.mark.parametrize("unique_for", [0, -1, "x", 1e12, "200w", True, []])
async def test_a_time_that_is_none_is_refused(admin, unique_for):
    answer = await admin.post("/jobs", {"payload": "a", "dedupe_key": "one", "unique_for": unique_for})
    assert answer.status == 422


async def test_unique_without_a_key_is_refused(admin):
    answer = await admin.post("/jobs", {"payload": "a", "unique_for": 60})
    assert answer.status == 422
    assert "dedupe_key" in answer.json["detail"]


async def test_schedule_at_and_delay_say_when(admin, scheduler):
    at = await admin.post("/jobs", {"payload": 1, "schedule_at": "2036-12-25T10:00:00+01:00"})
    later = await admin.post("/jobs", {"payload": 1, "delay": "1h30m"})
    assert (await scheduler.get_run(at.json["id"])).due == datetime(2036, 12, 25, 9, tzinfo=UTC)
    assert (await admin.get(f"/jobs/{at.json['id']}")).json["due"] == "2036-12-25T09:00:00.000000Z"
    run = await scheduler.get_run(later.json["id"])
    left = run.due - datetime.now(UTC)  # by the store's clock, and never shorter than asked for
    assert timedelta(minutes=89) < left < timedelta(minutes=90, seconds=1)


async def test_timeout_retry_and_queue_travel_with_the_run(admin, scheduler):
    body = {"payload": 1, "queue": "slow", "timeout": "10m", "retry": {"max_retries": 7, "initial_interval": "2s"}}
    run = await scheduler.get_run((await admin.post("/jobs", body)).json["id"])
    assert run.queue == "slow"
    assert run.policy.timeout == 600
    assert (run.policy.retry.max_retries, run.policy.retry.initial_interval) == (7, 2.0)
    never = await scheduler.get_run((await admin.post("/jobs", {"retry": None})).json["id"])
    assert never.policy.retry.max_retries == 0


async def test_an_array_submits_many_and_is_answered_in_order(admin, scheduler):
    bodies = [{"payload": number, "priority": number % 10} for number in range(25)]
    bodies += [{"payload": "twice", "dedupe_key": "k"}, {"payload": "twice", "dedupe_key": "k"}]
    answer = await admin.post("/jobs", bodies)
    assert answer.status == 201
    assert len(answer.json) == 27
    runs = [await scheduler.get_run(each["id"]) for each in answer.json[:25]]
    assert [run.priority for run in runs] == [number % 10 for number in range(25)]
    assert answer.json[25]["id"] == answer.json[26]["id"]
    assert answer.json[26]["deduplicated"] is True


async def test_one_bad_submission_of_many_submits_none(admin, scheduler):
    answer = await admin.post("/runs", [{"payload": 1}, {"payload": 1, "handler": "nobody"}])
    assert answer.status == 422
    assert answer.problem["errors"][0]["pointer"] == "/1"
    assert not (await scheduler.runs()).runs


@pytest.mark.parametrize(
    ("bad", "status", "pointer"),
    [
        ({"handler": "nobody"}, 422, "/3"),
        ({"handler": "greet", "payload": {"nobody": 1}}, 422, "/3/payload"),
        ({"payload": "x" * 300_000}, 413, "/3/payload"),
        ({"priority": 10}, 422, "/3/priority"),
        ({"delay": 5, "schedule_at": "2030-01-01T00:00:00Z"}, 422, "/3"),
        ({"schedule_at": "0001-01-01T00:00:00+14:00"}, 422, "/3/schedule_at"),
    ],
    ids=str,
)
async def test_what_is_wrong_with_one_of_many_says_which_one_it_is(caller, memory, bad, status, pointer):
    answer = await caller.post("/runs", [{"payload": 1}, {"payload": 2}, {"payload": 3}, {"payload": 4, **bad}])
    assert answer.status == status
    assert answer.problem["errors"][0]["pointer"] == pointer
    assert "3" in answer.problem["detail"]
    assert not (await memory.runs()).runs


async def test_a_limited_token_learns_which_of_many_it_may_not_submit(memory):
    limited = Caller(Api(memory), await new_token(memory, "submitter", handlers=["greet"]))
    ada = {"handler": "greet", "payload": {"name": "Ada"}}
    answer = await limited.post("/runs", [ada, {"payload": 1}])
    assert (answer.status, answer.problem["errors"][0]["pointer"]) == (403, "/1")
    assert not (await memory.runs()).runs


async def test_what_is_made_can_be_found_at_its_location(admin):
    made = [
        await admin.post("/runs", {"payload": 1}),
        await admin.post("/jobs", {"payload": 1}),
        await admin.post("/jobs", {"name": "report", "handler": "note", "schedule": "@daily"}),
        await admin.post("/jobs/report/trigger"),
    ]
    for answer in made:
        assert answer.status == 201
        found = await admin.get(answer.headers["location"])
        assert found.status == 200
        key = "id" if "id" in answer.json else "name"
        assert answer.json[key] == found.json[key]
    assert "location" not in (await admin.post("/runs", [{"payload": 1}])).headers


async def test_a_location_is_below_the_place_where_the_application_is_mounted(caller):
    below = Caller(caller.api, caller.token, root="/duly")
    run = await below.post("/duly/runs", {"payload": 1})
    assert run.status == 201
    assert run.headers["location"] == f"/duly/runs/{run.json['id']}"
    assert (await below.get(run.headers["location"])).status == 200


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ({"payload": 1, "priority": 10}, "/priority", "<= 9"),
        ({"payload": 1, "priority": "5"}, "/priority", "int"),
        ({"payload": 1, "schedule_at": "2026-12-25T10:00:00"}, "/schedule_at", "timezone"),
        ({"payload": 1, "schedule_at": "soon"}, "/schedule_at", "RFC3339"),
        ({"payload": 1, "colour": "red"}, None, "colour"),
        ({"payload": 1, "handler": "os.system"}, None, "no such handler is registered"),
        ({"payload": {"nobody": 1}, "handler": "greet"}, "/payload", "it takes (name: str"),
        ({"payload": {"name": 7}, "handler": "greet"}, "/payload", "Expected `str`"),
        ({"payload": 1, "delay": "soon"}, "/delay", ""),
        ({"payload": 1, "delay": 5, "schedule_at": "2030-01-01T00:00:00Z"}, None, "give one of them"),
        ({"payload": 1, "dedupe_key": ""}, "/dedupe_key", "length >= 1"),
        ({"payload": 1, "timeout": 0}, "/timeout", "> 0"),
        ([], None, "array"),
        (["x"], "/0", "object"),
        ("text", None, "object"),
    ],
)
async def test_what_is_not_valid_is_refused_with_the_field_and_the_way_out(caller, memory, body, pointer, words):
    answer = await caller.post("/jobs", body)
    assert answer.status == 422
    assert words in answer.problem["detail"]
    if pointer is not None:
        assert answer.problem["errors"][0]["pointer"] == pointer
    assert not (await memory.runs()).runs


async def test_without_a_default_handler_one_must_be_named():
    async with shop("memory://", default_handler=None).client() as scheduler:
        caller = await caller_for(scheduler)
        answer = await caller.post("/jobs", {"payload": 1})
        assert answer.status == 422
        assert "default_handler" in answer.problem["detail"]
        assert (await caller.post("/jobs", {"payload": {"name": "Ada"}, "handler": "greet"})).status == 201


@pytest.mark.parametrize("url", ["sqlite", "redis"], indirect=True)
async def test_a_handler_that_only_a_live_worker_has_is_known(url):
    worker = shop(url)
    async with worker, Scheduler(url).client() as remote:
        caller = await caller_for(remote)
        accepted = await caller.post("/jobs", {"handler": "greet", "payload": {"name": "Ada"}})
        assert accepted.status == 201
        assert await worker._result(accepted.json["id"], 30) == "hello Ada"
        assert (await worker.get_run(accepted.json["id"])).state is State.COMPLETED


async def test_a_payload_that_is_too_large_is_413(memory):
    caller = await caller_for(memory, max_body_bytes=500_000)
    assert (await caller.post("/jobs", {"payload": "x" * 300_000})).problem["type"].endswith("too-large")
    answer = await caller.post("/jobs", {"payload": "x" * 600_000})
    assert answer.status == 413
    assert "500000 bytes" in answer.problem["detail"]
