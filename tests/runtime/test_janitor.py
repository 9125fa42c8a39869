"""The janitor: jobs that nobody can run, runs held without a reason, and what retention no longer keeps."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace
from tests.sim.company import Company, played

from duly import Every, Job, RetryPolicy, RunNotFound, Scheduler, State
from duly.backends.memory import MemoryBackend
from duly.backends.memory.backend import CAPABILITIES
from duly.errors import ResultExpired
from duly.model import JobStatus, Node, Origin, Retention
from duly.model.event import JobSaved, PlanFailed, PromisesChanged, ServiceFailed
from duly.model.holds import hold_for_job
from duly.model.job import DEPLOYED
from duly.rules import job_changes


def program(*names, every=10):
    """A program whose jobs have handlers of their own."""
    scheduler = Scheduler("memory://")

    async def work() -> None: ...

    for name in names:
        scheduler.add(Job(name=name, handler=work, schedule=Every(seconds=every), overlap="allow"))
    return scheduler


async def status(company, name):
    return (await company.record(name)).status


@played
async def test_a_job_whose_handler_is_gone_is_retired_after_its_grace_and_comes_back(company):
    leader = await company.start("old", program("kept"), misfire_grace=60)
    other = await company.start("other", program("report"))
    await company.until(lambda: company.runs("report", State.COMPLETED))
    await company.stop(other)
    gone = company.clock.now()

    record = await company.until(lambda: retired(company, "report"))
    assert record.retired_at - gone >= timedelta(seconds=60)
    assert await status(company, "kept") is JobStatus.ACTIVE
    await asyncio.sleep(100)
    missed = record.retired_at + timedelta(seconds=50)
    missed -= timedelta(seconds=missed.second % 10, microseconds=missed.microsecond)
    story = await company.office.explainer.instant("report", missed)
    assert (story.verdict, story.setting) == ("not_planned", "no_handler")
    assert "No live node has its handler" in str(story)

    await company.start("other", program("report"))
    back = await company.until(lambda: active(company, "report"))
    *early, skipped = await company.runs("report", State.SKIPPED)
    assert all(run.reason == "misfire" and gone < run.due < record.retired_at for run in early)  # planned before that
    assert skipped.reason == "no_handler"
    assert skipped.due <= missed <= skipped.until <= back.updated_at
    story = await company.office.explainer.instant("report", missed)
    assert (story.verdict, story.setting) == ("skipped", "no_handler")
    await asyncio.sleep(60)
    await every_instant_once(company, "report", seconds=10)
    assert [event.what for event in leader.events(JobSaved) if event.job == "report"] == ["retired", "back"]
    assert leader.events(ServiceFailed, PlanFailed) == []


async def retired(company, name):
    record = await company.record(name)
    return record if record.status is JobStatus.RETIRED else None


async def active(company, name):
    record = await company.record(name)
    return record if record.status is JobStatus.ACTIVE else None


async def every_instant_once(company, name, seconds):
    """From the first run to the last each instant has one record."""
    step, runs = timedelta(seconds=seconds), await company.runs(name)
    expected = runs[0].due
    for run in runs:
        assert run.due == expected, f"{name}: {expected} has no record, or two"
        expected = (run.until or run.due) + step


@played
async def test_all_jobs_of_a_missing_handler_are_retired_together(company):
    await company.start("old", program("kept"), misfire_grace=60)
    shared = program("report")
    for name in ("report-eu", "report-us", "report-jp"):
        shared.add(Job(name=name, handler="report", schedule=Every(seconds=10)))
    other = await company.start("other", shared)
    await company.stop(other)
    await company.until(lambda: retired(company, "report"))
    await asyncio.sleep(15)
    for name in ("report-eu", "report-us", "report-jp"):
        assert await status(company, name) is JobStatus.RETIRED


@played
async def test_a_deploy_retires_nothing_and_its_runs_are_only_late(company):
    await company.start("old", program("kept"), misfire_grace=60)
    other = await company.start("other", program("report"))
    await company.until(lambda: company.runs("report", State.COMPLETED))
    await company.stop(other)
    await asyncio.sleep(40)
    held = [run for run in await company.runs("report") if run.hold == "handler:report"]
    assert held
    story = await company.office.explainer.instant("report", held[0].due)
    assert (story.verdict, story.setting) == ("pending", "no_handler")
    assert "waits for a node that has the handler" in str(story)
    again = await company.start("other", program("report"))
    await asyncio.sleep(60)
    assert (await company.record("report")).revision == 1
    assert (await company.office.run(held[0].id)).state is State.COMPLETED
    await every_instant_once(company, "report", seconds=10)
    assert again.events(ServiceFailed) == []


@played
async def test_a_rolling_deploy_of_many_lives_does_not_add_up_to_a_retirement(company):
    await company.start("old", program("kept"), misfire_grace=60)
    for _ in range(4):
        other = await company.start("other", program("report"))
        await asyncio.sleep(25)
        await company.stop(other)
        await asyncio.sleep(35)
    assert await status(company, "report") is JobStatus.ACTIVE


@played
async def test_a_job_without_schedule_is_never_retired(company):
    await company.start("old", program("kept"), misfire_grace=10)
    scheduler = Scheduler("memory://")

    @scheduler.job()
    async def mail() -> None: ...

    other = await company.start("other", scheduler)
    await company.stop(other)
    put = await company.submit("mail")
    await asyncio.sleep(400)
    assert await status(company, "mail") is JobStatus.ACTIVE
    assert (await company.office.run(put.id)).hold == "handler:mail"
    await company.start("other", scheduler)
    run = await company.office.ended(put.id, 60)
    assert run.state is State.COMPLETED


@played
async def test_runs_held_for_a_job_that_goes_on_come_back(company):
    """As after a resume that was cut off between its two steps."""
    await company.start("old", program("kept"))
    scheduler = Scheduler("memory://")

    @scheduler.job()
    async def mail() -> None: ...

    await company.start("other", scheduler)
    await company.definitions.pause("mail", "")
    put = await company.submit("mail")
    await company.until(lambda: holding(company, put.id))
    await asyncio.sleep(60)  # while it is paused its runs stay where they are
    assert (await company.office.run(put.id)).hold == hold_for_job("mail")
    change = job_changes.resume(await company.record("mail"), None, company.clock.now())
    await company.office.backend.store.save([change])
    assert (await company.office.ended(put.id, 60)).state is State.COMPLETED


async def holding(company, run_id):
    return (await company.office.run(run_id)).hold


@played
async def test_what_retention_no_longer_keeps_is_purged_with_its_attempts(company):
    scheduler = Scheduler("memory://")

    @scheduler.job()
    async def good() -> str:
        return "value"

    @scheduler.job(retry=RetryPolicy.fixed(1, 1))
    async def bad() -> None:
        raise ValueError

    retention = Retention(completed=100, failed=300, skipped=500, cancelled=200)
    await company.start("one", scheduler, retention=retention)
    fine, broken = await company.submit("good"), await company.submit("bad")
    waiting = await company.submit("good", delay=3600)
    called_off = await company.submit("good", delay=3600)
    await company.office.cancel(called_off.id, None)
    await company.office.ended(broken.id, 60)
    assert await company.office.result(fine.id, 60) == "value"
    assert len(await company.office.attempts(broken.id)) == 2

    async def present():
        found = await company.runs("good") + await company.runs("bad")
        return {run.id for run in found}

    await asyncio.sleep(80)
    assert await present() == {fine.id, broken.id, waiting.id, called_off.id}
    await asyncio.sleep(50)
    assert await present() == {broken.id, waiting.id, called_off.id}
    with pytest.raises(RunNotFound, match="retention has purged it"):
        await company.office.result(fine.id, 60)
    await asyncio.sleep(100)
    assert await present() == {broken.id, waiting.id}
    await asyncio.sleep(100)
    assert await present() == {waiting.id}
    assert await company.office.attempts(broken.id) == []


@played
async def test_the_number_of_completed_runs_is_bounded_and_the_newest_stay(company):
    await company.start("one", program("tick", every=1), retention=Retention(max_completed=20))
    await asyncio.sleep(200)
    completed = await company.runs("tick", State.COMPLETED)
    assert 20 <= len(completed) <= 32  # those of the last period come on top
    assert completed[-1].due >= company.clock.now() - timedelta(seconds=2)
    story = await company.office.explainer.instant("tick", company.clock.now() - timedelta(seconds=150))
    assert story.verdict in ("forgotten", "not_due")


async def test_a_result_that_was_not_kept_is_told_as_such(url):
    scheduler = Scheduler(url)

    @scheduler.job()
    async def big() -> str:
        return "x" * 100_000

    async with scheduler:
        run = await big.submit()
        with pytest.raises(ResultExpired, match="result not kept"):
            await run.result(timeout=30)


@played
async def test_a_job_of_the_api_is_retired_like_any_other(company):
    await company.start("old", program("kept"), misfire_grace=30)
    spec = (await company.record("kept")).spec
    born = job_changes.create(
        "0api",
        type(spec)(name="foreign", handler="nobody", schedule=spec.schedule),
        Every(seconds=10),
        Origin.API,
        company.clock.now(),
        None,
    )
    await company.office.backend.store.save([born])
    record = await company.until(lambda: retired(company, "foreign"))
    assert record.origin is Origin.API


@played
async def test_dedupe_keys_go_when_their_time_has_passed(company):
    await company.start("one", program("mail"))
    for number in range(5):
        await company.submit("mail", dedupe_key=f"k{number}", unique_for=60.0)
    unique = company.contents.runs._unique
    await asyncio.sleep(30)
    assert len(unique) == 5
    await asyncio.sleep(60)
    assert len(unique) == 0


def test_the_leader_tells_when_the_stores_settings_no_longer_keep_starts_and_when_they_do_again():
    promised = [replace(CAPABILITIES, durable=True, durable_start=True)]

    class Reconfigured(MemoryBackend):
        async def refresh(self):
            return promised[-1]

    company = Company(backend=Reconfigured)

    async def act():
        leader = await company.start("leader", program("kept"))
        told = lambda: leader.events(PromisesChanged)  # noqa: E731
        await asyncio.sleep(150)
        [first] = told()  # the simulated network opens with what memory promises
        promised.append(CAPABILITIES)
        await asyncio.sleep(150)
        promised.append(promised[0])
        await asyncio.sleep(150)
        assert [event.durable_start for event in told()] == [first.durable_start, False, True]

    company.play(act())


# --- the cost of a review


class Reads:
    """Counts the jobs that a store returns to reviews."""

    def __init__(self, store):
        self.jobs = 0
        jobs_of = store.jobs_of

        async def counted(handler, **options):
            found = await jobs_of(handler, **options)
            self.jobs += len(found)
            return found

        store.jobs_of = counted

    def taken(self):
        jobs, self.jobs = self.jobs, 0
        return jobs


@played
async def test_jobs_of_a_missing_handler_are_read_once(company):
    leader = await company.start("old", program("kept"), misfire_grace=60)
    shared = program("report")
    for number in range(30):
        shared.add(Job(name=f"report-{number}", handler="report", schedule=Every(seconds=3600)))
    other = await company.start("other", shared)
    await asyncio.sleep(15)
    reads = Reads(leader.running.client.backend.store)
    await asyncio.sleep(700)
    assert reads.taken() == 0, "all handlers are there"
    await company.stop(other)
    await asyncio.sleep(55)
    assert reads.taken() == 0, "the grace lasts"
    await company.until(lambda: retired(company, "report-29"))
    await asyncio.sleep(700)
    assert reads.taken() == 31, "they are retired"
    await company.start("other", shared)
    await company.until(lambda: active(company, "report-29"))
    await asyncio.sleep(700)
    assert reads.taken() == 31, "they are back"


@played
async def test_many_jobs_are_retired_in_slices(company):
    leader = await company.start("old", program("kept"), misfire_grace=60)
    shared = program("report")
    for number in range(1500):
        shared.add(Job(name=f"report-{number}", handler="report", schedule=Every(seconds=360000)))
    other = await company.start("other", shared)
    await company.stop(other)
    await company.until(lambda: retired(company, "report-999"))
    await asyncio.sleep(30)
    changed = [event for event in leader.events(JobSaved) if event.what == "retired"]
    assert len(changed) == 1501


@played
async def test_a_node_of_an_earlier_version_lets_the_index_be_compared_and_what_is_deployed_be_forgotten(company):
    leader = await company.start("new", program("kept"))
    store = leader.running.client.backend.store
    compared, reindex = [], store.reindex

    async def watched(cursor=""):
        compared.append(cursor)
        await reindex(cursor)
        return {"": "more", "more": "last"}.get(cursor)

    store.reindex = watched
    await store.put(*DEPLOYED, b'["digest"]')
    await asyncio.sleep(35)
    assert (await store.get(*DEPLOYED)).value == b'["digest"]'
    assert len(compared) <= 4, "one slice with each tick"
    old = Node(id="old", host="h", pid=1, started_at=company.clock.now(), handlers=frozenset(), protocol=1)
    await leader.running.client.backend.coordinator.announce(old, 12)
    compared.clear()
    await asyncio.sleep(11)
    assert compared[:3] == ["", "more", "last"], "as a whole at once"
    assert (await store.get(*DEPLOYED)).value == b""
    compared.clear()
    await asyncio.sleep(15)
    assert compared[:3] == ["", "more", "last"], "once more when it has gone"
