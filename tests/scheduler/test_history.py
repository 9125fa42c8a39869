"""Versions of definitions through the scheduler: kept with every change, and brought back by a rollback."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from duly import ConfigurationError, Every, Job, JobNotFound, Scheduler
from duly.errors import JobChanged
from duly.job_files import JobFile
from duly.model import CommandSpec, EverySpec, JobRecord, JobSpec, JobStatus, Node, Overlap, State
from duly.model.definitions import KEPT_DEFINITIONS, definitions_log
from duly.model.job import COMMAND_HANDLER
from duly.scheduler.job import Job as JobDefinition


async def work(amount: int = 1) -> int:
    return amount


def program(url, every=3600, **options) -> Scheduler:
    scheduler = Scheduler(url)
    scheduler.add(Job(name="report", handler=work, schedule=Every(seconds=every), **options))
    return scheduler


async def define(scheduler, by="ada", **options) -> JobRecord:
    """Define a job as the API does."""
    client = await scheduler.opened()
    options = {"schedule": Every(hours=1)} | options
    record, _ = await client.definitions.define(JobDefinition(name="job", handler="work", **options), by=by)
    return record


@pytest.fixture
async def scheduler(url):
    scheduler = Scheduler(url)

    @scheduler.job(name="work")
    async def handler(amount: int = 1) -> int:
        return amount

    async with scheduler.client():
        yield scheduler


async def test_every_definition_is_kept_with_who_and_when(scheduler):
    await define(scheduler)
    await define(scheduler, by="bob", priority=3)
    await scheduler.pause("job", "lunch")
    await scheduler.resume("job")
    await define(scheduler, by="eve", priority=3, schedule=Every(minutes=30))
    found = await scheduler.history("job")
    assert [(each.revision, each.by, each.current) for each in found] == [
        (5, "eve", True),
        (2, "bob", False),
        (1, "ada", False),
    ]
    assert [each.words() for each in found] == [
        ("schedule: every hour → every 30 minutes",),
        ("priority: 0 → 3",),
        ("created",),
    ]
    assert found[0].at >= found[1].at >= found[2].at


async def test_an_unchanged_definition_is_no_version(scheduler):
    await define(scheduler)
    await define(scheduler, by="bob")
    assert [each.by for each in await scheduler.history("job")] == ["ada"]


async def test_a_new_job_writes_no_history(scheduler):
    await define(scheduler)
    store = (await scheduler.opened()).backend.store
    assert await store.read(definitions_log("job")) == []


async def test_the_newest_versions_are_kept(scheduler):
    for number in range(KEPT_DEFINITIONS + 10):
        await define(scheduler, description=f"version {number}")
    found = await scheduler.history("job")
    assert len(found) == KEPT_DEFINITIONS + 1
    assert found[-1].words() == ("earlier versions are not kept",)
    with pytest.raises(ConfigurationError, match="has no version of revision 3: those that are kept are 10, 11"):
        await scheduler.rollback("job", 3)


async def test_a_rollback_is_a_new_revision_with_the_old_definition(scheduler):
    await define(scheduler, payload={"amount": 7}, overlap="queue")
    await define(scheduler, by="bob", schedule=Every(minutes=5), priority=3)
    await scheduler.pause("job", "lunch")
    done = await scheduler.rollback("job", by="eve")
    assert (done.to, done.revision, done.dry_run) == (1, 4, False)
    assert {each.field for each in done.changes} == {"schedule", "payload", "priority", "overlap"}
    view = await scheduler.get_job("job")
    assert (view.schedule, view.priority, view.overlap, view.revision) == ("every hour", 0, Overlap.QUEUE, 4)
    assert (view.payload, view.status) == ('{"amount":7}', JobStatus.PAUSED)
    newest, *_ = await scheduler.history("job")
    assert (newest.revision, newest.by) == (4, "eve")
    await scheduler.rollback("job")  # the one before: what bob wrote
    assert (await scheduler.get_job("job")).priority == 3


async def test_a_rollback_names_any_revision(scheduler):
    for priority in (1, 2, 3):
        await define(scheduler, priority=priority)
    assert (await scheduler.rollback("job", 1)).revision == 4
    assert (await scheduler.get_job("job")).priority == 1
    assert (await scheduler.rollback("job", 3, dry_run=True)).changes[0].new == "3"
    same = await scheduler.rollback("job", 4)
    assert (same.changes, same.revision) == ((), 4)
    for wrong in (0, -1, "2", True, 1.5):
        with pytest.raises(ConfigurationError, match="revision"):
            await scheduler.rollback("job", wrong)


async def test_a_dry_run_changes_nothing(scheduler):
    await define(scheduler)
    await define(scheduler, priority=3)
    before = await scheduler.get_job("job")
    assert (await scheduler.rollback("job", dry_run=True)).dry_run
    assert await scheduler.get_job("job") == before


async def test_what_cannot_be_rolled_back_says_why(scheduler):
    with pytest.raises(JobNotFound):
        await scheduler.rollback("nobody")
    with pytest.raises(JobNotFound):
        await scheduler.history("no\ud800body")
    await define(scheduler)
    with pytest.raises(ConfigurationError, match="has no earlier version: it is at revision 1"):
        await scheduler.rollback("job")


async def test_a_rollback_that_loses_a_race_is_tried_again(scheduler, monkeypatch):
    await define(scheduler)
    await define(scheduler, priority=3)
    store = (await scheduler.opened()).backend.store
    save, raced = store.save, []

    async def slow(changes, **options):
        if not raced:
            raced.append(True)
            await define(scheduler, by="eve", priority=9)
        return await save(changes, **options)

    monkeypatch.setattr(store, "save", slow)
    done = await scheduler.rollback("job", 1)
    assert done.revision == 4
    found = await scheduler.history("job")
    assert [each.revision for each in found] == [4, 3, 2, 1]
    assert [each.words() for each in found[:2]] == [("priority: 9 → 0",), ("priority: 3 → 9",)]


async def test_runs_that_wait_carry_the_definition_that_counts(scheduler):
    await define(scheduler, payload={"amount": 7})
    await define(scheduler, payload={"amount": 8})
    await scheduler.rollback("job")
    async with scheduler:
        handle = await scheduler.trigger("job")
        assert await handle.result(20) == 7


async def test_a_removed_job_has_no_versions_and_a_new_one_begins_again(scheduler):
    await define(scheduler)
    await define(scheduler, priority=3)
    await scheduler.remove("job")
    with pytest.raises(JobNotFound):
        await scheduler.history("job")
    await define(scheduler, by="bob")
    assert [(each.revision, each.by) for each in await scheduler.history("job")] == [(1, "bob")]


# --- jobs of code


async def test_code_of_a_live_node_is_not_rolled_back(shared_url):
    async with program(shared_url):
        pass
    async with program(shared_url, every=60) as node:
        operator = Scheduler(shared_url)
        async with operator.client():
            found = await operator.history("report")
            assert [each.words() for each in found] == [("schedule: every hour → every minute",), ("created",)]
            assert all(each.by.startswith("node ") for each in found)
            with pytest.raises(
                JobChanged, match=r"is defined by the code of live nodes .*deploy the earlier code instead"
            ):
                await operator.rollback("report")
        assert (await node.get_job("report")).schedule == "every minute"


async def test_code_of_a_stopped_node_is_rolled_back_until_it_starts_again(shared_url):
    async with program(shared_url):
        pass
    async with program(shared_url, every=60):
        pass
    operator = Scheduler(shared_url)
    async with operator.client():
        await operator.rollback("report", by="ada")
        assert (await operator.get_job("report")).schedule == "every hour"
    async with program(shared_url, every=60) as node:
        assert (await node.get_job("report")).schedule == "every minute"
        found = await node.history("report")
        assert [each.words() for each in found][:2] == [
            ("schedule: every hour → every minute",),
            ("schedule: every minute → every hour",),
        ]


async def test_a_schedule_in_code_is_not_rolled_back_where_the_code_is_missing(shared_url):
    class Tides:
        def next_run(self, after):
            return after + timedelta(hours=6)

    async with Scheduler(shared_url) as first:
        await first.register(Job(name="tide", handler=work, schedule=Tides()))
    async with Scheduler(shared_url) as second:
        await second.register(Job(name="tide", handler=work, schedule=Every(hours=1)))
    operator = Scheduler(shared_url)
    async with operator.client():
        with pytest.raises(ConfigurationError, match="can be computed only by its own code"):
            await operator.rollback("tide")


async def test_unchanged_code_reads_and_writes_no_history(shared_url, monkeypatch):
    async with program(shared_url):
        pass
    again = program(shared_url)
    async with again.client():
        store = (await again.opened()).backend.store

        async def refuse(*_, **__):
            pytest.fail("an unchanged job was read or written")

        for verb in ("read", "append", "put", "save"):
            monkeypatch.setattr(store, verb, refuse)
        client = await again.opened()
        await client.code_deploys.deploy(client.registry.jobs(), client.clock.now())


# --- jobs of files


def job_file(timeout) -> JobFile:
    command = CommandSpec(("true",), environment={"TOKEN": f"s3cret-{timeout}"})
    spec = JobSpec(name="backup", handler=COMMAND_HANDLER, schedule=EverySpec(timedelta(hours=1)), command=command)
    policy = replace(spec.policy, timeout=float(timeout))
    return JobFile("ops", (replace(spec, policy=policy),))


async def test_jobs_of_files_have_versions_without_secrets(scheduler):
    await scheduler.apply(await scheduler.compare(job_file(10)), by="ada")
    await scheduler.apply(await scheduler.compare(job_file(20)), by="bob")
    newest, first = await scheduler.history("backup")
    assert (newest.by, first.by) == ("bob", "ada")
    assert newest.words() == ("environment.TOKEN: set → set anew", "timeout: 10 s → 20 s")
    done = await scheduler.rollback("backup", by="eve")
    assert (done.job_file, done.revision) == ("ops", 3)
    assert "s3cret" not in str(done.changes)
    difference = await scheduler.compare(job_file(20))
    assert [each.name for each in difference.alterations] == ["backup"]


def test_the_blocking_twins_do_the_same(tmp_path):
    scheduler = program(f"sqlite:///{tmp_path}/duly.db").sync
    scheduler.start()
    try:
        assert [each.revision for each in scheduler.history("report")] == [1]
        with pytest.raises(ConfigurationError):
            scheduler.rollback("report", 0)
    finally:
        scheduler.stop()


async def test_other_nodes_are_asked_not_only_this_one(scheduler):
    """A job of the API is rolled back whoever lives; only code is refused."""
    await define(scheduler)
    await define(scheduler, priority=3)
    async with scheduler:
        nodes: list[Node] = await scheduler.nodes()
        assert nodes
        assert (await scheduler.rollback("job")).revision == 3
        run = await (await scheduler.trigger("job")).get()
        assert run.state is not State.SKIPPED
