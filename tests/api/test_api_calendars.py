"""Calendars, unions and expectations over HTTP."""

import pytest

WEEKLY = {"cron": "0 9 * * *", "timezone": "Europe/Berlin", "exclude": [{"weekends": True}, {"dates": ["2036-12-24"]}]}


async def test_a_job_with_calendars_can_be_defined_and_read(admin):
    body = {"name": "report", "schedule": WEEKLY, "notify": ["ops"], "expect_every": "25h"}
    made = await admin.post("/jobs", body)
    assert made.status == 201, made.body
    assert made.json["schedule"] == {
        "kind": "combined",
        "words": "at 09:00 every day, Europe/Berlin, except weekends, 1 date of dates",
        "exclude": ["weekends", "dates"],
    }
    assert (made.json["notify"], made.json["expect_every"]) == (["ops"], 90_000.0)
    again = await admin.post("/jobs", body)
    assert (again.status, again.json["revision"]) == (200, 1)
    read = await admin.get("/jobs/report")
    assert read.json["schedule"] == made.json["schedule"]


async def test_a_union(caller):
    made = await caller.post("/jobs", {"name": "report", "schedule": {"any": ["0 9 * * 1-5", "every 6h"], "jitter": 3}})
    assert made.status == 201, made.body
    assert (
        made.json["schedule"]["words"]
        == "at 09:00 on Monday to Friday, UTC, up to 3 seconds later; or every 6 hours, up to 3 seconds later"
    )


async def test_a_preview_leaves_out_what_is_excluded(caller):
    answer = await caller.post("/preview", {"schedule": WEEKLY, "after": "2036-12-23T12:00:00Z", "count": 2})
    assert answer.status == 200, answer.body
    assert [each["local"][:14] for each in answer.json["next"]] == ["Thu 2036-12-25", "Fri 2036-12-26"]


@pytest.mark.parametrize(
    "schedule",
    [
        {"cron": "0 9 * * 6", "exclude": [{"weekends": True}]},
        {"cron": "0 9 * * *", "any": ["0 9 * * *"]},
        {"exclude": [{"weekends": True}]},
        {"cron": "0 9 * * *", "exclude": [{}]},
        {"cron": "0 9 * * *", "exclude": [{"weekends": True, "weekdays": True}]},
        {"cron": "0 9 * * *", "exclude": [{"ical": "/etc/passwd"}]},
        {"cron": "0 9 * * *", "exclude": [{"dates": ["\ud800"]}]},
        {"cron": "0 9 * * *", "exclude": [{"dates": ["2036-12-24"] * 3000}]},
        {"cron": "0 9 * * *", "exclude": [{"hours": ["22:00-06:00"], "on": ["never"]}]},
        {"cron": "0 9 * * *", "exclude": [{"weekends": True}] * 30},
        {"any": ["0 9 * * *"] * 60},
        {"any": []},
    ],
)
async def test_what_is_refused(caller, schedule):
    answer = await caller.post("/jobs", {"name": "report", "schedule": schedule})
    assert answer.status in {400, 422}, answer.body
    assert answer.problem
