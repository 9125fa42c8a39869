"""Moving a store: dumping, loading, freezing and closing it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from duly.errors import BackendError, ImportUnfinished, StoreMoved
from duly.model import (
    Delivery,
    Entry,
    Fired,
    JobChange,
    Origin,
    OutcomeKind,
    Pause,
    Run,
    RunPolicy,
    State,
    WhenFull,
)
from duly.model.definitions import definitions_log
from duly.model.holds import ALONE, UNPLACED
from duly.model.run_log import Chunk
from duly.model.transfer import Gone, JobEntry, LogEntry, QueueEntry, Record, RunEntry, ValueEntry, kind_of
from duly.ports import Backend, Snapshot, Store
from duly.rules.restoring import RESTORED, as_loaded
from duly.testing.conformance.run_logs import ODD_TEXTS, report_of
from duly.testing.conformance.world import LEASE, Suite, World, failed, part, scenario, to_place

REPORTING = ("completed", "retried", "running", "once")  # the runs of `fill` that have a log


async def dumped(snapshot: Snapshot, limit: int = 1000) -> list[Record]:
    """All records of a snapshot."""
    page = await snapshot.dump(None, limit)
    records = list(page.records)
    while page.next is not None:
        page = await snapshot.dump(page.next, limit)
        records += page.records
    return records


async def contents(store: Store, limit: int = 1000) -> list[Record]:
    """All records of a store."""
    async with store.snapshot() as snapshot:
        return await dumped(snapshot, limit)


def by_key(records: Iterable[Record]) -> dict[tuple[str, str], Record]:
    """Records by kind and key, so that they can be compared without their order."""
    return {(kind_of(record), record.key): record for record in records}


async def taken(world: World) -> tuple[list[Record], int]:
    """Everything in the store as it is loaded elsewhere, and the highest fence.

    A scenario calls this before it makes another backend: that may use the same store, emptied.
    """
    async with world.store.snapshot() as snapshot:
        return [as_loaded(record, snapshot.at) for record in await dumped(snapshot)], snapshot.fence


@asynccontextmanager
async def loaded(suite: Suite, world: World, records: Sequence[Record], fence: int = 0) -> AsyncIterator[World]:
    """The world of another store that these records were loaded into."""
    async with suite.backend() as other:
        await other.store.migrate()
        await other.store.begin_load("a test")
        await other.store.load(records)
        await other.store.end_load(fence)
        there = World(other, seed=1)
        there.now = world.now
        yield there


def calls_of(backend: Backend, run: Run) -> Iterator[Awaitable[object]]:
    """Calls of every kind, one at a time."""
    yield backend.queue.put([run])
    yield backend.queue.claim("n", None, None, 1, LEASE, 5)
    yield backend.queue.renew([], LEASE)
    yield backend.store.job("report")
    yield backend.store.jobs()
    yield backend.store.counts()
    yield backend.store.put("new", "a", b"1")
    yield backend.store.append("new", [b"1"])


async def fill(world: World) -> dict[str, Run]:
    """Put something of every kind into the store; runs by what is special about them."""
    jobs = [
        world.record("report"),
        world.record("paused", paused=Pause(world.now, "until Monday"), origin=Origin.API),
        world.record("removed", removed_at=world.now, revision=7),
        world.record("grouped", planned=3, planned_in="shard-2"),
    ]
    await world.create(*jobs)
    await world.store.pause("slow")
    await world.store.put("token", "a", b"\x00\xff")
    await world.store.put("token", "a", b"second")
    await world.store.put("setting", "größe", b"1")
    for revision, text in ((1, b"first"), (2, b"\x00second")):
        change = JobChange(replace(jobs[0], revision=revision + 1), revision, replaces=text)
        assert None not in await world.store.save([change], now=world.now)
    await world.store.append("audit", [b"one", b"two", b"\x00three"])
    await world.store.append("events", [b"1", b"2", b"3"], keep=2)
    policy = RunPolicy(timeout=5.0, delivery=Delivery.AT_MOST_ONCE)
    runs = {
        "completed": world.run("report", payload=b'{"a":"\\u0000"}', headers={"x": "y"}),
        "retried": world.run("grouped", group="grouped", when_full=WhenFull.QUEUE),
        "failed": world.run("report"),
        "running": world.run("report", priority=3),
        "once": world.run("report", policy=policy),
        "unique": world.run("report", dedupe_key="k.ey", unique_for=3600.0),
    }
    await world.put(*runs.values())
    claims = {claim.run.id: claim for claim in await world.claim()}
    world.advance(1)
    for name in REPORTING:
        claim = claims[runs[name].id]
        reports = [report_of(world, claim, ODD_TEXTS), report_of(world, claim, ["last"], written=len(ODD_TEXTS) + 2)]
        assert await world.store.report(reports) == [True, True]
    done = claims[runs["completed"].id]
    settlement = world.settlement(done)
    assert await world.queue.settle([replace(settlement, result=b'{"sum":3}')]) == [True]
    for _ in range(4):
        claim = claims[runs["failed"].id]
        await world.settle(claim, failed())
        world.advance(60)
        claims |= {claim.run.id: claim for claim in await world.claim()}
    await world.settle(claims[runs["retried"].id], failed("once"))
    await world.settle(claims[runs["unique"].id], failed("again"))
    waiting = {
        "late": world.run("mail", delay=-5.0, priority=9, queue="slow"),
        "early": world.run("mail", delay=3600.0, dedupe_key="welcome"),
        "held": world.run("mail", hold="handler:mail"),
        "unplaced": to_place(world, "mail", queue="placed"),
        "entrant": world.run("grouped", group="grouped", when_full=WhenFull.QUEUE),
        "scheduled": world.planned(jobs[0], world.after(20), start_by=world.after(80), strict=True),
        "range": world.planned(
            jobs[0], world.after(-100), until=world.after(-50), state=State.SKIPPED, reason="misfire"
        ),
        "cancelled": world.run("mail", delay=100.0),
    }
    await world.put(*waiting.values())
    await world.store.cancel([waiting["cancelled"].id], "not needed", now=world.now)
    await world.queue.promote(100, now=world.now)
    return runs | waiting


@part
class MovingSuite:
    """Dumping, loading, freezing, closing."""

    # --- dumping and loading

    @scenario
    async def test_an_empty_store_dumps_nothing(self, world: World) -> None:
        assert await contents(world.store) == []

    @scenario
    async def test_a_dump_has_everything_in_pages_of_any_size(self, world: World) -> None:
        runs = await fill(world)
        whole = await contents(world.store)
        kinds = [kind_of(record) for record in whole]
        assert list(dict.fromkeys(kinds)) == [
            *("job", "queue", "total", "statistics", "value", "run", "dedupe_key", "log")
        ]
        assert {record.run.id for record in whole if isinstance(record, RunEntry)} == {run.id for run in runs.values()}
        for limit in (1, 2, 5):
            assert by_key(await contents(world.store, limit)) == by_key(whole)
        created = [record.run.created_at for record in whole if isinstance(record, RunEntry)]
        assert created == sorted(created, key=str), "runs come in the order of their creation"

    @scenario
    async def test_a_dump_says_where_runs_stand(self, world: World) -> None:
        runs = await fill(world)
        found = {each.run.id: each for each in await contents(world.store) if isinstance(each, RunEntry)}
        assert found[runs["running"].id].run.state is State.RUNNING
        assert found[runs["late"].id].run.state is State.PENDING, "a waiting run is pending, ready or not"
        assert found[runs["held"].id].run.hold == "handler:mail"
        assert found[runs["retried"].id].run.member
        assert found[runs["entrant"].id].run.hold == "group:grouped"
        assert [each.outcome for each in found[runs["failed"].id].attempts] == [OutcomeKind.FAILED] * 4
        assert found[runs["completed"].id].run.result == b'{"sum":3}'

    @scenario
    async def test_changes_since_a_time_are_unfinished_runs_and_later_ends(self, world: World) -> None:
        early, late, waiting = world.run(), world.run(), world.run(delay=100)
        await world.put(early, late, waiting)
        first, second = await world.claim()
        await world.settle(first)
        world.advance(60)
        await world.settle(second)
        async with world.store.snapshot(world.after(-30)) as snapshot:
            records = await dumped(snapshot)
            assert snapshot.ended[State.COMPLETED] == 2
        found = {record.run.id for record in records if isinstance(record, RunEntry)}
        assert found == {second.run.id, waiting.id}

    @scenario
    async def test_changes_since_a_time_have_later_entries_of_logs(self, world: World) -> None:
        await world.store.append("audit", [b"one"])
        async with world.store.snapshot(world.after(-60)) as snapshot:
            assert [record.key for record in await dumped(snapshot)] == ["audit\0001"]
        async with world.store.snapshot(world.after(60)) as snapshot:
            assert await dumped(snapshot) == []

    @scenario
    async def test_what_was_dumped_can_be_loaded(self: Suite, world: World) -> None:
        await fill(world)
        records, _ = await taken(world)
        async with self.backend() as other:
            await other.store.migrate()
            await other.store.begin_load("a test")
            for record in records:
                await other.store.load([record])
            await other.store.end_load(0)
            found = await contents(other.store)
            assert by_key(found) == by_key(records)
            order = [record.run.id for record in records if isinstance(record, RunEntry)]
            assert [record.run.id for record in found if isinstance(record, RunEntry)] == order

    @scenario
    async def test_a_loaded_store_reads_as_before(self: Suite, world: World) -> None:
        runs = await fill(world)
        attempts = await world.store.attempts(runs["failed"].id)
        before = await world.store.statistics()
        totals = (await world.store.counts(now=world.now)).states
        logs = await world.store.read("events")
        async with loaded(self, world, *await taken(world)) as there:
            other = there.backend
            assert await other.store.attempts(runs["failed"].id) == attempts
            assert await other.store.statistics() == before
            counted = (await other.store.counts(now=world.now)).states
            assert counted[State.FAILED] == totals[State.FAILED]
            assert counted[State.COMPLETED] == totals[State.COMPLETED]
            assert await other.store.read("events") == logs
            assert await other.store.append("events", [b"4"]) == 4
            item = await other.store.get("token", "a")
            assert item is not None
            assert (item.value, item.version) == (b"second", 2)
            assert await other.store.paused() == {"slow"}
            record = await other.store.job("grouped")
            assert record is not None
            assert record.planned == 3
            assert record.shard == "shard-2"
            range_run = await other.store.covering(runs["range"].uid, there.after(-70))
            assert range_run is not None
            assert range_run.id == runs["range"].id
            assert await other.store.purge(State.COMPLETED, None, 0, 10) == 1

    @scenario
    async def test_logs_of_runs_are_moved_and_go_on(self: Suite, world: World) -> None:
        runs = await fill(world)
        lines = {run.id: await world.store.lines(run.id) for run in runs.values()}
        assert [line.text for line in lines[runs["completed"].id]] == [*ODD_TEXTS, "last"]
        async with loaded(self, world, *await taken(world)) as there:
            assert {run_id: await there.store.lines(run_id) for run_id in lines} == lines
            [claim] = [claim for claim in await there.claim() if claim.run.id == runs["running"].id]
            assert await there.store.report([report_of(there, claim, ["again"])]) == [True]
            [*before, again] = await there.store.lines(claim.run.id)
            assert before == lines[claim.run.id]
            assert (again.text, again.number) == ("again", before[-1].number + 1)
            await there.store.purge(State.COMPLETED, None, 0, 10)
            assert await there.store.lines(runs["completed"].id) == []

    @scenario
    async def test_changed_logs_of_runs_replace_those_that_were_loaded(self: Suite, world: World) -> None:
        runs = await fill(world)
        records, _ = await taken(world)
        entries = [each for each in records if isinstance(each, RunEntry) and each.lines]
        assert {each.run.id for each in entries} == {runs[name].id for name in REPORTING}
        shorter, empty, *_ = entries
        changed = [replace(shorter, lines=shorter.lines[1:]), replace(empty, lines=())]
        async with self.backend() as other:
            await other.store.migrate()
            await other.store.begin_load("a test")
            await other.store.load(records)
            await other.store.load([*changed, Gone("run", entries[-1].run.id)])
            await other.store.end_load(0)
            assert [line.text for line in await other.store.lines(shorter.run.id)] == ["last"]
            assert await other.store.lines(empty.run.id) == []
            assert await other.store.lines(entries[-1].run.id) == []

    @scenario
    async def test_an_import_that_begins_again_deletes_logs_of_runs(self, world: World) -> None:
        chunk = Chunk(1, 2, 1, 1, 200, 1, b'[[0,"log","a","",""]]')
        run = world.run(fence=1)
        await world.store.begin_load("a test")
        await world.store.load([RunEntry(run, lines=(chunk,))])
        await world.store.begin_load("another")
        await world.store.load([RunEntry(run)])
        await world.store.end_load(0)
        assert await world.store.lines(run.id) == []

    @scenario
    async def test_earlier_definitions_belong_to_their_job(self: Suite, world: World) -> None:
        await fill(world)
        log = definitions_log("report")
        before = await world.store.read(log)
        assert [entry.value for entry in before] == [b"first", b"\x00second"]
        records, _ = await taken(world)
        assert [record for record in records if isinstance(record, LogEntry) and record.log == log] == []
        async with loaded(self, world, records) as there:
            assert await there.store.read(log) == before
            assert await there.store.append(log, [b"third"]) == 3
            await there.store.remove("report", 3, now=there.now)
            assert await there.store.read(log) == []

    @scenario
    async def test_changed_jobs_replace_their_earlier_definitions(self: Suite, world: World) -> None:
        await fill(world)
        records, _ = await taken(world)
        [job] = [each for each in records if isinstance(each, JobEntry) and each.key == "report"]
        later = replace(job, earlier=(Entry(3, world.now, b"third"), Entry(4, world.now, b"fourth")))
        again = replace(job, earlier=(Entry(1, world.now, b"another job of this name"),))
        log = definitions_log("report")
        async with self.backend() as other:
            await other.store.migrate()
            await other.store.begin_load("a test")
            for entry in (job, later, again):
                await other.store.load([entry])
                assert [each for each in await contents(other.store) if isinstance(each, JobEntry)] == [entry]
            await other.store.load([Gone("job", "report")])
            await other.store.end_load(0)
            assert await other.store.read(log) == []

    @scenario
    async def test_running_runs_wait_again_and_those_that_start_once_are_lost(self: Suite, world: World) -> None:
        runs = await fill(world)
        async with loaded(self, world, *await taken(world)) as there:
            lost = await there.stored(runs["once"])
            assert (lost.state, lost.reason) == (State.LOST, RESTORED)
            claimed = {claim.run.id: claim for claim in await there.claim()}
            assert runs["running"].id in claimed
            assert claimed[runs["running"].id].run.payload == runs["running"].payload
            assert runs["late"].id not in claimed, "its queue is paused"

    @scenario
    async def test_fences_go_on_above_those_of_the_source(self: Suite, world: World) -> None:
        await world.put(world.run())
        records, _ = await taken(world)
        high = 1 << 51
        async with loaded(self, world, records, high) as there:
            [claim] = await there.claim()
            assert claim.fence > high
            lease = await there.coordinator.acquire("lock:a", "node-1", 10.0)
            assert lease is not None

    @scenario
    async def test_groups_keys_and_holds_go_on(self: Suite, world: World) -> None:
        runs = await fill(world)
        async with loaded(self, world, *await taken(world)) as there:
            other = there.backend
            twin = there.run("mail", dedupe_key="welcome")
            [put] = await there.put(twin)
            assert put.id == runs["early"].id
            [put] = await there.put(there.run("report", dedupe_key="k.ey"))
            assert put.id == runs["unique"].id
            assert await other.queue.holds() == {"group:grouped": 1, "handler:mail": 1, UNPLACED: 1}
            there.advance(120)
            claims = {claim.run.id: claim for claim in await there.claim()}
            assert runs["retried"].id in claims, "it is in its group"
            assert runs["entrant"].id not in claims, "the group has no room"
            await there.settle(claims[runs["retried"].id])
            assert runs["entrant"].id in {claim.run.id for claim in await there.claim()}

    @scenario
    async def test_planning_goes_on_at_the_cursor(self: Suite, world: World) -> None:
        record = world.record()
        await world.create(record)
        async with loaded(self, world, *await taken(world)) as there:
            other = there.backend
            due, _ = await other.store.due("main", 10, now=there.now)
            assert [(each.name, each.cursor, each.uid) for each in due] == [("report", record.cursor, record.uid)]
            epoch = await other.store.install("main", 1)
            assert record.cursor is not None
            firing = there.firing(due[0], [record.cursor], there.after(20))
            assert await other.store.fire([firing], "main", epoch, now=there.now) == [Fired.APPLIED]

    @scenario
    async def test_a_record_that_exists_is_replaced(self: Suite, world: World) -> None:
        await fill(world)
        records, _ = await taken(world)
        async with self.backend() as other:
            await other.store.migrate()
            await other.store.begin_load("a test")
            await other.store.load(records)
            await other.store.load(records)
            await other.store.end_load(0)
            assert by_key(await contents(other.store)) == by_key(records)

    @scenario
    async def test_records_can_change_while_they_are_loaded(self: Suite, world: World) -> None:
        runs = await fill(world)
        records, _ = await taken(world)
        found = by_key(records)
        ended = found["run", runs["retried"].id]
        assert isinstance(ended, RunEntry)
        later = replace(ended.run, state=State.COMPLETED, member=False, hold=None, finished_at=world.now)
        gone = [
            Gone("job", "paused"),
            Gone("queue", "slow"),
            Gone("value", "token\0a"),
            Gone("run", runs["early"].id),
            Gone("run", runs["held"].id),
            Gone("dedupe_key", "report\0k.ey"),
        ]
        async with self.backend() as other:
            await other.store.migrate()
            await other.store.begin_load("a test")
            await other.store.load(records)
            await other.store.load([*gone, RunEntry(later, ended.attempts)])
            await other.store.end_load(0)
            left = by_key(await contents(other.store))
            assert left.keys() == found.keys() - {(each.kind, each.key) for each in gone}
            there = World(other, seed=1)
            there.now = world.now
            assert (await there.stored(later)).state is State.COMPLETED
            [put] = await there.put(there.run("mail", dedupe_key="welcome"))
            assert put.created, "the key of a run that is gone is free"
            assert "handler:mail" not in await other.queue.holds()

    @scenario
    async def test_an_import_needs_an_empty_store(self, world: World) -> None:
        with pytest.raises(BackendError, match="no import"):
            await world.store.load([QueueEntry("slow")])
        await world.put(world.run())
        with pytest.raises(BackendError, match="not empty"):
            await world.store.begin_load("a test")

    @scenario
    async def test_a_half_loaded_store_cannot_be_opened(self, world: World) -> None:
        await world.store.begin_load("a test")
        await world.store.load([QueueEntry("slow")])
        mark = await world.store.mark()
        assert mark is not None
        assert mark.address == "a test"
        session = world.backend.session()
        with pytest.raises(ImportUnfinished, match="a test"):
            await session.open()
        await session.close()
        await world.store.load([RunEntry(world.run())])
        await world.store.begin_load("another")
        await world.store.load([ValueEntry("setting", "a", b"1", 3), RunEntry(world.run())])
        await world.store.end_load(0)
        assert [kind_of(each) for each in await contents(world.store)] == ["value", "run"], "it began again"
        assert len(await world.claim()) == 1
        assert await world.store.mark() is None
        async with world.backend.session() as opened:
            assert await opened.store.paused() == set()

    # --- freezing

    @scenario
    async def test_a_frozen_store_starts_and_plans_nothing(self, world: World) -> None:
        record = world.record()
        await world.create(record)
        epoch = await world.store.install("main", 1)
        await world.put(world.run(), world.run(), world.run(hold=ALONE))
        [claim] = await world.claim(1)
        await world.store.freeze()
        assert await world.claim() == []
        assert await world.claim(queues=["default"]) == []
        held = await world.queue.held(ALONE, 1, now=world.now)
        assert await world.queue.claim_held(ALONE, held[0].id, "n", LEASE, 99, now=world.now) is None
        assert record.cursor is not None
        firing = world.firing(record, [record.cursor], None)
        assert await world.store.fire([firing], "main", epoch, now=world.now) == [Fired.STALE_EPOCH]
        assert (await world.store.due("main", 10, now=world.after(100)))[0] == []
        assert await world.settle(claim), "what runs can end"
        await world.put(world.run())
        await world.store.thaw()
        assert len(await world.claim()) == 2
        assert (await world.store.due("main", 10, now=world.after(100)))[0] != []

    @scenario
    async def test_freezing_is_not_dumped(self, world: World) -> None:
        await world.store.freeze()
        await world.store.freeze()
        assert [each for each in await contents(world.store) if isinstance(each, QueueEntry)] == []
        await world.store.thaw()
        await world.store.thaw()

    # --- closing

    @scenario
    async def test_a_store_that_moved_says_where_to(self, world: World) -> None:
        await world.put(world.run())
        await world.create(world.record())
        address = "redis://b.example/1"
        async with world.backend.session() as other:
            assert (await other.store.counts()).states[State.QUEUED] == 1
            async with world.store.closing(address, world.now) as snapshot:
                assert snapshot.exact
                assert {kind_of(each) for each in await dumped(snapshot)} == {"job", "run"}
            for backend in (world.backend, other):
                for call in calls_of(backend, world.run()):
                    with pytest.raises(StoreMoved, match=re.escape(address)) as caught:
                        await call
                    assert caught.value.address == address
        session = world.backend.session()
        with pytest.raises(StoreMoved):
            await session.open()
        await session.close()

    @scenario
    async def test_a_store_that_moved_can_be_reopened(self, world: World) -> None:
        await fill(world)
        before = by_key(await contents(world.store))
        async with world.store.closing("redis://b.example/1", world.now):
            pass
        await world.store.reopen()
        assert by_key(await contents(world.store)) == before
        assert await world.store.mark() is None
        await world.store.reopen()
        async with world.backend.session() as session:
            assert len(await session.queue.put([world.run()])) == 1

    @scenario
    async def test_a_closing_that_fails_changes_nothing(self, world: World) -> None:
        await fill(world)
        before = by_key(await contents(world.store))
        with pytest.raises(ZeroDivisionError):
            async with world.store.closing("redis://b.example/1", world.now) as snapshot:
                await dumped(snapshot)
                raise ZeroDivisionError
        assert by_key(await contents(world.store)) == before
        [put] = await world.put(world.run())
        assert put.created
