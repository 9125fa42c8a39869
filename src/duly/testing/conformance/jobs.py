"""What every store must do with definitions of jobs, before anything is planned."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from duly.model import (
    CommandSpec,
    CronSpec,
    JobChange,
    JobRecord,
    JobSpec,
    Misfire,
    Origin,
    Overlap,
    Pause,
    RetrySpec,
    RunPolicy,
)
from duly.model.definitions import KEPT_DEFINITIONS, definitions_log
from duly.model.job import DEPLOYED, Defined
from duly.testing.conformance.world import NIGHTLY, World, part, scenario


def _of(world: World, name: str, handler: str, **fields: Any) -> JobRecord:
    """A recurring job of another handler than its own."""
    record = world.record(name, **fields)
    return replace(record, spec=replace(record.spec, handler=handler))


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
        record = replace(record, defined=Defined(1, world.now, "ada"))
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
    async def test_handlers_are_those_of_recurring_jobs_that_are_not_removed(self, world: World) -> None:
        assert await world.store.handlers(retired=False) == set()
        await world.create(
            _of(world, "a", "mail"),
            _of(world, "b", "mail"),
            _of(world, "c", "sms"),
            _of(world, "paused", "duly:command", paused=Pause(world.now)),
            _of(world, "gone", "fax", removed_at=world.now),
            _of(world, "back", "post", retired_at=world.now),
            world.record("submitted", every=None),
        )
        assert await world.store.handlers(retired=False) == {"mail", "sms", "duly:command"}
        assert await world.store.handlers(retired=True) == {"post"}

    @scenario
    async def test_jobs_of_a_handler_are_read_in_slices(self, world: World) -> None:
        names = ["C", "_d", "a", "b", "e"]
        await world.create(*[_of(world, name, "mail") for name in names], _of(world, "other", "mail.now"))
        await world.create(_of(world, "f", "mail", retired_at=world.now))

        async def read(after: str, limit: int, retired: bool = False) -> list[str]:
            found = await world.store.jobs_of("mail", retired=retired, after=after, limit=limit)
            return [record.name for record in found]

        assert await read("", 2) == names[:2]
        assert await read("_d", 9) == names[2:]
        assert await read("e", 9) == []
        assert await read("", 9, retired=True) == ["f"]
        assert await world.store.jobs_of("nobody", retired=False, limit=9) == []

    @scenario
    async def test_a_change_moves_a_job_between_handlers(self, world: World) -> None:
        await world.create(record := _of(world, "a", "mail"), other := _of(world, "b", "mail"))
        moved = replace(record, revision=2, spec=replace(record.spec, handler="sms"))
        await world.store.save([JobChange(moved, 1)], now=world.now)
        assert await world.store.handlers(retired=False) == {"mail", "sms"}
        assert await world.store.jobs_of("mail", retired=False, limit=9) == [other]
        assert await world.store.jobs_of("sms", retired=False, limit=9) == [moved]
        retired = replace(moved, revision=3, retired_at=world.now, paused=Pause(world.now))
        await world.store.save([JobChange(retired, 2)], now=world.now)
        await world.store.save([JobChange(replace(other, revision=2, removed_at=world.now), 1)], now=world.now)
        assert await world.store.handlers(retired=False) == set()
        assert await world.store.handlers(retired=True) == {"sms"}
        assert await world.store.jobs_of("sms", retired=True, limit=9) == [retired]
        removed = replace(retired, revision=4, removed_at=world.now)
        await world.store.save([JobChange(removed, 3)], now=world.now)
        assert await world.store.handlers(retired=True) == set()
        assert await world.store.jobs_of("sms", retired=True, limit=9) == []

    @scenario
    async def test_comparing_the_index_with_the_records_changes_no_answer(self, world: World) -> None:
        await world.create(*[_of(world, name, "mail") for name in ("a", "b")], world.record("c", every=None))
        cursor = await world.store.reindex()
        while cursor is not None:
            cursor = await world.store.reindex(cursor)
        assert [record.name for record in await world.store.jobs()] == ["a", "b", "c"]
        assert await world.store.handlers(retired=False) == {"mail"}

    @scenario
    async def test_a_change_that_redefines_forgets_what_is_deployed(self, world: World) -> None:
        await world.create(record := world.record())
        assert await world.store.get(*DEPLOYED) is None
        second, third, fourth = (replace(record, revision=revision) for revision in (2, 3, 4))
        await world.store.save([JobChange(second, 1, redefines=True)], now=world.now)
        emptied = await world.store.get(*DEPLOYED)
        assert emptied is not None
        assert emptied.value == b""
        written = await world.store.put(*DEPLOYED, b"known", expect=emptied.version)
        assert written is not None
        assert await world.store.save([JobChange(third, 1, redefines=True)], now=world.now) == [None]
        await world.store.save([JobChange(third, 2)], now=world.now)
        assert await world.store.get(*DEPLOYED) == written
        await world.store.save([JobChange(fourth, 3, redefines=True)], now=world.now)
        assert await world.store.put(*DEPLOYED, b"late", expect=written.version) is None
        again = await world.store.get(*DEPLOYED)
        assert again is not None
        assert again.value == b""

    @scenario
    async def test_a_replaced_definition_is_kept_in_the_same_step(self, world: World) -> None:
        await world.create(record := world.record())
        log = definitions_log(record.name)
        assert await world.store.read(log) == []
        second = replace(record, revision=2)
        assert await world.store.save([JobChange(second, 1, replaces=b"first")], now=world.now) == [second]
        stale = JobChange(replace(record, revision=2), 1, replaces=b"of a lost race")
        assert await world.store.save([stale], now=world.now) == [None]
        await world.store.save([JobChange(replace(record, revision=3), 2)], now=world.now)
        assert [entry.value for entry in await world.store.read(log)] == [b"first"]

    @scenario
    async def test_the_newest_replaced_definitions_are_kept(self, world: World) -> None:
        await world.create(record := world.record(), other := world.record("other"))
        count = KEPT_DEFINITIONS + 5
        changes = [
            JobChange(replace(record, revision=number + 1), number, replaces=b"%d" % number)
            for number in range(1, count + 1)
        ]
        assert None not in await world.store.save(changes, now=world.now)
        found = await world.store.read(definitions_log(record.name), limit=count)
        assert [entry.value for entry in found] == [b"%d" % number for number in range(6, count + 1)]
        assert [entry.sequence for entry in found] == list(range(6, count + 1))
        assert await world.store.read(definitions_log(other.name)) == []

    @scenario
    async def test_replaced_definitions_go_with_the_record(self, world: World) -> None:
        await world.create(record := world.record(), other := world.record("other"))
        for each in (record, other):
            await world.store.save([JobChange(replace(each, revision=2), 1, replaces=b"first")], now=world.now)
        assert await world.store.remove(record.name, 1, now=world.now) is False
        assert len(await world.store.read(definitions_log(record.name))) == 1
        assert await world.store.remove(record.name, 2, now=world.now)
        assert await world.store.read(definitions_log(record.name)) == []
        assert len(await world.store.read(definitions_log(other.name))) == 1

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
