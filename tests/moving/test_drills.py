"""Restore drills: under load, a backup is taken and restored, and a cluster is moved. Nothing is lost or doubled."""

import asyncio
import io
from collections import Counter

import pytest

from duly import Scheduler, SchedulerConfig
from duly.errors import StoreMoved
from duly.moving import copy_store, export_store, import_file, reopen_store
from tests.conftest import eventually
from tests.moving.drill import Place, Program, accounted

RESTORES = [
    ("sqlite", "sqlite"),
    ("redis", "redis"),
    ("postgres", "postgres"),
    ("sqlite", "postgres"),
    ("postgres", "redis"),
    ("redis", "sqlite"),
    ("split", "redis"),
    ("redis", "split"),
]
MOVES = [
    ("sqlite", "postgres"),
    ("sqlite", "redis"),
    ("redis", "postgres"),
    ("redis", "sqlite"),
    ("postgres", "redis"),
    ("postgres", "postgres"),
    ("postgres", "split"),
    ("split", "sqlite"),
]


def pairs(wanted):
    return pytest.mark.parametrize(("here", "there"), wanted, ids=[f"{a}-{b}" for a, b in wanted])


@pytest.fixture
def source(here, tmp_path, request):
    return Place(here, tmp_path, request)


@pytest.fixture
def target(there, tmp_path, request):
    return Place(there, tmp_path, request)


@pairs(RESTORES)
async def test_a_backup_under_load_is_restored_with_nothing_lost_or_doubled(source, target):
    program, file = Program(), io.BytesIO()
    async with program.scheduler(source):
        pass
    async with program.working(source):
        before = set(program.accepted)
        async with source.backend() as backend:
            exported = await export_store(backend, source.namespace, file, freeze=True)
        await asyncio.sleep(0.5)
    assert exported.counts["run"] >= len(before) > 20
    file.seek(0)
    async with target.backend(migrates=False) as backend:
        imported = await import_file(backend, file, "backup")
    assert imported.counts == exported.counts
    async with program.working(target, first=max(program.accepted) + 1) as scheduler:
        await program.all_done(scheduler, before)
        await asyncio.sleep(1)
        instants, reasons = await accounted(scheduler, target)
    assert instants > 10
    await program.all_versions(target)
    assert reasons <= {"misfire"}
    assert all(times >= 1 for number, times in program.done.items() if number in before)


@pairs(MOVES)
async def test_a_cluster_moves_while_it_works(source, target):
    program = Program()
    async with program.scheduler(source):
        pass
    async with program.working(source) as scheduler:
        async with source.backend() as old, target.backend(migrates=False) as new:
            copied = await copy_store(old, new, "the new place", wait=15)
        moved = max(program.accepted) + 1
        with pytest.raises(StoreMoved, match="the new place"):
            await scheduler.jobs()
        with pytest.raises(StoreMoved):
            await scheduler.wait()
    assert copied.running == 0
    accepted = set(program.accepted)
    async with program.working(target, first=moved) as scheduler:
        await program.all_done(scheduler, accepted)
        await asyncio.sleep(1)
        await accounted(scheduler, target)
        again = await scheduler.submit("count", {"number": 0}, dedupe_key="0", unique_for=3600)
        assert again.deduplicated
    await program.all_versions(target)
    assert {number: program.done[number] for number in accepted if program.done[number] != 1} == {}
    assert [due for due, times in program.ticked.items() if times != 1] == []


@pairs([("sqlite", "redis"), ("redis", "postgres"), ("postgres", "sqlite")])
async def test_a_copy_that_fails_leaves_the_source_working(source, target, monkeypatch):
    from duly.moving import copying

    async def differ(*_):
        raise ZeroDivisionError

    program = Program()
    async with program.working(source) as scheduler, source.backend() as old, target.backend(migrates=False) as new:
        monkeypatch.setattr(copying._Copier, "compare", differ)
        with pytest.raises(ZeroDivisionError):
            await copy_store(old, new, "the new place", wait=15)
        monkeypatch.undo()
        number = len(program.accepted)
        await asyncio.sleep(1)
        assert len(program.accepted) > number, "the source goes on"
        await copy_store(old, new, "the new place", wait=15)
    async with program.working(target, first=max(program.accepted) + 1) as scheduler:
        await program.all_done(scheduler, set(program.accepted))
        await asyncio.sleep(1)
        await accounted(scheduler, target)


@pairs([("sqlite", "sqlite"), ("redis", "redis"), ("postgres", "postgres")])
async def test_a_store_that_moved_can_take_over_again(source, target):
    program = Program()
    async with program.working(source), source.backend() as old, target.backend(migrates=False) as new:
        await copy_store(old, new, "the new place", wait=15)
    async with source.backend(migrates=False) as old:
        mark = await reopen_store(old)
    assert mark.address == "the new place"
    async with program.working(source, first=max(program.accepted) + 1) as scheduler:
        await program.all_done(scheduler, set(program.accepted))


@pairs([("sqlite", "postgres"), ("postgres", "redis"), ("redis", "sqlite")])
async def test_handlers_that_take_too_long_run_again_or_are_lost(source, target):
    begun: Counter[str] = Counter()
    release = asyncio.Event()

    def program(place):
        config = SchedulerConfig(namespace=place.namespace, lock_ttl=2.0, accept_data_loss=True)
        scheduler = Scheduler(place.address.store, config=config)

        @scheduler.job
        async def slow() -> None:
            begun["slow"] += 1
            await release.wait()

        @scheduler.job(delivery="at_most_once")
        async def once() -> None:
            begun["once"] += 1
            await release.wait()

        return scheduler

    old = program(source)
    async with old:
        slow, once = await old.submit("slow", {}), await old.submit("once", {})
        await eventually(lambda: _both(begun), "both run")
        async with source.backend() as here, target.backend(migrates=False) as there:
            copied = await copy_store(here, there, "the new place", wait=0.1)
        assert copied.running == 2
        release.set()
    new = program(target)
    async with new:

        async def completed():
            return (await new.get_run(slow.id)).state == "completed"

        await eventually(completed, "it runs again")
        assert (await new.get_run(once.id)).state == "lost"
    assert begun == {"slow": 2, "once": 1}


async def _both(begun):
    return len(begun) == 2
