"""Scheduled jobs over days of virtual time: instants, overlap, misfires, pauses, deploys, and what explains them."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.conftest import eventually

from duly import Context, Cron, Every, Job, Once, RetryPolicy, Scheduler, SchedulerConfig, State
from duly.errors import JobNotFound
from duly.model import JobStatus
from duly.testing import Harness

START = datetime(2027, 3, 1, tzinfo=UTC)


def at(**units):
    return START + timedelta(**units)


@pytest.fixture
def scheduler():
    return Scheduler("memory://unused")


def dues(harness, job, state=State.COMPLETED):
    return [run.due for run in harness.runs(job) if run.state is state]


async def test_a_cron_job_runs_at_its_times(scheduler, duly_harness):
    @scheduler.job(Cron("30 2 * * *", timezone="Europe/Berlin"))
    async def nightly() -> None: ...

    h = duly_harness(scheduler, now=datetime(2027, 3, 26, tzinfo=UTC))
    await h.travel(days=4)
    hours = [(due.day, due.hour, due.minute) for due in dues(h, "nightly")]
    assert hours == [(26, 1, 30), (27, 1, 30), (28, 1, 0), (29, 0, 30)]  # clocks go forward on the 28th


async def test_an_interval_runs_at_whole_intervals(scheduler, duly_harness):
    @scheduler.job(Every(minutes=15))
    async def quarterly() -> None: ...

    h = duly_harness(scheduler, now=at(minutes=4))
    await h.travel(hours=1)
    assert dues(h, "quarterly") == [at(minutes=n) for n in (15, 30, 45, 60)]


async def test_a_single_instant_runs_once_and_a_past_one_at_once(scheduler, duly_harness):
    @scheduler.job(Once(at(hours=1)))
    async def later() -> None: ...

    @scheduler.job(Once(at(days=-9)))
    async def late() -> None: ...

    h = duly_harness(scheduler, now=START)
    await h.drain()
    assert dues(h, "late") == [at(days=-9)]
    await h.travel(days=2)
    assert dues(h, "later") == [at(hours=1)]
    assert len(h.runs()) == 2
    assert (await scheduler.get_job("later")).status is JobStatus.FINISHED


async def test_any_object_with_next_run_is_a_schedule(scheduler, duly_harness):
    class Fibonacci:
        def next_run(self, after):
            a, b = 1, 2
            while at(minutes=a) <= after:
                a, b = b, a + b
            return at(minutes=a) if a < 60 else None

    @scheduler.job(Fibonacci())
    async def spiral() -> None: ...

    h = duly_harness(scheduler, now=START)
    await h.travel(hours=2)
    assert dues(h, "spiral") == [at(minutes=n) for n in (1, 2, 3, 5, 8, 13, 21, 34, 55)]


async def test_a_broken_schedule_does_not_keep_others_from_being_planned(scheduler, duly_harness):
    class Broken:
        def next_run(self, after):
            return at(hours=1) if after < at(minutes=30) else "soon"

    @scheduler.job(Broken())
    async def broken() -> None: ...

    @scheduler.job(Every(minutes=10))
    async def fine() -> None: ...

    h = duly_harness(scheduler, now=START)
    await h.travel(hours=1)
    assert len(dues(h, "fine")) == 6


async def test_bounds_and_numbers_end_a_job(scheduler, duly_harness):
    @scheduler.job(Every(minutes=10), start_at=at(minutes=25), end_at=at(minutes=50))
    async def bounded() -> None: ...

    @scheduler.job(Every(minutes=10), max_runs=3)
    async def thrice() -> None: ...

    h = duly_harness(scheduler, now=START)
    await h.travel(hours=3)
    assert dues(h, "bounded") == [at(minutes=n) for n in (25, 35, 45)]
    assert dues(h, "thrice") == [at(minutes=n) for n in (10, 20, 30)]
    assert (await scheduler.get_job("thrice")).status is JobStatus.FINISHED


async def test_the_payload_of_the_definition_is_given_to_every_run(scheduler, duly_harness):
    seen = []

    @scheduler.job(Every(hours=1), payload={"region": "eu", "since": START})
    async def report(ctx: Context, region: str, since: datetime) -> None:
        seen.append((ctx.due, region, since))

    h = duly_harness(scheduler, now=START)
    await h.travel(hours=2)
    assert seen == [(at(hours=1), "eu", START), (at(hours=2), "eu", START)]


async def test_a_retry_in_between_keeps_the_due_instant(scheduler, duly_harness):
    seen = []

    @scheduler.job(Every(hours=1), retry=RetryPolicy.exponential(3))
    async def flaky(ctx: Context) -> None:
        seen.append((ctx.attempt, ctx.due))
        if ctx.attempt < 3:
            raise ConnectionError

    h = Harness(scheduler, now=START, raises=False)
    with h:
        await h.travel(hours=1, seconds=10)
        [run] = [run for run in h.runs("flaky") if run.state is State.COMPLETED]
    assert seen == [(1, at(hours=1)), (2, at(hours=1)), (3, at(hours=1))]
    assert run.started_at == at(hours=1, seconds=3)


async def test_an_exception_of_a_handler_is_raised_in_the_test(scheduler, duly_harness):
    @scheduler.job(Every(hours=1))
    async def broken() -> None:
        raise ZeroDivisionError("here")

    h = duly_harness(scheduler, now=START)
    with pytest.raises(ZeroDivisionError, match="here"):
        await h.travel(hours=1)


def test_the_harness_works_without_an_event_loop(scheduler, duly_harness):
    calls = []

    @scheduler.job(Every(hours=1))
    def report() -> None:
        calls.append(1)

    @scheduler.job()
    async def mail(to: str) -> None:
        calls.append(to)

    h = duly_harness(scheduler, now=START)
    h.sync.travel(hours=3)
    h.sync.run(lambda: mail.submit(to="ada"))
    h.sync.drain()
    assert calls == [1, 1, 1, "ada"]


async def test_what_was_missed_while_nobody_planned_becomes_one_late_run(scheduler, duly_harness):
    @scheduler.job(Every(minutes=1), overlap="queue")
    async def minutely() -> None: ...

    h = duly_harness(scheduler, now=START)
    await h.travel(minutes=2)
    h.clock.set(at(hours=5, seconds=30))  # nobody was there
    await h.drain()
    skipped = [run for run in h.runs("minutely") if run.state is State.SKIPPED]
    [missed] = skipped
    assert (missed.reason, missed.until) == ("misfire", at(hours=5, minutes=-2))
    caught_up = [due for due in dues(h, "minutely") if due > missed.until]
    assert caught_up == [at(hours=5, minutes=-1), at(hours=5)]
    story = await scheduler.explain("minutely", at(hours=3))
    assert story.verdict == "skipped"
    assert story.setting == "misfire='latest'"


async def test_a_paused_job_is_not_run_and_what_it_missed_is_recorded(scheduler, duly_harness):
    @scheduler.job(Every(hours=1))
    async def report() -> None: ...

    h = duly_harness(scheduler, now=START)
    await h.travel(hours=1)
    await scheduler.pause("report", "end of year")
    view = await scheduler.get_job("report")
    assert (view.status, view.note, view.next_run_at) == (JobStatus.PAUSED, "end of year", None)
    await h.travel(hours=5)
    assert dues(h, "report") == [at(hours=1)]
    story = await scheduler.explain("report", at(hours=3))
    assert (story.verdict, story.setting) == ("not_planned", "pause")
    assert "end of year" in str(story)
    await scheduler.resume("report")
    await h.travel(hours=2)
    assert dues(h, "report") == [at(hours=1), at(hours=7), at(hours=8)]
    story = await scheduler.explain("report", at(hours=3))
    assert (story.verdict, story.setting) == ("skipped", "pause")


async def test_submitted_runs_of_a_paused_job_wait(scheduler, duly_harness):
    @scheduler.job()
    async def mail() -> None: ...

    h = duly_harness(scheduler, now=START)
    await h.drain()
    await scheduler.pause("mail")
    await mail.submit()
    await h.drain()
    assert [run.hold for run in h.runs("mail")] == ["job:mail"]
    await scheduler.resume("mail")
    await h.drain()
    assert [run.state for run in h.runs("mail")] == [State.COMPLETED]


async def test_a_removed_job_stays_removed_until_it_is_restored(scheduler, duly_harness):
    @scheduler.job(Every(hours=1))
    async def report() -> None: ...

    h = duly_harness(scheduler, now=START)
    await h.travel(hours=1)
    await scheduler.remove("report")
    with pytest.raises(JobNotFound):
        await scheduler.get_job("report")
    await h.travel(hours=5)  # every step starts the code anew, as a deploy would
    assert dues(h, "report") == [at(hours=1)]
    story = await scheduler.explain("report", at(hours=3))
    assert (story.verdict, story.setting) == ("not_planned", "remove")
    await scheduler.register(Job(handler=report.function, schedule=Every(hours=1), restore=True))
    await h.travel(hours=1)
    assert dues(h, "report") == [at(hours=1), at(hours=7)]


async def test_a_changed_schedule_leaves_nothing_of_the_old_one(scheduler, duly_harness):
    async def report() -> None: ...

    scheduler.add(Job(handler=report, schedule=Every(seconds=20)))
    h = duly_harness(scheduler, now=START)
    await h.travel(minutes=1)
    await scheduler.register(Job(handler=report, schedule=Every(seconds=45)))
    await h.travel(minutes=2)
    assert dues(h, "report") == [at(seconds=n) for n in (20, 40, 60, 90, 135, 180)]
    assert (await scheduler.get_job("report")).revision == 2


async def test_a_changed_payload_reaches_runs_that_were_already_planned(scheduler, duly_harness):
    seen = []

    async def report(region: str) -> None:
        seen.append(region)

    scheduler.add(Job(handler=report, schedule=Every(seconds=20), payload={"region": "eu"}))
    h = duly_harness(scheduler, now=START)
    await h.travel(seconds=20)
    await scheduler.register(Job(handler=report, schedule=Every(seconds=20), payload={"region": "us"}))
    await h.travel(seconds=20)
    assert seen == ["eu", "us"]
    assert dues(h, "report") == [at(seconds=20), at(seconds=40)]


async def test_a_job_may_be_triggered_by_hand(scheduler, duly_harness):
    seen = []

    @scheduler.job(Every(hours=1), payload={"region": "eu"})
    async def report(region: str) -> None:
        seen.append(region)

    h = duly_harness(scheduler, now=START)
    await h.drain()
    await scheduler.trigger("report")
    await report.trigger()
    await h.drain()
    await scheduler.trigger("report", {"region": "us"})
    await h.drain()
    assert seen == ["eu", "us"]  # the second was skipped: the first was not finished
    assert [run.reason for run in h.runs("report") if run.state is State.SKIPPED] == ["overlap"]
    with pytest.raises(JobNotFound, match="'nobody'"):
        await scheduler.trigger("nobody")


@pytest.mark.parametrize("overlap", ["skip", "queue", "replace", "allow"])
async def test_overlap_is_as_the_job_says(overlap, url):
    scheduler = Scheduler(url, SchedulerConfig(max_concurrent=5))
    let_go = asyncio.Event()
    running, most = 0, 0

    @scheduler.job(overlap=overlap)
    async def slow(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await let_go.wait()
        finally:
            running -= 1
        return n

    async with scheduler:
        first = await slow.submit(1)
        await eventually(lambda: _is(running == 1))
        second, third = await slow.submit(2), await slow.submit(3)
        if overlap == "skip":
            for run in (second, third):
                await eventually(lambda run=run: _in_state(run, State.SKIPPED))
        if overlap == "replace":
            await eventually(lambda: _in_state(first, State.CANCELLED))
        if overlap == "allow":
            await eventually(lambda: _is(running == 3))
        let_go.set()
        ended = [await eventually(lambda run=run: _ended(run)) for run in (first, second, third)]
        states = [run.state.value for run in ended]
    expected = {
        "skip": ["completed", "skipped", "skipped"],
        "queue": ["completed", "completed", "completed"],
        "replace": ["cancelled", "skipped", "completed"],
        "allow": ["completed", "completed", "completed"],
    }
    if overlap == "replace":  # the second may have been started before it was replaced
        assert (states[0], states[2]) == ("cancelled", "completed")
    else:
        assert states == expected[overlap]
    assert most == (3 if overlap == "allow" else 1)


async def _is(condition):
    return condition


async def _in_state(handle, state):
    return (await handle.get()).state is state


async def _ended(handle):
    run = await handle.get()
    return run if run.final else None


async def test_upcoming_runs_are_told_beyond_what_is_planned(scheduler, duly_harness):
    @scheduler.job(Every(hours=1))
    async def hourly() -> None: ...

    @scheduler.job(Cron("0 0 * * *"))
    async def nightly() -> None: ...

    h = duly_harness(scheduler, now=at(hours=22, minutes=30))
    await h.drain()
    upcoming = await scheduler.upcoming(4)
    assert [(each.job, each.at) for each in upcoming] == [
        ("hourly", at(hours=23)),
        ("hourly", at(hours=24)),
        ("nightly", at(hours=24)),
        ("hourly", at(hours=25)),
    ]
    assert [each.at for each in await scheduler.upcoming(2, "nightly")] == [at(hours=24), at(hours=48)]
    views = {view.name: view for view in await scheduler.jobs()}
    assert views["nightly"].next_run_at == at(hours=24)
    assert views["hourly"].schedule == "every hour"


async def test_a_view_tells_what_became_of_the_runs(scheduler, duly_harness):
    @scheduler.job(Every(hours=1), retry=RetryPolicy.fixed(1, 1), tags=("money",), description="Bill.")
    async def bill(ctx: Context) -> None:
        if ctx.due.hour == 2:
            raise ValueError

    with Harness(scheduler, now=START, raises=False) as h:
        await h.travel(hours=3, seconds=1)
        view = await scheduler.get_job("bill")
    assert (view.completed, view.failed, view.retried, view.run_count) == (2, 1, 1, 3)
    assert (view.last_run_at, view.last_outcome.value) == (at(hours=3), "succeeded")
    assert (view.tags, view.description, view.origin.value) == (("money",), "Bill.", "code")


@pytest.mark.parametrize(
    ("when", "verdict", "words"),
    [
        (at(hours=1), "completed", "Attempt 1 started"),
        (at(minutes=40), "completed", "(next due 2027-03-01T01:00:00Z, last 2027-03-01T00:00:00Z)"),
        (at(minutes=10), "before_job", "explaining 2027-03-01T00:00:00Z instead"),
        (at(hours=-5), "before_job", "registered later"),
        (at(days=9), "not_yet", "not due yet"),
    ],
)
async def test_explain_tells_the_story_of_an_instant(scheduler, duly_harness, when, verdict, words):
    @scheduler.job(Every(hours=1))
    async def report() -> None: ...

    h = duly_harness(scheduler, now=START)
    await h.travel(hours=2)
    story = await scheduler.explain("report", when)
    assert story.verdict == verdict
    assert words in str(story)
    assert str(story).startswith("report: every hour (revision 1, active).")


async def test_explain_knows_overlaps_failures_and_unknown_jobs(scheduler, duly_harness):
    @scheduler.job(Every(hours=1), retry=RetryPolicy.fixed(1, 5000))
    async def failing() -> None:
        raise ValueError("no luck")

    with Harness(scheduler, now=START, raises=False) as h:
        await h.travel(hours=4)
        failed = await scheduler.explain("failing", at(hours=1))
        overlapped = await scheduler.explain("failing", at(hours=2))
        with pytest.raises(JobNotFound):
            await scheduler.explain("nobody", START)
        with pytest.raises(ValueError, match="naive"):
            await scheduler.explain("failing", datetime(2027, 1, 1))
    assert (failed.verdict, failed.setting) == ("failed", "max_retries=1")
    assert "ValueError: no luck" in str(failed)
    assert (overlapped.verdict, overlapped.setting) == ("skipped", "overlap='skip'")
