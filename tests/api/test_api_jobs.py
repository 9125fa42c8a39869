"""Jobs and runs over HTTP: definitions, listings, operations."""

import itertools
import re

import pytest
from tests.conftest import eventually

from duly.api.routes import ROUTES
from duly.scheduler import run_search

NEXT = re.compile(r'<(?P<target>[^>]+)>; rel="next"')


def report(name="report", **fields):
    return {"name": name, "handler": "note", "schedule": {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}, **fields}


async def test_a_definition_with_a_schedule_creates_and_then_replaces_a_job(admin, scheduler):
    created = await admin.post("/jobs", report(payload={"payload": "x"}, tags=["night"]))
    assert created.status == 201
    job = created.json
    assert (job["name"], job["origin"], job["revision"], job["status"]) == ("report", "api", 1, "active")
    assert job["schedule"]["words"] == "at 02:30 every day, Europe/Berlin"
    assert job["next_run_at"].endswith(".000000Z")
    assert created.headers["etag"] == '"1"'
    replaced = await admin.post("/jobs", report(schedule={"every": "15m"}))
    assert (replaced.status, replaced.json["revision"]) == (200, 2)
    assert replaced.json["schedule"]["every"] == 900.0
    unchanged = await admin.post("/jobs", report(schedule="every 15m"))
    assert (unchanged.status, unchanged.json["revision"]) == (200, 2)
    assert (await scheduler.get_job("report")).schedule == "every 15 minutes"


async def test_a_job_of_the_api_is_planned_and_run(admin, scheduler):
    async with scheduler:
        answer = await admin.post("/jobs", report(name="tick", schedule={"every": 1}, payload="beat"))
        assert answer.status == 201

        async def completed():
            return (await admin.get("/jobs/tick/runs?status=completed")).json

        [run, *_] = await eventually(completed)
        assert run["cause"] == "schedule"
        detail = (await admin.get(f"/runs/{run['id']}")).json
        assert (detail["result"], detail["payload"]) == ("beat", {"payload": "beat"})
        told = (await admin.get("/jobs/tick")).json
    assert told["run_count"] >= 1
    assert told["last_outcome"] == "succeeded"


async def test_if_match_guards_a_revision(admin):
    assert (await admin.post("/jobs", report())).status == 201
    stale = await admin.post("/jobs", report(priority=1), if_match='"7"')
    assert stale.status == 409
    assert "revision 1, not 7" in stale.problem["detail"]
    assert (await admin.post("/jobs", report(priority=1), if_match='"1"')).json["revision"] == 2
    assert (await admin.post("/jobs", report(priority=2), if_match="*")).json["revision"] == 3
    assert (await admin.post("/jobs", report("other"), if_match="*")).status == 409
    assert (await admin.post("/jobs", report(priority=3), if_none_match="*")).status == 409
    assert (await admin.post("/jobs", report(priority=3), if_match="soon")).status == 400


CHANGES = [
    ("POST", "/jobs/report/pause", None),
    ("POST", "/jobs/report/resume", None),
    ("POST", "/jobs/report/trigger", None),
    ("POST", "/jobs/report/rollback", {"revision": 1}),
    ("POST", "/jobs/report/backfill", {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}),
    ("POST", "/jobs", report(priority=7)),
    ("DELETE", "/jobs/report", None),
]


def test_every_route_that_changes_a_job_takes_a_condition():
    many = {"/jobs/pause", "/jobs/resume"}  # these change several jobs, which have no revision in common
    changing = {
        (route.method, route.path)
        for route in ROUTES
        if route.method != "GET" and "/jobs" in route.path and route.path not in many
    }
    restoring = {("POST", "/jobs/{id}/restore")}  # this needs a job that was removed: see test_api_bulk
    assert {(method, path.replace("report", "{id}")) for method, path, _ in CHANGES} | restoring == changing
    for route in ROUTES:
        if (route.method, route.path) in changing:
            assert "If-Match" in route.headers


@pytest.mark.parametrize(("method", "path", "body"), CHANGES, ids=str)
async def test_if_match_is_kept_by_every_change_of_a_job(admin, scheduler, method, path, body):
    assert (await admin.post("/jobs", report())).status == 201
    before, audited = (await admin.get("/jobs/report")).json, (await admin.get("/audit")).json
    for stale in ('"7"', 'W/"7"', '"7", "8"'):
        answer = await admin(method, path, body, if_match=stale)
        assert answer.status == 409, answer
        assert "revision 1, not 7" in answer.problem["detail"]
    assert (await admin(method, path, body, if_match="soon")).status == 400
    assert (await admin.get("/jobs/report")).json == before
    assert (await admin.get("/audit")).json == audited
    assert not (await scheduler.runs("report")).runs
    answer = await admin(method, path, body, if_match='"5", "1"')
    assert answer.status in {200, 201, 204}, answer


@pytest.mark.parametrize(("method", "path", "body"), CHANGES, ids=str)
async def test_if_match_asks_that_a_job_exists(admin, method, path, body):
    assert (await admin(method, path, body, if_match="*")).status == (409 if path == "/jobs" else 404)
    assert (await admin.post("/jobs", report())).status == 201
    assert (await admin(method, path, body, if_match="*")).status in {200, 201, 204}


async def test_if_match_holds_against_a_change_that_comes_in_between(admin, scheduler, monkeypatch):
    """The condition is compared with the very record that is replaced."""
    store = (await scheduler.opened()).backend.store
    save, raced = store.save, []

    async def slow(changes, **options):
        if not raced:
            raced.append(True)
            assert (await admin.post("/jobs", report(priority=3))).status == 200
        return await save(changes, **options)

    assert (await admin.post("/jobs", report())).status == 201
    monkeypatch.setattr(store, "save", slow)
    answer = await admin.post("/jobs/report/pause", if_match='"1"')
    assert answer.status == 409
    assert (await admin.get("/jobs/report")).json["status"] == "active"


async def test_a_condition_that_is_not_understood_is_refused(admin):
    assert (await admin.post("/jobs", report())).status == 201
    run = (await admin.post("/runs", {"payload": 1, "delay": 60})).json["id"]
    for method, path, headers in (
        ("DELETE", f"/jobs/{run}", {"if_match": '"1"'}),
        ("POST", f"/runs/{run}/cancel", {"if_match": '"1"'}),
        ("POST", "/queues/mail/pause", {"if_match": '"1"'}),
        ("POST", "/jobs/report/pause", {"if_none_match": "*"}),
        ("POST", "/jobs/report/pause", {"if_unmodified_since": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        ("POST", "/jobs", {"if_match": '"1"', "if_none_match": "*"}),
    ):
        answer = await admin(method, path, report() if path == "/jobs" else None, **headers)
        assert answer.status == 400, (path, answer)
    assert (await admin.get(f"/runs/{run}")).json["status"] == "pending"
    assert (await admin.get("/jobs/report", if_none_match='"1"')).status == 200


async def test_code_is_not_overwritten(admin, scheduler):
    async with scheduler:
        answer = await admin.post("/jobs", report("invoice"))
    assert answer.status == 409
    assert "belongs to the code" in answer.problem["detail"]


@pytest.mark.parametrize("url", ["redis"], indirect=True)
async def test_what_the_store_cannot_promise_is_refused(admin):
    answer = await admin.post("/jobs", report(delivery="exactly_once"))
    assert answer.status == 422
    assert "no transactions" in answer.problem["detail"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"schedule": {"cron": "61 * * * *"}}, "minute"),
        ({"schedule": {"cron": "0 0 30 2 *"}}, ""),
        ({"schedule": {}}, "exactly one of cron, every, at and any"),
        ({"schedule": {"cron": "* * * * *", "every": 5}}, "exactly one"),
        ({"schedule": {"cron": "* * * * *", "timezone": "Mars/Olympus"}}, "Mars/Olympus"),
        ({"schedule": {"every": 0}}, ""),
        ({"handler": "nobody"}, "no such handler"),
        ({"name": "7up"}, "/name"),
        ({"payload": {"colour": 1}}, "colour"),
        ({"max_runs": 0}, "/max_runs"),
        ({"selector": {"gpu": "yes"}}, "placement"),
        ({"delivery": "at_most_once", "retry": 3}, "never tried twice"),
    ],
)
async def test_a_definition_that_makes_no_sense_is_refused(caller, memory, fields, words):
    answer = await caller.post("/jobs", report(**fields))
    assert answer.status == 422
    assert words in answer.problem["detail"]
    assert not await memory.jobs()


async def test_an_array_defines_many_and_is_answered_in_order(admin, scheduler):
    names = [f"job{number}" for number in (3, 1, 2)]
    created = await admin.post("/jobs", [report(name) for name in names])
    assert created.status == 201
    assert created.json == [{"name": name, "revision": 1, "created": True} for name in names]
    again = await admin.post("/jobs", [report("job1"), report("job2", priority=3), report("job4")])
    assert again.json == [
        {"name": "job1", "revision": 1, "created": False},
        {"name": "job2", "revision": 2, "created": False},
        {"name": "job4", "revision": 1, "created": True},
    ]
    assert (await admin.post("/jobs", [report("job4")])).status == 200
    assert [view.priority for view in await scheduler.jobs()] == [0, 3, 0, 0]
    entries = (await admin.get("/audit")).json
    assert [entry["target"] for entry in entries] == [f"job {name}" for name in (*names, "job2", "job4")]


@pytest.mark.parametrize(
    ("bad", "status", "pointer"),
    [
        ({"handler": "nobody"}, 422, "/1"),
        ({"schedule": {"cron": "61 * * * *"}}, 422, "/1"),
        ({"payload": {"colour": 1}}, 422, "/1/payload"),
        ({"max_runs": 0}, 422, "/1/max_runs"),
        ({"name": "good"}, 422, "/1/name"),
        ({"name": "beat"}, 409, "/1"),
        ({"delivery": "at_most_once", "retry": 3}, 422, "/1"),
    ],
    ids=str,
)
async def test_one_bad_definition_of_many_defines_none(caller, memory, bad, status, pointer):
    @memory.job(name="beat")
    async def beat() -> None: ...

    async with memory:
        answer = await caller.post("/jobs", [report("good"), report("bad") | bad])
        assert answer.status == status
        assert answer.problem["errors"][0]["pointer"].startswith(pointer)
        assert "definition 1" in answer.problem["detail"] or pointer.count("/") > 1
        assert "good" not in {view.name for view in await memory.jobs()}


async def test_a_condition_holds_for_every_definition_of_an_array(admin, scheduler):
    await admin.post("/jobs", report("old"))
    answer = await admin.post("/jobs", [report("new"), report("old", priority=1)], if_none_match="*")
    assert answer.status == 409
    assert "definition 1" in answer.problem["detail"]
    assert [view.name for view in await scheduler.jobs()] == ["old"]


async def test_an_array_of_too_many_definitions_is_refused(caller):
    answer = await caller.post("/jobs", [report(f"job{number}") for number in range(1001)])
    assert answer.status == 422
    assert "1 to 1000 definitions, not of 1001" in answer.problem["detail"]


async def test_jobs_are_listed_by_name_in_pages(admin):
    for number in range(7):
        await admin.post("/jobs", report(f"job{number}", tags=["odd" if number % 2 else "even"]))
    target, names = "/jobs?limit=3", []
    while target:
        answer = await admin.get(target)
        names += [job["name"] for job in answer.json]
        link = NEXT.fullmatch(answer.headers.get("link", ""))
        target = link and link["target"]
    assert names == [f"job{number}" for number in range(7)]
    odd = await admin.get("/jobs?tag=odd")
    assert [job["name"] for job in odd.json] == ["job1", "job3", "job5"]
    assert [job["name"] for job in (await admin.get("/jobs?name=job4")).json] == ["job4"]
    assert (await admin.get("/jobs?queue=mail")).json == []


async def test_a_run_state_as_status_lists_runs(admin):
    ids = [(await admin.post("/jobs", {"payload": n, "delay": 3600})).json["id"] for n in range(5)]
    due = (await admin.post("/jobs", {"payload": {"name": "Ada"}, "handler": "greet"})).json["id"]
    pending = await admin.get("/jobs?status=pending")
    assert pending.status == 200
    assert {run["id"] for run in pending.json} == set(ids)
    assert all(run["status"] == "pending" and run["created_at"] for run in pending.json)
    both = await admin.get("/jobs?status=pending&status=queued&queue=mail")
    assert [run["id"] for run in both.json] == [due]
    assert [run["id"] for run in (await admin.get("/jobs?status=queued&handler=greet")).json] == [due]
    assert (await admin.get("/jobs?status=pending&status=active")).status == 422
    assert (await admin.get("/jobs?status=sleeping")).status == 422


async def test_runs_are_listed_in_pages_newest_first(admin):
    ids = [(await admin.post("/runs", {"payload": n, "delay": 60})).json["id"] for n in range(7)]
    target, seen = "/runs?limit=3&status=pending", []
    while target:
        answer = await admin.get(target)
        seen += [run["id"] for run in answer.json]
        link = NEXT.fullmatch(answer.headers.get("link", ""))
        target = link and link["target"]
    assert seen == ids[::-1]


async def test_runs_are_found_by_what_they_have_and_in_every_order(admin):
    ids = [(await admin.post("/runs", {"payload": n, "delay": 60 - n})).json["id"] for n in range(4)]

    async def found(parameters):
        answer = await admin.get(f"/runs?{parameters}")
        assert answer.status == 200, answer.json
        return [run["id"] for run in answer.json]

    assert await found("order=ready") == ids[::-1]
    assert await found("order=ended") == []
    await admin.post(f"/runs/{ids[1]}/cancel", {"reason": "by mistake"})
    assert await found("order=ended&error=mistake") == [ids[1]]
    assert await found("ended_from=2020-01-01T00:00:00Z") == [ids[1]]
    assert await found("where=payload.payload:2") == [ids[2]]
    assert await found("not_status=cancelled&not_text=%22payload%22:0") == [ids[3], ids[2]]
    assert await found(f"id={ids[3]}&min_late=0.5") == []
    assert await found("order=ready&limit=2&scan=3") == [ids[3], ids[2]]


@pytest.mark.parametrize(
    "parameters", ["order=newest", "where=payload:1", "where=x.y:1", "scan=0", "min_seconds=-1", "min_late=x", "nod=n1"]
)
async def test_a_parameter_of_a_search_that_means_nothing_is_refused(admin, parameters):
    assert (await admin.get(f"/runs?{parameters}")).status == 422


async def test_a_search_that_stops_early_says_how_far_it_came(admin):
    ids = [(await admin.post("/runs", {"payload": n, "delay": 60})).json["id"] for n in range(200)]
    target, seen, pages = f"/runs?limit=2&scan=3&text={ids[0]}", [], 0
    while target:
        answer = await admin.get(target)
        seen += [run["id"] for run in answer.json]
        link = NEXT.fullmatch(answer.headers.get("link", ""))
        target, pages = link and link["target"], pages + 1
        assert ("x-searched-to" in answer.headers) is ("x-searched" in answer.headers) is bool(link)
    assert seen == ids[:1]
    assert pages > 1


@pytest.mark.parametrize("few", [0, 1_000])
async def test_runs_of_a_tag_are_found_however_many_jobs_there_are(admin, monkeypatch, few):
    monkeypatch.setattr(run_search, "_FEW_JOBS", few)
    for name, tags in (("odd", ["red"]), ("even", ["blue"]), ("both", ["red", "blue"])):
        await admin.post("/jobs", report(name=name, tags=tags))
    runs = {name: (await admin.post(f"/jobs/{name}/trigger", {})).json["id"] for name in ("odd", "even", "both")}
    red = await admin.get("/runs?tag=red&cause=trigger")
    assert {run["id"] for run in red.json} == {runs["odd"], runs["both"]}
    assert (await admin.get("/runs?tag=green")).json == []


@pytest.mark.parametrize("cursor", ["1", "x.y", "AAAA", "%F0%9F%98%80", "-1"])
async def test_a_cursor_that_nobody_gave_out_is_refused(admin, cursor):
    assert (await admin.get(f"/runs?cursor={cursor}")).status == 422


async def test_a_job_is_paused_resumed_triggered_and_removed(admin, scheduler):
    await admin.post("/jobs", report())
    paused = await admin.post("/jobs/report/pause", {"note": "the warehouse moves"})
    assert (paused.json["status"], paused.json["note"]) == ("paused", "the warehouse moves")
    assert (await admin.post("/jobs/report/pause")).json["revision"] == paused.json["revision"]
    assert (await admin.post("/jobs/report/resume")).json["status"] == "active"
    triggered = await admin.post("/jobs/report/trigger", {"payload": "now"})
    assert triggered.status == 201
    assert (await scheduler.get_run(triggered.json["id"])).payload == b'{"payload":"now"}'
    assert (await admin("DELETE", "/jobs/report")).status == 204
    assert (await admin.get("/jobs/report")).status == 404
    assert (await admin.post("/jobs/report/pause")).status == 404


async def test_a_waiting_run_is_cancelled_and_an_ended_one_is_not(admin):
    run_id = (await admin.post("/runs", {"payload": 1, "delay": 60})).json["id"]
    cancelled = await admin.post(f"/runs/{run_id}/cancel", {"reason": "by mistake"})
    assert (cancelled.status, cancelled.json) == (200, {"id": run_id, "status": "cancelled"})
    told = (await admin.get(f"/runs/{run_id}")).json
    assert (told["status"], told["reason"]) == ("cancelled", "by mistake")
    assert (await admin.post(f"/runs/{run_id}/cancel")).status == 409
    other = (await admin.post("/runs", {"payload": 1, "delay": 60})).json["id"]
    assert (await admin("DELETE", f"/jobs/{other}")).status == 204
    assert (await admin.get(f"/jobs/{other}")).json["status"] == "cancelled"


async def test_failed_runs_are_redriven_one_by_one_or_by_filter(admin, scheduler):
    async with scheduler:
        ids = [(await admin.post("/runs", {"handler": "explode"})).json["id"] for _ in range(4)]

        async def all_failed():
            return len((await admin.get("/runs?status=failed")).json) == 4

        await eventually(all_failed)
    told = (await admin.get(f"/runs/{ids[0]}")).json
    assert (told["error"]["type"], told["error"]["message"]) == ("ValueError", "kaboom")
    assert [attempt["outcome"] for attempt in told["attempts"]] == ["failed"]
    again = await admin.post(f"/runs/{ids[0]}/redrive")
    assert (again.status, again.json["id"]) == (200, ids[0])
    assert again.json["status"] in {"pending", "queued"}
    assert (await admin.post(f"/runs/{ids[0]}/redrive")).status == 409
    assert (await admin.post("/runs/redrive", {"job": "note"})).json == {"redriven": 0, "left": 0}
    some = (await admin.post("/runs/redrive", {"job": "explode", "limit": 2})).json
    assert some == {"redriven": 2, "left": 0, "next": some["next"]}
    assert (await admin.post("/runs/redrive", {"status": ["completed"]})).status == 422
    assert len((await admin.get("/runs?status=failed")).json) == 1


async def test_queues_tell_what_waits_and_can_be_paused(admin):
    await admin.post("/runs", {"handler": "greet", "payload": {"name": "Ada"}})
    await admin.post("/runs", {"handler": "greet", "payload": {"name": "Bob"}, "delay": 60})
    assert (await admin.post("/queues/mail/pause")).json == {"name": "mail", "paused": True}
    [mail] = [queue for queue in (await admin.get("/queues")).json if queue["name"] == "mail"]
    assert (mail["queued"], mail["pending"], mail["running"], mail["paused"]) == (1, 1, 0, True)
    assert mail["oldest_seconds"] >= 0
    assert (await admin.post("/queues/mail/resume")).json == {"name": "mail", "paused": False}


async def test_the_pace_of_a_queue_is_told_by_its_nodes(admin, scheduler):
    async with scheduler:
        run = await scheduler.submit("greet", {"name": "Ada"})
        await run.result(timeout=30)

        async def moving():
            queues = {queue["name"]: queue for queue in (await admin.get("/queues")).json}
            found = queues.get("mail")
            return found and found["started_per_second"] > 0 and found["ended_per_second"] > 0

        await eventually(moving)


@pytest.mark.parametrize("path", ["/runs/0000", "/jobs/0000", "/jobs/nobody", "/jobs/nobody/runs", "/nothing", "/"])
async def test_what_is_not_there_is_404(caller, path):
    answer = await caller.get(path)
    assert answer.status == 404
    assert answer.problem["title"] == "Not Found"


async def test_every_administrative_action_is_in_the_audit_log(admin, scheduler):
    await admin.post("/jobs", report())
    await admin.post("/jobs/report/pause", {"note": "why"})
    await admin.post("/jobs/report/resume")
    run_id = (await admin.post("/jobs/report/trigger")).json["id"]
    await admin.post(f"/runs/{run_id}/cancel", {"reason": "no"})
    await admin.post(f"/runs/{run_id}/redrive")
    await admin.post("/queues/mail/pause")
    await admin("DELETE", "/jobs/report")
    entries = (await admin.get("/audit")).json
    assert [(entry["action"], entry["target"]) for entry in entries] == [
        ("define", "job report"),
        ("pause", "job report"),
        ("resume", "job report"),
        ("trigger", "job report"),
        ("cancel", f"run {run_id}"),
        ("redrive", f"run {run_id}"),
        ("pause", "queue mail"),
        ("remove", "job report"),
    ]
    assert all(entry["actor"].startswith("a admin (") for entry in entries)
    assert entries[1]["before"]["status"] == "active"
    assert entries[1]["after"] == {"status": "paused", "note": "why"}
    for before, after in itertools.pairwise(entries):
        assert after["previous"] == before["hash"]
    assert [entry["sequence"] for entry in (await admin.get("/audit?after=6&limit=1")).json] == [7]


async def test_a_preview_tells_the_next_instants_and_what_clocks_do(caller):
    body = {
        "schedule": {"cron": "30 2 * * *"},
        "timezone": "Europe/Berlin",
        "count": 2,
        "after": "2027-03-27T12:00:00Z",
    }
    answer = (await caller.post("/preview", body)).json
    assert answer["words"] == "at 02:30 every day, Europe/Berlin"
    assert [each["due"] for each in answer["next"]] == ["2027-03-28T01:00:00.000000Z", "2027-03-29T00:30:00.000000Z"]
    assert answer["next"][0]["note"]
    assert answer["next"][1]["note"] is None
    assert (await caller.post("/preview", {"schedule": "every 15m"})).status == 200
    bad = await caller.post("/preview", {"schedule": "61 * * * *"})
    assert bad.status == 422
    assert "minute" in bad.problem["detail"]


async def test_a_garbled_entry_of_the_audit_log_is_listed_as_such(admin, scheduler):
    store = (await scheduler.opened()).backend.store
    await admin.post("/queues/mail/pause")
    await store.append("audit", [b"\xff\xfe not JSON"])
    await admin.post("/queues/mail/resume")
    entries = (await admin.get("/audit")).json
    assert [entry["readable"] for entry in entries] == [True, False, True, True]
    assert [entry["action"] for entry in entries] == ["pause", "", "audit-damage", "resume"]
