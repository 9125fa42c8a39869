"""Versions of definitions and backfills over HTTP."""

from datetime import timedelta

import pytest
from tests.api.api_support import caller_for, new_token
from tests.api.test_api_jobs import report

from duly.api.rates import Limits
from duly.model import iso
from duly.rules.rate_limits import parse


@pytest.fixture
async def versions(admin):
    """A job with three versions."""
    for priority in (1, 2, 3):
        assert (await admin.post("/jobs", report(priority=priority))).status in {200, 201}
    return admin


async def test_history_says_who_when_and_what(versions):
    answer = await versions.get("/jobs/report/history")
    assert answer.status == 200
    assert [(each["revision"], each["current"], each["first"]) for each in answer.json] == [
        (3, True, False),
        (2, False, False),
        (1, False, True),
    ]
    assert answer.json[0]["changes"] == [{"field": "priority", "old": "2", "new": "3"}]
    assert all(each["by"].startswith("a admin (") and each["at"].endswith("Z") for each in answer.json)
    assert (await versions.get("/jobs/nobody/history")).status == 404


async def test_a_rollback_is_a_new_revision_and_is_audited(versions):
    dry = await versions.post("/jobs/report/rollback", {"dry_run": True})
    assert (dry.status, dry.json["to"], dry.json["revision"]) == (200, 2, 3)
    done = await versions.post("/jobs/report/rollback", {"revision": 1}, if_match='"3"')
    assert (done.status, done.json["to"], done.json["revision"], done.headers["etag"]) == (200, 1, 4, '"4"')
    assert (await versions.get("/jobs/report")).json["priority"] == 1
    assert (await versions.post("/jobs/report/rollback")).json["to"] == 3
    last = (await versions.get("/audit")).json[-1]
    assert (last["action"], last["target"]) == ("rollback", "job report")
    assert (last["before"], last["after"]) == ({"revision": 4}, {"revision": 5, "to": 3})
    assert (await versions.post("/jobs/report/rollback", {"revision": 99})).status == 422


@pytest.mark.parametrize("body", [{"revision": 0}, {"revision": "2"}, {"revision": -1}, {"other": 1}, [], 7])
async def test_a_wrong_rollback_is_refused(versions, body):
    assert (await versions.post("/jobs/report/rollback", body)).status == 422


async def test_code_of_a_live_node_is_a_conflict(admin, scheduler):
    async with scheduler:
        answer = await admin.post("/jobs/invoice/rollback", {"revision": 1})
        assert answer.status == 409
        assert "deploy the earlier code instead" in answer.problem["detail"]


async def test_a_limited_token_neither_sees_nor_restores_versions_outside_of_its_limits(admin, scheduler):
    await admin.post("/jobs", report(queue="secret"))
    await admin.post("/jobs", report(queue="mail"))
    await admin.post("/jobs", report(queue="mail", priority=3))
    token = await new_token(scheduler, "operator", queues=frozenset({"mail", "default"}), handlers=frozenset({"note"}))
    limited = admin.with_token(token)
    shown = await limited.get("/jobs/report/history")
    assert [each["revision"] for each in shown.json] == [3, 2]
    assert "secret" not in shown.body.decode()
    assert (await limited.post("/jobs/report/rollback", {"revision": 1})).status == 422
    assert (await limited.post("/jobs/report/rollback")).json["to"] == 2


async def test_roles(versions, scheduler):
    viewer = await caller_for(scheduler, "viewer")
    assert (await viewer.get("/jobs/report/history")).status == 200
    assert (await viewer.post("/jobs/report/rollback")).status == 403
    assert (await viewer.post("/jobs/report/backfill", {})).status == 403


# --- backfill


async def test_a_backfill_is_counted_then_created_and_audited(admin, scheduler):
    await admin.post("/jobs", report(schedule="every 1h"))
    now = (await scheduler.opened()).clock.now()
    span = {"start": iso(now - timedelta(hours=5)), "end": iso(now - timedelta(hours=1))}
    dry = await admin.post("/jobs/report/backfill", {**span, "dry_run": True})
    assert (dry.status, dry.json["created"], dry.json["missing"], dry.json["dry_run"]) == (200, 4, 4, True)
    assert len(dry.json["samples"]) == 4
    assert (await admin.get("/jobs/report/runs")).json == []
    done = await admin.post("/jobs/report/backfill", {**span, "limit": 3})
    assert (done.status, done.json["created"]) == (201, 3)
    assert done.json["reached"] is not None
    runs = (await admin.get("/runs?job=report&cause=backfill")).json
    assert [run["cause"] for run in runs] == ["backfill"] * 3
    again = await admin.post("/jobs/report/backfill", span)
    assert (again.status, again.json["created"]) == (201, 1)
    nothing = await admin.post("/jobs/report/backfill", span)
    assert (nothing.status, nothing.json["created"]) == (200, 0)
    entries = [entry for entry in (await admin.get("/audit")).json if entry["action"] == "backfill"]
    assert [entry["after"]["created"] for entry in entries] == [3, 1]
    [reason] = [
        each for each in (await admin.get(f"/runs/{runs[0]['id']}/explain")).json["reasons"] if "Backfill" in each
    ]
    assert "by a admin (" in reason


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"start": "2026-01-01T00:00:00Z"},
        {"start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"},
        {"start": "2026-01-01T00:00:00", "end": "2026-01-02T00:00:00"},
        {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z", "limit": 10_001},
        {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z", "limit": 0},
        {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z", "payload": {}},
    ],
)
async def test_a_wrong_backfill_is_refused(admin, body):
    await admin.post("/jobs", report())
    assert (await admin.post("/jobs/report/backfill", body)).status == 422


async def test_a_backfill_counts_against_the_rate_of_its_handler(scheduler):
    admin = await caller_for(scheduler, "admin", limits=Limits(None, {"note": parse("3/h")}))
    await admin.post("/jobs", report(schedule="every 1h"))
    span = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T05:00:00Z"}
    assert (await admin.post("/jobs/report/backfill", {**span, "dry_run": True})).status == 200
    assert (await admin.post("/jobs/report/backfill", span)).status == 429
    assert (await admin.get("/jobs/report/runs")).json == []
    assert (await admin.post("/jobs/report/backfill", {**span, "limit": 3})).status == 201
