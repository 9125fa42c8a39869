"""What a restored store does: one misfire decision per job, and what people are told about it."""

import io
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from duly import Every, Scheduler, SchedulerConfig
from duly.errors import BackendError, BackendUnavailable, ConfigurationError, ImportUnfinished
from duly.model import JobChange, State
from duly.moving import export_store, import_file, reopen_store
from tests.conftest import eventually
from tests.moving.drill import Place


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
async def test_an_old_backup_is_one_misfire_decision_that_explain_tells(kind, tmp_path, request):
    source, target, file = Place(kind, tmp_path, request), Place(kind, tmp_path, request), io.BytesIO()

    def program(place):
        config = SchedulerConfig(namespace=place.namespace)
        scheduler = Scheduler(place.address.store, config=config)

        @scheduler.job(Every(minutes=10))
        async def report() -> None: ...

        return scheduler

    async with program(source):
        pass
    long_ago = datetime.now(UTC) - timedelta(hours=5)
    async with source.backend() as backend:
        record = await backend.store.job("report")
        old = replace(record, cursor=_instant(long_ago), plan_at=long_ago, revision=record.revision + 1)
        runs = await backend.store.upcoming(100)
        await backend.store.cancel([run.id for run in runs])
        assert await backend.store.save([JobChange(old, record.revision, moves_cursor=True)]) != [None]
        await export_store(backend, source.namespace, file)
    file.seek(0)
    async with target.backend(migrates=False) as backend:
        await import_file(backend, file, "backup")
    scheduler = program(target)
    async with scheduler:
        since = long_ago + timedelta(hours=2)

        async def planned():
            return (await scheduler.get_job("report")).run_count

        await eventually(planned, "the latest missed due time is made up for")
        explained = await scheduler.explain("report", _instant(since))
        async with target.backend() as backend:
            ledger = await backend.store.ledger(
                record.uid,
                long_ago,
                datetime.now(UTC),
                100,
                [_instant(long_ago) + timedelta(minutes=10 * n) for n in range(31)],
            )
    [missed] = [run for run in ledger if run.reason == "misfire"]  # one decision
    assert missed.state is State.SKIPPED
    assert missed.until is not None
    assert "misfire" in str(explained)


def _instant(at):
    return datetime.fromtimestamp(-(-at.timestamp() // 600) * 600, UTC)


async def test_a_store_in_use_is_not_imported_into(tmp_path, request):
    place, file = Place("sqlite", tmp_path, request), io.BytesIO()
    async with place.backend() as backend:
        await export_store(backend, place.namespace, file)
    file.seek(0)
    scheduler = Scheduler(place.address.store, config=SchedulerConfig(namespace=place.namespace, node_id="busy"))
    async with scheduler, place.backend(migrates=False) as backend:
        with pytest.raises(BackendError, match="in use by busy"):
            await import_file(backend, file, "backup")


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres", "split"])
async def test_a_scheduler_does_not_start_while_an_import_is_unfinished(kind, tmp_path, request):
    place = Place(kind, tmp_path, request)
    async with place.backend(migrates=False) as backend:
        await backend.store.migrate()
        await backend.store.begin_load("a backup")
    address = place.address
    config = SchedulerConfig(namespace=place.namespace)
    scheduler = Scheduler(config=config, store=address.store, queue=address.queue)
    with pytest.raises(ImportUnfinished, match="a backup"):
        await scheduler.start()
    with pytest.raises(ImportUnfinished):
        await scheduler.jobs()


async def test_settings_of_the_cluster_are_restored(tmp_path, request):
    source, target, file = Place("sqlite", tmp_path, request), Place("redis", tmp_path, request), io.BytesIO()
    old = Scheduler(source.address.store, config=SchedulerConfig(namespace=source.namespace))
    async with old.client():
        await old.settings.set("max_concurrent", 3)
        async with source.backend() as backend:
            await export_store(backend, source.namespace, file)
    file.seek(0)
    async with target.backend(migrates=False) as backend:
        await import_file(backend, file, "backup")
    new = Scheduler(target.address.store, config=SchedulerConfig(namespace=target.namespace))
    async with new.client():
        assert (await new.settings.get("max_concurrent")).value == 3


async def test_a_frozen_store_is_a_problem_and_says_why_runs_wait(tmp_path, request):
    place = Place("sqlite", tmp_path, request)
    scheduler = Scheduler(place.address.store, config=SchedulerConfig(namespace=place.namespace))
    async with scheduler.client(), place.backend() as backend:
        run = await scheduler.submit("mail", {})
        await backend.store.freeze()
        assert "frozen" in await scheduler.waits_for(run.id)
        assert any(finding.subject == "frozen" for finding in await scheduler.examine())
        client = await scheduler.opened()
        for change in (client.pause_queue, client.resume_queue):
            with pytest.raises(ConfigurationError, match="not a queue"):
                await change("*")


async def test_a_redis_store_that_a_killed_copy_has_left_closed_can_be_reopened(tmp_path, request):
    place = Place("redis", tmp_path, request)
    async with place.backend() as client, place.backend() as killed:
        await client.store.put("setting", "a", b"1")
        closing = killed.store.closing("the new place", datetime.now(UTC))
        await closing.__aenter__()
        with pytest.raises(BackendUnavailable, match="duly copy --abort"):
            await client.store.get("setting", "a")
        with pytest.raises(BackendUnavailable, match="duly copy --abort"):
            await place.backend().open()
        async with place.backend(migrates=False) as operator:
            await reopen_store(operator)
        assert (await client.store.get("setting", "a")).value == b"1"
