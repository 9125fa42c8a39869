"""Many runs and jobs at once: counted first, changed as they were counted, in slices, and written down."""

import asyncio
from datetime import datetime, timedelta
from unittest.mock import ANY
from zoneinfo import ZoneInfo

import pytest
from tests.api.api_support import Caller, caller_for, new_token, shop

from duly.api.rates import Limits
from duly.rules.rate_limits import Rate
from duly.scheduler import bulk_runs
from duly.testing.clock import ManualClock

LATER = {"delay": 3600}


async def submitted(admin, number: int, **fields) -> list[str]:
    answer = await admin.post("/runs", [{**LATER, "payload": each, **fields} for each in range(number)])
    assert answer.status == 201, answer
    return [each["id"] for each in answer.json]


async def states(admin, ids) -> list[str]:
    return [(await admin.get(f"/runs/{run}")).json["status"] for run in ids]


# --- counting


async def test_a_filter_is_counted_with_samples(admin):
    ids = await submitted(admin, 7)
    await submitted(admin, 2, handler="greet", payload={"name": "Ada"})
    answer = (await admin.post("/runs/count", {"job": "note"})).json
    assert (answer["count"], answer["exact"], answer["jobs"], answer["searched_to"]) == (7, True, ["note"], None)
    assert {run["id"] for run in answer["samples"]} < set(ids)
    assert len(answer["samples"]) == 5
    both = (await admin.post("/runs/count", {"status": ["pending"]})).json
    assert (both["count"], both["jobs"]) == (9, ["greet", "note"])


async def test_a_filter_must_say_something(admin):
    ids = await submitted(admin, 1)
    for path in ("count", "cancel", "redrive"):
        answer = await admin.post(f"/runs/{path}", {})
        assert answer.status == 422
        assert "the filter is empty" in answer.problem["detail"]
    assert await states(admin, ids) == ["pending"]


async def test_a_count_has_a_bound_and_says_so(admin, monkeypatch):
    monkeypatch.setattr(bulk_runs, "MOST_COUNTED", 4)
    monkeypatch.setattr(bulk_runs, "SLICE", 2)
    await submitted(admin, 5)
    answer = (await admin.post("/runs/count", {"job": "note"})).json
    assert (answer["count"], answer["exact"]) == (4, False)


async def test_a_search_that_finds_little_has_a_bound(memory, monkeypatch):
    monkeypatch.setattr(bulk_runs, "SLICE", 2)
    monkeypatch.setattr(bulk_runs, "_MOST_SLICES", 2)
    caller = await caller_for(memory)
    await submitted(caller, 9)
    answer = (await caller.post("/runs/count", {"where": ["payload.payload:0"]})).json
    assert answer["count"] <= 1
    looked = (await caller.post("/runs/cancel", {"job": "note", "limit": 10_000})).json
    assert looked == {"cancelled": 4, "cancelling": 0, "left": 0, "next": ANY}


async def test_a_misspelt_filter_is_refused_with_a_hint(admin):
    answer = await admin.post("/runs/cancel", {"handlr": "note"})
    assert answer.status == 422
    assert "did you mean handler?" in answer.problem["detail"]


# --- cancelling and redriving


async def test_all_that_match_are_cancelled(admin, scheduler):
    notes, greetings = await submitted(admin, 3), await submitted(admin, 2, handler="greet", payload={"name": "Ada"})
    answer = await admin.post("/runs/cancel", {"job": "note", "reason": "by mistake"})
    assert answer.json == {"cancelled": 3, "cancelling": 0, "left": 0}
    assert await states(admin, notes) == ["cancelled"] * 3
    assert await states(admin, greetings) == ["pending"] * 2
    assert (await admin.get(f"/runs/{notes[0]}")).json["reason"] == "by mistake"
    [entry] = (await admin.get("/audit")).json
    assert (entry["action"], entry["target"]) == ("cancel", "3 runs")
    assert entry["after"]["filter"] == {"job": "note", "states": ["pending", "queued", "running"]}
    assert sorted(entry["after"]["runs"]) == sorted(notes)
    assert entry["after"]["reason"] == "by mistake"


async def test_only_what_matched_when_it_was_counted_is_changed(admin):
    first = await submitted(admin, 3)
    counted = (await admin.post("/runs/count", {"job": "note"})).json
    second = await submitted(admin, 2)
    done = (await admin.post("/runs/cancel", {"job": "note", "as_of": counted["as_of"]})).json
    assert done == {"cancelled": 3, "cancelling": 0, "left": 0}
    assert await states(admin, [*first, *second]) == ["cancelled"] * 3 + ["pending"] * 2
    # What has ended since is not run again, although it matches now.
    counted = (await admin.post("/runs/count", {"status": ["cancelled"]})).json
    await admin.post(f"/runs/{second[0]}/cancel")
    body = {"status": ["cancelled"], "as_of": counted["as_of"]}
    assert (await admin.post("/runs/redrive", body)).json == {"redriven": 3, "left": 0}
    assert await states(admin, second) == ["cancelled", "pending"]


async def test_a_long_operation_goes_on_from_its_cursor(admin):
    ids = await submitted(admin, 7)
    body, numbers = {"job": "note", "limit": 3}, []
    while True:
        answer = (await admin.post("/runs/cancel", body)).json
        numbers.append(answer["cancelled"])
        if "next" not in answer:
            break
        body["cursor"] = answer["next"]
    assert (sum(numbers), max(numbers)) == (7, 3)
    assert await states(admin, ids) == ["cancelled"] * 7
    forged = await admin.post("/runs/cancel", {"job": "note", "cursor": "made-up"})
    assert (forged.status, forged.problem["errors"][0]["pointer"]) == (422, "/cursor")


async def test_runs_are_chosen_by_their_ids(admin):
    ids = await submitted(admin, 4)
    await admin.post(f"/runs/{ids[3]}/cancel")
    named = [ids[0], ids[1], ids[0], ids[3], "00000000000000000000000000", "nothing like an id", "\u2028"]
    done = (await admin.post("/runs/cancel", {"ids": named})).json
    assert done == {"cancelled": 2, "cancelling": 0, "left": 4}
    assert await states(admin, ids) == ["cancelled", "cancelled", "pending", "cancelled"]
    done = (await admin.post("/runs/redrive", {"ids": ids})).json
    assert done == {"redriven": 3, "left": 1}
    both = await admin.post("/runs/cancel", {"ids": ids, "job": "note"})
    assert (both.status, "both given" in both.problem["detail"]) == (422, True)
    for odd in ([], [1], ["x"] * 1001, "x"):
        assert (await admin.post("/runs/cancel", {"ids": odd})).status == 422


async def test_a_state_that_cannot_be_changed_is_refused(admin):
    for path, state in (
        ("cancel", "failed"),
        ("cancel", "completed"),
        ("redrive", "completed"),
        ("redrive", "running"),
    ):
        answer = await admin.post(f"/runs/{path}", {"status": [state]})
        assert answer.status == 422
        assert answer.problem["errors"][0]["pointer"] == "/status"


async def test_runs_are_chosen_by_what_they_are(admin):
    ids = await submitted(admin, 5)
    done = await admin.post("/runs/cancel", {"where": ["payload.payload:2"]})
    assert done.json["cancelled"] == 1
    await admin.post("/runs/cancel", {"status": ["pending"], "not_text": [f'"payload":{n}' for n in (0, 1)]})
    assert await states(admin, ids) == ["pending", "pending", "cancelled", "cancelled", "cancelled"]


async def test_a_rate_that_is_reached_on_the_way_ends_the_call_with_a_cursor(memory, monkeypatch):
    monkeypatch.setattr(bulk_runs, "SLICE", 2)
    free = await caller_for(memory)
    caller = await caller_for(memory, limits=Limits(handlers={"note": Rate(0.001, 3)}))
    ids = await submitted(free, 5)
    await free.post("/runs/cancel", {"job": "note"})
    some = (await caller.post("/runs/redrive", {"status": ["cancelled"]})).json
    assert some == {"redriven": 2, "left": 0, "next": ANY}
    assert (await caller.post("/runs/redrive", {"status": ["cancelled"], "cursor": some["next"]})).status == 429
    rest = (await free.post("/runs/redrive", {"status": ["cancelled"], "cursor": some["next"]})).json
    assert rest == {"redriven": 3, "left": 0}
    assert await states(free, ids) == ["queued"] * 5


@pytest.mark.parametrize("url", ["sqlite", "redis"], indirect=True)
async def test_running_runs_are_asked_to_stop(url):
    scheduler = shop(url)
    begun = asyncio.Event()

    @scheduler.job
    async def linger() -> None:
        begun.set()
        await asyncio.sleep(3600)

    async with scheduler:
        admin = await caller_for(scheduler)
        run = await scheduler.submit("linger")
        await asyncio.wait_for(begun.wait(), 30)
        done = (await admin.post("/runs/cancel", {"handler": "linger"})).json
        assert done == {"cancelled": 0, "cancelling": 1, "left": 0}
        assert (await (await scheduler.opened()).ended(run.id, 30)).state == "cancelled"


# --- one run with another payload


async def test_a_run_is_redriven_with_another_payload(admin, scheduler):
    [run] = await submitted(admin, 1, handler="greet", payload={"name": "Ada"})
    await admin.post(f"/runs/{run}/cancel")
    wrong = await admin.post(f"/runs/{run}/redrive", {"payload": {"nam": "Bob"}})
    assert (wrong.status, "did you mean name?" in wrong.problem["detail"]) == (422, True)
    assert await states(admin, [run]) == ["cancelled"]
    again = await admin.post(f"/runs/{run}/redrive", {"payload": {"name": "Bob"}})
    assert (again.status, again.json["id"]) == (200, run)
    assert (await admin.get(f"/runs/{run}")).json["payload"] == {"name": "Bob"}
    entry = (await admin.get("/audit")).json[-1]
    assert entry["before"] == {"status": "cancelled", "payload": {"name": "Ada"}}
    assert entry["after"] == {"payload": {"name": "Bob"}}


# --- purging


async def test_ended_runs_are_purged(admin, scheduler):
    ids = await submitted(admin, 3)
    await admin.post("/runs/cancel", {"ids": ids[:2]})
    now = (await scheduler.opened()).clock.now()
    body = {"status": ["cancelled"], "before": (now - timedelta(hours=1)).isoformat()}
    assert (await admin.post("/runs/purge", body)).json == {"purged": 0, "more": False}
    body["before"] = (now + timedelta(hours=1)).isoformat()
    assert (await admin.post("/runs/purge", {**body, "limit": 1})).json == {"purged": 1, "more": True}
    assert (await admin.post("/runs/purge", body)).json == {"purged": 1, "more": False}
    assert [run["id"] for run in (await admin.get("/runs")).json] == ids[2:]
    assert [entry["target"] for entry in (await admin.get("/audit")).json if entry["action"] == "purge"] == [
        "1 run"
    ] * 2
    assert (await admin.post("/runs/purge", {"status": ["pending"], "before": body["before"]})).status == 422
    assert (await admin.post("/runs/purge", {"status": ["failed"]})).status == 422


# --- jobs


def report(**fields):
    return {"name": "report", "schedule": "@daily", "handler": "note", **fields}


async def test_jobs_are_paused_and_resumed_by_name_and_by_tag(admin):
    for name, tags in (("one", ["red"]), ("two", ["red", "blue"]), ("three", [])):
        await admin.post("/jobs", report(name=name, tags=tags))
    named = (await admin.post("/jobs/pause", {"names": ["one", "three", "one", "nobody"], "note": "moving"})).json
    assert named == {"changed": ["one", "three"], "unchanged": [], "unknown": ["nobody"]}
    tagged = (await admin.post("/jobs/pause", {"tag": "red"})).json
    assert tagged == {"changed": ["two"], "unchanged": ["one"], "unknown": []}
    assert (await admin.get("/jobs/one")).json["note"] == "moving"
    resumed = (await admin.post("/jobs/resume", {"tag": "red"})).json
    assert resumed == {"changed": ["one", "two"], "unchanged": [], "unknown": []}
    assert [(await admin.get(f"/jobs/{name}")).json["status"] for name in ("one", "two", "three")] == [
        *("active", "active", "paused")
    ]
    actions = [(entry["action"], entry["target"]) for entry in (await admin.get("/audit")).json]
    assert actions[-5:] == [
        *(("pause", "job one"), ("pause", "job three"), ("pause", "job two")),
        *(("resume", "job one"), ("resume", "job two")),
    ]
    for odd in ({}, {"names": []}, {"names": ["one"], "tag": "red"}, {"names": ["no name"]}):
        assert (await admin.post("/jobs/pause", odd)).status == 422


async def test_jobs_that_have_the_name_of_a_route_are_reached(caller):
    for name in ("pause", "resume"):
        assert (await caller.post("/jobs", report(name=name))).status == 201
        assert (await caller.get(f"/jobs/{name}")).json["name"] == name
        assert (await caller.post(f"/jobs/{name}/pause")).json["status"] == "paused"
        assert (await caller("DELETE", f"/jobs/{name}")).status == 204
    assert (await caller("PUT", "/jobs/pause")).headers["allow"] == "DELETE, GET, HEAD, POST"
    assert (await caller("PUT", "/runs/cancel")).status == 405


async def test_a_removed_job_of_code_is_restored(scheduler):
    async with scheduler:
        admin = await caller_for(scheduler)
        before = (await admin.get("/jobs/invoice")).json
        assert (await admin.post("/jobs/invoice/restore")).status == 409
        assert (await admin("DELETE", "/jobs/invoice")).status == 204
        assert (await admin.get("/jobs/invoice")).status == 404
        assert (await admin.post("/jobs/invoice/restore", if_match='"1"')).status == 409
        restored = await admin.post("/jobs/invoice/restore")
        assert (restored.status, restored.json["status"]) == (200, "active")
        same = ("handler", "schedule", "queue", "tags", "retry", "timeout")
        assert {name: restored.json[name] for name in same} == {name: before[name] for name in same}
        assert datetime.fromisoformat(restored.json["next_run_at"]) >= datetime.fromisoformat(before["next_run_at"])
        assert (await admin.get("/audit")).json[-1]["action"] == "restore"


async def test_a_definition_that_the_store_has_no_more_is_not_restored(admin):
    await admin.post("/jobs", report())
    await admin("DELETE", "/jobs/report")
    for name in ("report", "nobody"):
        answer = await admin.post(f"/jobs/{name}/restore")
        assert answer.status == 404
        assert "the store has no definition" in answer.problem["detail"]
        assert "define it again" in answer.problem["detail"]


# --- misspelt names


async def test_a_misspelt_name_is_answered_with_the_one_that_was_meant(scheduler):
    async with scheduler:
        admin = await caller_for(scheduler)
        job = await admin.get("/jobs/invocie")
        assert (job.status, "did you mean invoice?" in job.problem["detail"]) == (404, True)
        handler = await admin.post("/runs", {"handler": "gret", "payload": {"name": "Ada"}})
        assert (handler.status, "did you mean greet?" in handler.problem["detail"]) == (422, True)
        field = await admin.post("/runs", {"handler": "greet", "payload": {"nmae": "Ada"}})
        assert (field.status, "did you mean name?" in field.problem["detail"]) == (422, True)
        body = await admin.post("/runs", {"handler": "greet", "prioritty": 3})
        assert (body.status, "did you mean priority?" in body.problem["detail"]) == (422, True)


async def test_a_submission_before_a_deploy_is_forced(admin):
    assert (await admin.post("/runs", {"handler": "coming", "payload": {"a": 1}})).status == 422
    run = await admin.post("/runs", {"handler": "coming", "payload": {"a": 1}, "force": True})
    assert run.status == 201
    assert (await admin.get(f"/runs/{run.json['id']}")).json["handler"] == "coming"


async def test_a_limited_token_cannot_force(scheduler):
    admin = await caller_for(scheduler)
    limited = Caller(admin.api, await new_token(scheduler, "submitter", queues=["mail"]))
    assert (await limited.post("/runs", {"handler": "coming", "force": True})).status == 403


# --- schedules in words


async def test_a_schedule_may_be_written_as_it_is_printed(admin):
    for number, words in enumerate(("at 02:30 on Monday to Friday, Europe/Berlin", "every 15 minutes", "at 02:30")):
        name = f"words{number}"
        defined = await admin.post("/jobs", {"name": name, "handler": "note", "schedule": words})
        assert defined.status == 201, defined
        again = {"name": f"{name}b", "handler": "note", "schedule": defined.json["schedule"]["words"]}
        second = await admin.post("/jobs", again)
        assert second.json["schedule"] == defined.json["schedule"]
    wrong = await admin.post("/jobs", {"name": "x", "handler": "note", "schedule": "at noon"})
    assert (wrong.status, wrong.problem["errors"][0]["pointer"]) == (422, "/schedule")


# --- times in words


async def test_a_time_may_be_written_as_it_is_printed(admin, scheduler):
    now = (await scheduler.opened()).clock.now()
    run = (await admin.post("/runs", {"payload": 1, "schedule_at": "in 2 h 5 min"})).json["id"]
    due = (await scheduler.get_run(run)).due
    assert abs(due - now - timedelta(hours=2, minutes=5)) < timedelta(minutes=1)
    berlin = (await admin.post("/runs", {"payload": 1, "schedule_at": "tomorrow 02:30 Europe/Berlin"})).json["id"]
    local = (await scheduler.get_run(berlin)).due.astimezone(ZoneInfo("Europe/Berlin"))
    assert (local.hour, local.minute) == (2, 30)
    await admin.post(f"/runs/{berlin}/cancel")
    soon = await admin.get("/runs?due_until=in%203%20hours&due_from=10%20minutes%20ago&status=pending")
    assert [each["id"] for each in soon.json] == [run]
    count = await admin.post("/runs/count", {"due_until": "in 3 hours", "status": ["pending"]})
    assert count.json["count"] == 1
    once = {"name": "once", "handler": "note", "schedule": {"at": "2090-01-01 00:00:00 Europe/Berlin"}}
    assert (await admin.post("/jobs", once)).json["schedule"]["at"] == "2089-12-31T23:00:00.000000Z"


@pytest.mark.parametrize(
    "words", ["soon", "tomorrow 02:30", "2027-01-01 00:00", "in 5", "in 10000 years", "\U0001f600", ""]
)
async def test_words_that_are_no_time_are_refused(caller, words):
    answer = await caller.post("/runs", {"payload": 1, "schedule_at": words})
    assert (answer.status, answer.problem["errors"][0]["pointer"]) == (422, "/schedule_at")


async def test_words_in_a_large_body_count_from_the_clock_of_the_store():
    clock = ManualClock()
    with shop("memory://").override("memory://", clock=clock) as scheduler:
        async with scheduler.client():
            admin = await caller_for(scheduler)
            for size in (1, 70_000):
                run = (await admin.post("/runs", {"payload": "x" * size, "schedule_at": "in 1 hour"})).json["id"]
                assert (await scheduler.get_run(run)).due == clock.now() + timedelta(hours=1)
