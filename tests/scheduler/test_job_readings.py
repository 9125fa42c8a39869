"""Readings of jobs: counters by handler, and the next run of one job behind a backlog of others."""

from datetime import timedelta

from msgspec.structs import replace

from duly import Scheduler
from duly.model import EverySpec, JobChange, JobSpec, JobStatistics
from duly.scheduler import job_admin
from duly.testing.conformance import World


def _recurring(world, name, handler="mail"):
    spec = JobSpec(name=name, handler=handler, schedule=EverySpec(timedelta(hours=1)))
    return replace(world.record(name, every=3600), spec=spec)


async def test_counters_of_a_handler_are_those_of_all_its_jobs(url, monkeypatch):
    monkeypatch.setattr(job_admin, "_SLICE", 2)
    scheduler = Scheduler(url)
    async with scheduler.client():
        world = World((await scheduler.opened()).backend)
        records = [_recurring(world, f"mail{number}") for number in range(5)]
        records.append(_recurring(world, "other", "sms"))
        records[1] = replace(records[1], retired_at=world.now)
        await world.store.save([JobChange(record, None) for record in records])
        names = ["mail", "mail0", "mail1", "mail2", "mail4", "mail4", "other"]
        await world.put(*(world.run(name, handler="sms" if name == "other" else "mail") for name in names))
        for claim in await world.claim():
            world.advance(1)
            await world.settle(claim)
        counted = await scheduler.handler_statistics("mail")
        assert counted.completed == 6
        assert counted.last_run_at == (await world.store.statistics(["mail4"]))["mail4"].last_run_at
        assert (await scheduler.handler_statistics("sms")).completed == 1
        assert await scheduler.handler_statistics("nobody") == JobStatistics()
        assert await scheduler.handler_statistics("no name\0") == JobStatistics()


async def test_a_job_of_that_name_with_another_handler_does_not_count(url):
    scheduler = Scheduler(url)
    async with scheduler.client():
        world = World((await scheduler.opened()).backend)
        await world.store.save([JobChange(_recurring(world, "mail", "sms"), None)])
        await world.put(world.run("mail", handler="sms"))
        [claim] = await world.claim()
        await world.settle(claim)
        assert await scheduler.handler_statistics("mail") == JobStatistics()
        assert (await scheduler.handler_statistics("sms")).completed == 1


async def test_the_next_run_of_one_job_is_exact_behind_a_backlog(url):
    scheduler = Scheduler(url)
    async with scheduler.client():
        world = World((await scheduler.opened()).backend)
        await world.store.save([JobChange(world.record("mail", every=None), None)])
        await world.put(*(world.run("noise", delay=-60) for _ in range(600)))
        await world.put(first := world.run("mail", delay=30))
        await world.put(*(world.run("mail", delay=60 + number) for number in range(150)))
        assert (await scheduler.get_job("mail")).next_run_at == first.ready_at
