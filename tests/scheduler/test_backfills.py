"""Backfills through the scheduler: past due times get their runs, once."""

import asyncio
import itertools
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from tests.conftest import eventually

from duly import ConfigurationError, Every, Job, JobNotFound, Scheduler, SchedulerConfig
from duly.model import Cause, JobChange, Run, State
from duly.model.event import RunsSubmitted
from duly.rules.backfill import backfilled_by
from duly.rules.planning import run_for, skipped

HOUR = timedelta(hours=1)


def whole(at: datetime) -> datetime:
    """The full hour before a time: an instant of the schedule."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


class Past:
    """A job that is due every hour, on a store where nothing has run yet."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.done: list[str] = []

    async def prepare(self) -> None:
        self.client = await self.scheduler.opened()
        self.store = self.client.backend.store
        await self.client.code_deploys.deploy(self.client.registry.jobs(), self.client.clock.now())
        self.now = self.client.clock.now()
        self.last = whole(self.now)

    def ago(self, hours: int) -> datetime:
        return self.last - hours * HOUR

    async def record(self, name="report"):
        found = await self.store.job(name)
        assert found is not None
        return found

    async def add(self, *runs: Run) -> None:
        assert all(await self.store.backfill(runs))


@pytest.fixture
async def past(url):
    scheduler = Scheduler(url, SchedulerConfig(node_id="worker-1"))
    past = Past(scheduler)

    @scheduler.job(Every(hours=1), name="report", misfire="skip")
    async def report() -> None:
        past.done.append("report")

    async with scheduler.client():
        await past.prepare()
        yield past


async def test_due_times_without_a_record_get_a_run(past):
    found = await past.scheduler.backfill("report", past.ago(5), past.ago(2), by="ada")
    assert (found.created, found.missing, found.unsure) == (3, 3, 0)
    assert found.samples == (past.ago(5), past.ago(4), past.ago(3))
    assert (found.skipped, found.present, found.reached) == ({}, {}, None)
    runs = (await past.scheduler.runs("report", cause="backfill")).runs
    assert sorted(run.due for run in runs) == list(found.samples)
    assert {(run.cause, backfilled_by(run)) for run in runs} == {(Cause.BACKFILL, "ada")}


async def test_a_repeat_creates_nothing(past):
    span = past.ago(5), past.ago(2)
    assert (await past.scheduler.backfill("report", *span)).created == 3
    again = await past.scheduler.backfill("report", *span)
    assert (again.created, sum(again.present.values())) == (0, 3)


async def test_two_at_a_time_create_each_run_once(past):
    span = past.ago(200), past.ago(0)
    found = await asyncio.gather(*(past.scheduler.backfill("report", *span) for _ in range(3)))
    assert sum(each.created for each in found) == 200
    runs = (await past.scheduler.runs("report", limit=1000)).runs
    assert len({run.due for run in runs}) == len(runs) == 200


async def test_a_dry_run_creates_nothing(past):
    found = await past.scheduler.backfill("report", past.ago(5), past.ago(2), dry_run=True)
    assert (found.created, found.dry_run) == (3, True)
    assert (await past.scheduler.runs("report")).runs == []


async def test_skipped_due_times_get_a_run_and_others_keep_theirs(past):
    record = await past.record()
    done = replace(run_for(record, past.ago(5)), ready_at=past.now)
    await past.add(
        done,
        skipped(record, past.ago(4), past.ago(4), "overlap"),
        skipped(record, past.ago(3), past.ago(1), "misfire"),
    )
    found = await past.scheduler.backfill("report", past.ago(6), past.last)
    assert (found.created, found.missing, found.skipped) == (5, 1, {"misfire": 3, "overlap": 1})
    assert sum(found.present.values()) == 1
    assert (await past.scheduler.runs("report", "skipped")).runs == []
    for hours in (6, 4, 3, 2, 1):
        run = await past.store.covering(record.uid, past.ago(hours))
        assert (run.due, run.cause) == (past.ago(hours), Cause.BACKFILL)
    assert (await past.store.run(done.id)).cause is Cause.SCHEDULE


async def test_the_rest_of_a_skipped_range_stays_explained(past):
    record = await past.record()
    await past.add(skipped(record, past.ago(9), past.ago(1), "misfire"))
    found = await past.scheduler.backfill("report", past.ago(9), past.last, limit=2)
    assert (found.created, found.reached) == (2, past.ago(7))
    for hours in range(7, 0, -1):
        run = await past.store.covering(record.uid, past.ago(hours))
        assert (run.state, run.reason) == (State.SKIPPED, "misfire")
    explained = await past.scheduler.explain("report", past.ago(3))
    assert explained.verdict == "skipped"
    assert (await past.scheduler.backfill("report", past.ago(4), past.ago(3))).created == 1
    assert (await past.scheduler.backfill("report", past.ago(9), past.last)).created == 6
    assert (await past.scheduler.runs("report", "skipped")).runs == []


async def test_a_large_range_is_filled_in_slices(past):
    record = await past.record()
    await past.add(skipped(record, past.ago(900), past.ago(1), "misfire"))
    found = await past.scheduler.backfill("report", past.ago(1000), past.last, limit=2000)
    assert (found.created, found.missing, found.skipped) == (1000, 100, {"misfire": 900})
    assert (await past.scheduler.runs("report", "skipped")).runs == []


async def test_a_backfill_that_is_cut_off_leaves_every_due_time_recorded_and_can_be_repeated(past, monkeypatch):
    record = await past.record()
    await past.add(skipped(record, past.ago(700), past.ago(1), "misfire"))
    backfill, calls = past.store.backfill, []

    async def cut_off(runs, **options):
        calls.append(runs)
        if len(calls) == 3:
            raise ConnectionError("the process ends here")
        return await backfill(runs, **options)

    with monkeypatch.context() as patched:
        patched.setattr(past.store, "backfill", cut_off)
        with pytest.raises(ConnectionError):
            await past.scheduler.backfill("report", past.ago(700), past.last)
    runs = (await past.scheduler.runs("report", cause="backfill", limit=1000)).runs
    assert 0 < len(runs) < 700
    for hours in (700, 500, 300, 299, 100, 1):
        assert await past.store.covering(record.uid, past.ago(hours)) is not None
    again = await past.scheduler.backfill("report", past.ago(700), past.last)
    assert (again.created, again.skipped) == (700 - len(runs), {"misfire": 700 - len(runs)})


async def test_backfilled_runs_are_run_however_late_one_after_the_other(past):
    async with past.scheduler:
        found = await past.scheduler.backfill("report", past.ago(500), past.ago(496))
        assert found.created == 4

        async def ended():
            page = await past.scheduler.runs("report", "completed", cause="backfill")
            return len(page.runs) == 4 and page.runs

        runs = await eventually(ended)
    assert past.done == ["report"] * 4
    starts = sorted((run.started_at, run.finished_at, run.due) for run in runs)
    assert [due for _, _, due in starts] == sorted(due for _, _, due in starts)
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(starts))


async def test_explain_says_who_backfilled_a_run_and_when(past):
    await past.scheduler.backfill("report", past.ago(5), past.ago(4), by="ada lovelace")
    found = await past.scheduler.explain("report", past.ago(5))
    assert any(reason.startswith("Backfilled by ada lovelace at 2") for reason in found.reasons)
    [run] = (await past.scheduler.runs("report")).runs
    assert any("Backfilled by ada lovelace" in reason for reason in (await past.scheduler.explain(run.id)).reasons)


async def test_only_what_was_due_is_backfilled(past):
    record = await past.record()
    found = await past.scheduler.backfill("report", past.ago(2), past.now + 100 * HOUR)
    assert record.cursor == past.last + HOUR
    assert (found.created, found.last, found.planned_from) == (3, past.last, None)


async def test_what_a_paused_job_has_missed_is_left_to_its_resumption(past):
    record = await past.record()
    await past.scheduler.pause("report")
    stopped = replace(await past.record(), cursor=past.ago(3), revision=record.revision + 2)
    await past.store.save([JobChange(stopped, record.revision + 1, moves_cursor=True)])
    found = await past.scheduler.backfill("report", past.ago(5), past.last)
    assert (found.created, found.planned_from) == (2, past.ago(3))
    await past.scheduler.resume("report")
    assert (await past.scheduler.backfill("report", past.ago(5), past.last)).skipped == {"misfire": 3}


async def test_limits(past):
    found = await past.scheduler.backfill("report", past.ago(50), past.last, limit=7)
    assert (found.created, found.reached) == (7, past.ago(43))
    for wrong in (0, -1, 10_001, True, "7"):
        with pytest.raises(ConfigurationError, match="limit"):
            await past.scheduler.backfill("report", past.ago(5), past.last, limit=wrong)


async def test_a_schedule_of_every_second_is_looked_at_in_parts(past):
    scheduler = past.scheduler
    await scheduler.register(Job(name="fast", handler=lambda: None, schedule=Every(seconds=1)))
    start = past.now - timedelta(days=300)
    found = await scheduler.backfill("fast", start, past.now, limit=100)
    assert found.created == 100
    assert found.reached is not None


async def test_what_cannot_be_backfilled_says_why(past):
    scheduler = past.scheduler
    await scheduler.register(Job(name="submitted", handler=lambda: None))
    with pytest.raises(JobNotFound):
        await scheduler.backfill("nobody", past.ago(2), past.last)
    with pytest.raises(ConfigurationError, match="has no schedule"):
        await scheduler.backfill("submitted", past.ago(2), past.last)
    with pytest.raises(ConfigurationError, match="is not before"):
        await scheduler.backfill("report", past.last, past.last)
    with pytest.raises(ConfigurationError, match="start"):
        await scheduler.backfill("report", datetime(2026, 1, 1), past.last)  # naive on purpose


async def test_records_of_an_earlier_schedule_do_not_hide_a_run(past):
    """A store that lists by instant meets many records of a faster schedule between two instants of the present one."""
    record = await past.record()
    minutes = [past.ago(4) + timedelta(minutes=5 * number) for number in range(1, 12)]
    await past.add(*[replace(run_for(record, due), ready_at=past.now) for due in minutes])
    await past.add(replace(run_for(record, past.ago(3)), ready_at=past.now))
    found = await past.scheduler.backfill("report", past.ago(4), past.ago(2))
    assert (found.created, sum(found.present.values())) == (1, 1)


async def test_due_times_of_the_jobs_life_that_have_no_record_may_have_run(past):
    record = await past.record()
    old = replace(record, created_at=past.ago(100), revision=record.revision + 1)
    await past.store.save([JobChange(old, record.revision)])
    found = await past.scheduler.backfill("report", past.ago(102), past.ago(98), dry_run=True)
    assert (found.missing, found.unsure) == (4, 1)


async def test_subscribers_learn_of_the_new_runs(past):
    seen = []
    past.scheduler.subscribe(lambda event: seen.extend(event.runs), RunsSubmitted)
    await past.scheduler.backfill("report", past.ago(5), past.ago(2))
    assert [run.due for run in seen] == [past.ago(5), past.ago(4), past.ago(3)]


def test_the_blocking_twin_does_the_same(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path}/duly.db")
    scheduler.add(Job(name="report", handler=lambda: None, schedule=Every(hours=1)))
    scheduler.sync.start()
    try:
        now = datetime.now(UTC)
        assert scheduler.sync.backfill("report", now - 3 * HOUR, now, dry_run=True).created == 3
    finally:
        scheduler.sync.stop()
