"""Names that are misspelt, jobs that are restored, and runs with another payload, in Python."""

from datetime import timedelta

import pytest

from duly import ConfigurationError, Every, JobNotFound, PayloadError, Scheduler
from duly.errors import JobChanged


class Hourly:
    """A schedule that only code can compute."""

    def next_run(self, after):
        return after + timedelta(hours=1)


def shop(url: str) -> Scheduler:
    scheduler = Scheduler(url)

    @scheduler.job(Every(hours=6), tags=["billing"])
    async def invoice() -> None: ...

    @scheduler.job(Hourly())
    async def computed() -> None: ...

    @scheduler.job(retry=None)
    async def greet(name: str) -> str:
        if name == "Bad":
            raise ValueError(name)
        return f"hello {name}"

    return scheduler


async def test_a_misspelt_job_is_answered_with_a_similar_name(url):
    scheduler = shop(url)
    async with scheduler:
        for ask in (scheduler.get_job, scheduler.pause, scheduler.trigger, scheduler.explain, scheduler.remove):
            with pytest.raises(JobNotFound, match=r"there is no job 'invocie': did you mean invoice\?") as found:
                await ask("invocie")
            assert found.value.near == "invoice"
        with pytest.raises(JobNotFound, match="register it") as found:
            await scheduler.get_job("quite_another")
        assert found.value.near is None


async def test_a_misspelt_argument_is_answered_with_the_parameter(url):
    async with shop(url).client() as scheduler:
        with pytest.raises(PayloadError, match=r"unknown field `nmae`: did you mean name\?; it takes \(name: str\)"):
            await scheduler.submit("greet", {"nmae": "Ada"})


async def test_submitting_by_name_before_a_deploy_stays_possible(url):
    async with Scheduler(url).client() as scheduler:
        run = await scheduler.submit("coming", {"a": 1})
        assert (await run.get()).handler == "coming"


async def test_a_removed_job_is_planned_again(url):
    scheduler = shop(url)
    async with scheduler:
        with pytest.raises(JobChanged, match="has not been removed"):
            await scheduler.restore("invoice")
        await scheduler.remove("invoice")
        assert not await scheduler.upcoming(job="invoice")
        await scheduler.restore("invoice")
        view = await scheduler.get_job("invoice")
        assert (view.status, view.tags, view.schedule) == ("active", ("billing",), "every 6 hours")
        assert await scheduler.upcoming(job="invoice")
        await scheduler.remove("computed")
        await scheduler.restore("computed")  # this process has the code
    if not url.startswith("memory"):
        async with shop(url) as restarted:
            assert (await restarted.get_job("invoice")).status == "active", "a restart does not remove it again"


async def test_a_schedule_that_only_code_can_compute_is_not_restored_without_it(url):
    if url.startswith("memory"):
        pytest.skip("every scheduler has a memory of its own")
    scheduler = shop(url)
    async with scheduler:
        await scheduler.remove("computed")
        async with Scheduler(url).client() as other:
            with pytest.raises(ConfigurationError, match="only its own code can compute: register it with restore"):
                await other.restore("computed")
            with pytest.raises(JobNotFound, match="the store has no definition of job 'nobody'"):
                await other.restore("nobody")


async def test_a_failed_run_succeeds_with_another_payload(url):
    scheduler = shop(url)
    async with scheduler:
        run = await scheduler.submit("greet", {"name": "Bad"})
        with pytest.raises(Exception, match="Bad"):
            await run.result(timeout=30)
        with pytest.raises(PayloadError, match="did you mean name"):
            await scheduler.redrive(run.id, {"nam": "Ada"})
        again = await scheduler.redrive(run.id, {"name": "Ada"})
        assert again.id == run.id
        assert await again.result(timeout=30) == "hello Ada"
        assert (await scheduler.get_run(run.id)).payload == b'{"name":"Ada"}'
        assert [attempt.outcome for attempt in await scheduler.attempts(run.id)] == ["failed", "succeeded"]
