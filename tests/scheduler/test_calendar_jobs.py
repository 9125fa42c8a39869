"""Jobs with calendars and unions: what runs, what explains it, and nodes of an earlier version beside new ones."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.sim.company import played

from duly import Calendar, ConfigurationError, Cron, Every, Job, Scheduler, State, Union
from duly.model import JobStatus, Node, Role
from duly.model.event import JobConflict, PlanFailed, ServiceFailed
from duly.model.job import is_combined

CLOSED = Calendar.dates("2030-01-01")
START = datetime(2027, 3, 1, tzinfo=UTC)  # a Monday


@pytest.fixture
def scheduler():
    return Scheduler("memory://unused")


def days(harness, job, *states):
    return [f"{run.due:%a %d %H}" for run in harness.runs(job) if not states or run.state in states]


async def test_excluded_days_get_neither_a_run_nor_a_skipped_record(scheduler, duly_harness):
    closed = Calendar.dates(labels={"2027-03-03": "stocktaking"}, name="shop")

    @scheduler.job(Cron("0 9 * * *").excluding(Calendar.weekends(), closed))
    async def report() -> None: ...

    h = duly_harness(scheduler, now=START)
    await h.travel(days=8)
    assert days(h, "report") == ["Mon 01 09", "Tue 02 09", "Thu 04 09", "Fri 05 09", "Mon 08 09"]
    assert {run.state for run in h.runs("report")} == {State.COMPLETED}


async def test_a_union_runs_at_all_of_its_times(scheduler, duly_harness):
    @scheduler.job(Cron("0 9 * * 1-5") | Cron("0 12 * * 6"))
    async def report() -> None: ...

    h = duly_harness(scheduler, now=START + timedelta(days=3))
    await h.travel(days=4)
    assert days(h, "report") == ["Thu 04 09", "Fri 05 09", "Sat 06 12"]


class Noon:
    """A user's own schedule."""

    def next_run(self, after):
        noon = after.astimezone(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
        return noon if noon > after else noon + timedelta(days=1)


async def test_a_calendar_on_a_users_own_schedule(scheduler, duly_harness):
    @scheduler.job(Union(Noon()).excluding(Calendar.weekends()))
    async def report() -> None: ...

    h = duly_harness(scheduler, now=START + timedelta(days=3))
    await h.travel(days=5)
    assert days(h, "report") == ["Thu 04 12", "Fri 05 12", "Mon 08 12"]


async def test_explanations(scheduler, duly_harness):
    closed = Calendar.dates(labels={"2027-03-03": "stocktaking"}, name="shop")

    @scheduler.job(Cron("0 9 * * *").excluding(Calendar.weekends(), closed))
    async def report() -> None: ...

    h = duly_harness(scheduler, now=START)
    await h.travel(days=8)
    excluded = await scheduler.explain("report", datetime(2027, 3, 3, 9, tzinfo=UTC))
    assert (excluded.verdict, excluded.setting, excluded.run_id) == ("excluded", "calendar shop", None)
    assert excluded.reasons[1:] == (
        "Nothing is due at 2027-03-03T09:00:00Z; excluded: stocktaking (calendar shop).",
        "Next due: 2027-03-04T09:00:00Z.",
    )
    weekend = await scheduler.explain("report", datetime(2027, 3, 6, 9, tzinfo=UTC))
    assert "excluded: weekend (calendar weekends)" in str(weekend)
    future = await scheduler.explain("report", datetime(2027, 12, 25, 9, tzinfo=UTC))
    assert future.verdict == "excluded"
    between = await scheduler.explain("report", datetime(2027, 3, 3, 10, tzinfo=UTC))
    assert "Nothing is due at 2027-03-03T10:00:00Z" in str(between)
    assert between.verdict == "completed"
    ran = await scheduler.explain("report", datetime(2027, 3, 4, 9, tzinfo=UTC))
    assert ran.verdict == "completed"


@played
async def test_an_excluded_instant_inside_a_range_of_skipped_ones_is_told_as_excluded(company):
    clock = company.clock.now()
    calendar = Calendar.dates((clock + timedelta(seconds=200), clock + timedelta(seconds=260)), name="window")
    scheduler = Scheduler("memory://")

    async def report() -> None: ...

    scheduler.add(Job(name="report", handler=report, schedule=Every(seconds=10).excluding(calendar), misfire="skip"))
    member = await company.start("a", scheduler, misfire_grace=5)
    await asyncio.sleep(60)
    await company.definitions.pause("report", "")
    await asyncio.sleep(400)
    await company.definitions.resume("report")
    explainer = company.office.explainer
    inside = calendar.spec.times[0].start + timedelta(seconds=30)
    inside -= timedelta(seconds=inside.second % 10, microseconds=inside.microsecond)
    assert (await explainer.instant("report", inside)).verdict == "excluded"
    outside = inside + timedelta(seconds=60)
    assert (await explainer.instant("report", outside)).verdict == "skipped"
    assert member.events(PlanFailed, ServiceFailed) == []


def test_a_schedule_that_never_runs_is_refused_with_its_job():
    with pytest.raises(ValueError, match="never runs"):
        Job(name="x", handler=print, schedule=Cron("0 9 * * 0").excluding(Calendar.weekends()))


def program(schedule):
    scheduler = Scheduler("memory://")

    async def report() -> None: ...

    async def other() -> None: ...

    scheduler.add(Job(name="report", handler=report, schedule=schedule))
    scheduler.add(Job(name="other", handler=other, schedule=Every(seconds=10)))
    return scheduler


@played
async def test_a_job_with_a_calendar_waits_until_nodes_of_an_earlier_version_have_gone(company):
    """0.1.0 reads it as a schedule of code, and would plan the one that its own code has under that name."""
    await company.start("first", program(Every(seconds=10)))
    old = Node("old", "host", 1, company.clock.now(), (Role.SCHEDULER,), protocol=1)
    coordinator = company.office.backend.coordinator
    await coordinator.announce(old, 60)
    new = await company.start("second", program(Every(seconds=10).excluding(CLOSED)))
    await asyncio.sleep(30)
    record = await company.record("report")
    assert not is_combined(record.spec.schedule)
    assert record.status is JobStatus.ACTIVE
    assert (await company.record("other")).revision == 1
    [conflict] = new.events(JobConflict)
    assert conflict.job == "report"
    assert "nodes of an earlier version cannot compute calendars and unions, and are alive: old" in conflict.reason
    with pytest.raises(ConfigurationError, match="stop them first"):
        await company.definitions.define(
            Job(name="by-api", handler="other", schedule=Every(seconds=10).excluding(CLOSED))
        )
    await coordinator.retire("old")
    await asyncio.sleep(20)
    assert is_combined((await company.record("report")).spec.schedule)
    await company.definitions.define(Job(name="by-api", handler="other", schedule=Every(seconds=10).excluding(CLOSED)))
    await asyncio.sleep(60)
    assert await company.runs("by-api", State.COMPLETED)
    assert new.events(PlanFailed, ServiceFailed) == []


@played
async def test_a_node_without_the_code_plans_a_job_with_a_calendar(company):
    await company.start("code", program(Every(seconds=10) | Every(seconds=15)), roles=("worker",))
    await company.start("planner", Scheduler("memory://"), roles=("scheduler",))
    await asyncio.sleep(60)
    assert len(await company.runs("report", State.COMPLETED)) >= 5
    assert (await company.record("report")).shard == "main"
