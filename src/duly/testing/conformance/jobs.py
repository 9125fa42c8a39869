"""What every store must do with definitions of jobs, before anything is planned."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from duly.model import CommandSpec, CronSpec, JobChange, JobSpec, Misfire, Origin, Overlap, RetrySpec, RunPolicy
from duly.testing.conformance.world import NIGHTLY, World, part, scenario


@part
class JobSuite:
    """Definitions of jobs: saved under a revision, listed by name."""

    @scenario
    async def test_a_job_is_stored_as_it_was_saved(self, world: World) -> None:
        spec = JobSpec(
            name="report",
            handler="build_report",
            schedule=replace(NIGHTLY, start_at=world.now, end_at=world.after(9e6), jitter=timedelta(seconds=3)),
            payload=b'{"region":"eu"}',
            queue="reports",
            priority=7,
            policy=RunPolicy(timeout=600, retry=RetrySpec(max_retries=5, strategy="linear")),
            overlap=Overlap.QUEUE,
            misfire=Misfire.ALL,
            max_runs=9,
            description="Build and mail the report.",
            tags=("daily", "eu"),
            command=CommandSpec(
                ("report", "--all"), shell=False, cwd="/", environment={"A": "ü"}, pass_environment=("HOME",)
            ),
        )
        record = world.record("report", spec=spec, origin=Origin.FILE, code_since=world.now, job_file="night")
        await world.create(record)
        assert await world.store.job("report") == record
        assert await world.store.jobs() == [record]
        assert await world.store.job("nobody") is None

    @scenario
    async def test_a_cron_job_keeps_its_zone(self, world: World) -> None:
        spec = JobSpec(name="nightly", handler="nightly", schedule=NIGHTLY)
        await world.create(world.record("nightly", spec=spec))
        stored = await world.store.job("nightly")
        assert stored is not None
        assert isinstance(stored.spec.schedule, CronSpec)
        assert stored.spec.schedule.timezone == "Europe/Berlin"

    @scenario
    async def test_jobs_are_listed_by_name(self, world: World) -> None:
        await world.create(*[world.record(name) for name in ("b", "a", "c")])
        assert [record.name for record in await world.store.jobs()] == ["a", "b", "c"]
        assert [record.name for record in await world.store.jobs(["c", "nobody", "a"])] == ["a", "c"]
        assert await world.store.jobs([]) == []

    @scenario
    async def test_jobs_are_read_in_slices(self, world: World) -> None:
        await world.create(*[world.record(name) for name in ("b", "a", "C", "_d", "e")])
        names = [record.name for record in await world.store.jobs()]
        assert names == ["C", "_d", "a", "b", "e"]
        assert [record.name for record in await world.store.jobs(limit=2)] == names[:2]
        assert [record.name for record in await world.store.jobs(after="_d", limit=2)] == names[2:4]
        assert [record.name for record in await world.store.jobs(["e", "a", "C"], after="C", limit=1)] == ["a"]
        assert await world.store.jobs(after="e", limit=2) == []

    @scenario
    async def test_a_name_is_created_once(self, world: World) -> None:
        await world.create(record := world.record())
        twin = replace(record, uid=world.ids.new())
        assert await world.store.save([JobChange(twin, None)], now=world.now) == [None]
        assert await world.store.job(record.name) == record

    @scenario
    async def test_a_change_applies_to_the_revision_it_was_made_from(self, world: World) -> None:
        await world.create(record := world.record())
        second = replace(record, revision=2)
        assert await world.store.save([JobChange(second, 1)], now=world.now) == [second]
        assert await world.store.save([JobChange(second, 1)], now=world.now) == [None]
        assert await world.store.save([JobChange(replace(second, revision=4), 3)], now=world.now) == [None]
        assert await world.store.job(record.name) == second

    @scenario
    async def test_changes_are_answered_in_order(self, world: World) -> None:
        await world.create(world.record("a"))
        new, stale = world.record("b"), world.record("a")
        assert await world.store.save([JobChange(stale, None), JobChange(new, None)], now=world.now) == [None, new]
