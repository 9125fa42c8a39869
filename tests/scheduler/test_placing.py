"""Placement through the façade: selectors, assigned runs, what is said about those that wait, and stopping."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.conftest import eventually

from duly import Context, Every, Job, Scheduler, SchedulerConfig, State
from duly.errors import ConfigurationError
from duly.testing import Harness

START = datetime(2027, 3, 1, tzinfo=UTC)
GPU = {"gpu": "yes"}


def assigning(url="memory://unused", **config):
    return Scheduler(url, SchedulerConfig(placement="assign", **config))


async def nothing() -> None: ...


# --- defining


async def test_a_selector_is_refused_where_any_node_takes_any_run():
    scheduler = Scheduler("memory://refused")
    scheduler.add(Job(handler=nothing, name="train", selector=GPU))
    with pytest.raises(ConfigurationError, match=r"'train' asks for nodes with gpu=yes.*placement=\"assign\""):
        await scheduler.start()
    await scheduler.close()


async def test_a_selector_is_refused_at_registration_while_running():
    async with Scheduler("memory://refused-later") as scheduler:
        with pytest.raises(ConfigurationError, match="gpu=yes"):
            await scheduler.register(Job(handler=nothing, name="train", selector=GPU))


@pytest.mark.parametrize("selector", [["gpu"], {"gpu": 1}, {"": "yes"}, {"gpu": "a b"}, "gpu=yes"])
def test_a_selector_that_is_none_is_refused(selector):
    with pytest.raises(ConfigurationError, match="job 'train': selector="):
        Job(handler=nothing, name="train", selector=selector)


@pytest.mark.parametrize("labels", [{"gpu": True}, {"a=b": "c"}, None])
def test_labels_that_are_none_are_refused(labels):
    with pytest.raises(ConfigurationError, match="labels="):
        SchedulerConfig(labels=labels)


def test_an_empty_selector_is_none():
    assert Job(handler=nothing, name="train", selector={}).selector is None


# --- running


async def test_days_of_schedules_run_as_ever_when_they_are_assigned():
    scheduler = assigning(assign_ahead=1)

    @scheduler.job(Every(minutes=15), overlap="queue")
    async def quarterly() -> None: ...

    with Harness(scheduler, now=START) as harness:
        await harness.travel(hours=2)
        runs = harness.runs("quarterly")
        ended = [run for run in runs if run.state is State.COMPLETED]
        assert [run.due for run in ended] == [START + timedelta(minutes=15 * n) for n in range(1, 9)]
        assert {run.assignee for run in ended} == {"harness"}


async def test_submitted_runs_go_to_a_node_whose_labels_match():
    plain, gpu = (assigning("memory://labels", node_id=name, labels=labels) for name, labels in (("p", {}), ("g", GPU)))
    for scheduler in (plain, gpu):

        @scheduler.job(selector=GPU)
        async def train(ctx: Context) -> None: ...

        @scheduler.job()
        async def mail(ctx: Context) -> None: ...

    async with plain, gpu:
        handles = [await plain.submit("train") for _ in range(8)] + await plain.submit_many("train", [{}] * 4)
        for handle in handles:
            await handle.result(timeout=30)
        runs = [await handle.get() for handle in handles]
        assert {(run.node, run.assignee) for run in runs} == {("g", "g")}
        assert (await plain.get_job("train")).selector == GPU
        mails = await plain.submit_many("mail", [{}] * 20)
        assert {await _node_of(handle) for handle in mails} == {"p", "g"}
        triggered = await plain.trigger("train")
        await triggered.result(timeout=30)
        assert (await triggered.get()).assignee == "g"


async def _node_of(handle):
    await handle.result(timeout=30)
    return (await handle.get()).node


async def test_a_retry_of_an_assigned_run_is_placed_again():
    scheduler = assigning("memory://retried", node_id="n")
    tries = []

    @scheduler.job(retry=2)
    async def flaky(ctx: Context) -> int:
        tries.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ConnectionError("once")
        return ctx.attempt

    async with scheduler:
        run = await flaky.submit()
        assert await run.result(timeout=30) == 2
        assert (await run.get()).assignee == "n"


# --- waiting


async def test_an_unplaced_run_says_what_it_waits_for_and_is_placed_when_that_comes():
    plain = assigning("memory://waiting", node_id="p", lock_ttl=0.6)
    gpu = assigning("memory://waiting", node_id="g", labels=GPU, lock_ttl=0.6)
    for scheduler in (plain, gpu):
        scheduler.add(Job(handler=nothing, name="train", selector=GPU))
    async with plain:
        run = await plain.submit("train")
        await eventually(lambda: _says(plain.waits_for(run.id), "no live node matches gpu=yes"))
        assert (await run.get()).state is State.PENDING
        assert "1 due run waits to be placed: no live node matches gpu=yes" in (await plain.health()).unplaced
        [finding] = [each for each in await plain.examine() if each.subject == "placement"]
        assert "gpu=yes" in finding.message
        async with gpu:
            assert await run.result(timeout=30) is None
            assert (await run.get()).node == "g"
            assert await plain.waits_for(run.id) is None
            assert (await plain.health()).unplaced == ""


async def _says(asking, words):
    return words in (await asking or "")


async def test_explain_tells_where_an_assigned_run_waits():
    scheduler = assigning("memory://explained", node_id="n", assign_ahead=1)

    @scheduler.job(Every(seconds=10), overlap="allow")
    async def beat() -> None: ...

    async with scheduler:
        await eventually(lambda: _says(_first_waits(scheduler), "for its time on n, which it is assigned to"))
        upcoming = await scheduler.upcoming(2, "beat")
        first, second = [await scheduler.explain("beat", each.due) for each in upcoming]
        assert "for its time on n" in str(first)
        assert "waits to be given to a node: the nodes that match have no room yet" in str(second)
        assert second.setting == "placement"


async def _first_waits(scheduler):
    upcoming = await scheduler.upcoming(1)
    return await scheduler.waits_for(upcoming[0].run_id) if upcoming and upcoming[0].run_id else None


async def test_a_client_that_leads_nothing_says_that_nobody_does():
    scheduler = assigning("memory://led-by-nobody")
    scheduler.add(Job(handler=nothing, name="train", selector=GPU))
    async with scheduler.client():
        run = await scheduler.submit("train")
        assert await scheduler.waits_for(run.id) == "It waits to be given to a node: no working node is alive."


# --- stopping


async def test_a_node_that_stops_gives_back_what_waits_for_it_at_once():
    go = asyncio.Event()
    first = assigning("memory://stopping", node_id="a")
    second = assigning("memory://stopping", node_id="b")
    for scheduler in (first, second):

        @scheduler.job()
        async def slow(ctx: Context) -> None:
            await go.wait()

        @scheduler.job()
        async def quick(ctx: Context) -> None: ...

    await first.start()
    blocked = await first.submit("slow")
    await eventually(lambda: _is(blocked, State.RUNNING))
    later = [(await first.submit("quick", delay=delay)).id for delay in (2, 2.1)]
    await eventually(lambda: _have(first, later, "a"))
    await second.start()
    stopping = asyncio.create_task(first.stop(timeout=20))  # it drains as long as `slow` takes
    await eventually(lambda: _have(second, later, "b"))
    assert not stopping.done()
    go.set()
    assert (await stopping).drained == 1
    await second.stop()


async def _is(handle, state):
    return (await handle.get()).state is state


async def _have(scheduler, run_ids, node):
    return all([(await scheduler.get_run(run_id)).assignee == node for run_id in run_ids])
