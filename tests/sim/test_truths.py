"""The table of truths: each situation that keeps a run from starting, made for real, and the sentence that explains it.

One row is one test. `duly explain`, `duly show`, the API and `waits_for` all say what is read here.
"""

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from duly import Every, Job, RetryPolicy, Scheduler, State
from duly.runtime.node import CLOCK_DOUBT
from duly.scheduler.submitting import Options
from tests.sim.company import played


async def nothing() -> None: ...


async def long() -> None:
    await asyncio.sleep(1000)


async def broken() -> None:
    raise ValueError("boom")


def program(**options):
    scheduler = Scheduler("memory://")
    scheduler.add(Job(name="mail", handler=nothing, **options))
    scheduler.add(Job(name="long", handler=long, timeout=None))
    scheduler.add(Job(name="broken", handler=broken, retry=RetryPolicy.fixed(5, 100)))
    return scheduler


def other_program():
    scheduler = Scheduler("memory://")
    scheduler.add(Job(name="other", handler=nothing))
    return scheduler


async def told(company, put):
    """What explain says of a run in the end, and which setting decides; `waits_for` says the same."""
    found = await company.office.explainer.run(put.id)
    run = await company.office.run(put.id)
    if run.state in (State.PENDING, State.QUEUED):
        assert await company.office.explainer.waits_for(run) == found.reasons[-1]
    return found.reasons[-1], found.setting


async def told_of(company, at, job="report"):
    found = await company.office.explainer.instant(job, at)
    return found.verdict, found.reasons[-1], found.setting


# --- a run that waits


@played
async def test_nobody_is_alive(company):
    node = await company.start("one", program())
    await company.stop(node)
    put = await company.submit("mail")
    text, setting = await told(company, put)
    assert "no node is alive" in text
    assert setting == "nodes"


@played
async def test_no_worker_is_alive(company):
    planner = await company.start("planner", program(), roles=("scheduler",))
    text, setting = await told(company, await company.submit("mail"))
    assert f"no worker is alive: {planner.running.node.id} only plan" in text
    assert setting == "roles"


@played
async def test_no_worker_serves_the_queue(company):
    await company.start("one", program(), queues=("bulk",))
    text, setting = await told(company, await company.submit("mail"))
    assert "no live worker serves the queue 'default'" in text
    assert "serves bulk" in text
    assert setting == "queues"


@played
async def test_no_worker_has_the_handler(company):
    await company.start("one", other_program())
    put = await company.submit("mail")
    await asyncio.sleep(2)
    text, setting = await told(company, put)
    assert "a node that has the handler 'mail'" in text
    assert setting == "no_handler"


@played
async def test_no_worker_has_the_labels(company):
    await company.start("one", program(selector={"gpu": "yes"}), placement="assign")
    put = await company.submit("mail")
    await asyncio.sleep(2)
    text, setting = await told(company, put)
    assert "It waits to be given to a node" in text
    assert "gpu" in text
    assert setting == "placement"


@played
async def test_the_queue_is_paused(company):
    await company.start("one", program())
    await company.office.backend.store.pause("default")
    put = await company.submit("mail")
    await asyncio.sleep(2)
    text, setting = await told(company, put)
    assert "the queue 'default' is paused" in text
    assert setting == "queue 'default'"


@played
async def test_the_job_is_paused(company):
    await company.start("one", program())
    await company.definitions.pause("mail", "the database moves")
    put = await company.submit("mail")
    await asyncio.sleep(2)
    text, setting = await told(company, put)
    assert "its job has been paused since" in text
    assert "the database moves" in text
    assert setting == "pause"


@played
async def test_all_slots_are_busy(company):
    node = await company.start("one", program(), max_concurrent=2)
    await company.submit("long")
    await company.submit("long")
    await asyncio.sleep(10)
    put = await company.submit("mail")
    await asyncio.sleep(2)
    text, setting = await told(company, put)
    assert f"all 2 slots of {node.running.node.id} are busy" in text
    assert setting == "max_concurrent"


@played
async def test_the_previous_run_is_still_running_and_where(company):
    scheduler = Scheduler("memory://")
    scheduler.add(Job(name="long", handler=long, timeout=None, overlap="queue"))
    node = await company.start("one", scheduler)
    first = await company.submit("long")
    await asyncio.sleep(2)
    second = await company.submit("long")
    await asyncio.sleep(2)
    text, setting = await told(company, second)
    assert f"run {first.id} has ended, which runs on {node.running.node.id} since" in text
    assert setting == "overlap='queue'"


@played
async def test_a_retry_is_pending(company):
    await company.start("one", program())
    put = await company.submit("broken")
    await asyncio.sleep(10)
    text, setting = await told(company, put)
    assert "It waits for its attempt 2 of at most 6" in text
    assert setting == "retry"


@played
async def test_its_time_has_not_come(company):
    await company.start("one", program())
    put = await company.submit("mail", delay=100)
    text, setting = await told(company, put)
    assert text.startswith("It waits for its time, ")
    assert setting is None


@played
async def test_the_clock_of_the_store_is_suspect(company):
    await company.start("one", program())
    put = await company.submit("mail", delay=100)
    clock = company.office.backend.clock
    clock.read(company.clock.now(), clock.monotonic())
    clock.read(company.clock.now() + timedelta(seconds=600), clock.monotonic())
    text, setting = await told(company, put)
    assert "The store's clock has jumped by +600 s, which is not believed yet" in text
    assert setting == "clock"


@played
async def test_nodes_suspect_a_clock_that_looks_right_to_somebody_who_has_just_come(company):
    node = await company.start("one", program())
    put = await company.submit("mail", delay=100)
    clock = company.office.backend.clock
    clock.read(company.clock.now() + timedelta(seconds=600), clock.monotonic())
    announced = node.running.node.card_now()
    doubting = replace(announced, metrics=announced.metrics | {CLOCK_DOUBT: 600.0})
    await company.office.backend.coordinator.announce(doubting, 1000)
    text, setting = await told(company, put)
    assert "The store's clock has jumped by +600 s, which is not believed yet" in text
    assert setting == "clock"


@played
async def test_it_should_start_in_a_moment(company):
    node = await company.start("one", program())
    await company.stop(node)
    put = await company.submit("mail")
    await company.start("two", program(), queues=("default",))
    run = await company.office.ended(put.id, 10)
    text, _ = await told(company, put)
    assert (run.state, text) == (State.COMPLETED, "It completed.")


# --- an instant that was not executed


def reports(**options):
    scheduler = Scheduler("memory://")
    scheduler.add(Job(name="report", handler=nothing, schedule=Every(10), **options))
    return scheduler


@played
async def test_all_nodes_were_down(company):
    node = await company.start("one", reports(misfire="skip"))
    await asyncio.sleep(60)
    node.node.kill()
    died = company.clock.now()
    await asyncio.sleep(600)
    await company.start("two", reports(misfire="skip"))
    await asyncio.sleep(30)
    for after in (15, 35, 100, 400):  # planned ahead, and not planned any more
        verdict, text, setting = await told_of(company, died + timedelta(seconds=after))
        assert verdict == "skipped"
        assert "no node reached the store from" in text
        assert "because the nodes or the store were down" in text
        assert setting == "misfire='skip'"


@played
async def test_the_store_was_away(company):
    await company.start("one", reports(misfire="latest", overlap="allow"))
    await asyncio.sleep(60)
    company.network.take_away()
    gone = company.clock.now()
    await asyncio.sleep(300)
    company.network.bring_back()
    await asyncio.sleep(60)
    verdict, text, setting = await told_of(company, gone + timedelta(seconds=100))
    assert verdict == "skipped"
    assert "no node reached the store from" in text
    assert setting == "misfire='latest'"


@played
async def test_nobody_led(company):
    await company.start("one", reports())
    await asyncio.sleep(30)
    leader = company.loop.nodes[-1]
    await company.start("worker", reports(), roles=("worker",))
    leader.kill()
    await asyncio.sleep(200)
    verdict, text, setting = await told_of(company, company.clock.now() - timedelta(seconds=40))
    assert verdict == "not_planned"
    assert "nobody leads, and only a leader plans" in text
    assert setting == "leader"


@played
async def test_nobody_led_the_shard_of_the_job(company):
    """The other shard has a leader, which does not plan this job."""
    await company.start("one", reports(), shards=8)
    await asyncio.sleep(60)
    assert (await company.record("report")).shard == "main/4"
    leader = company.loop.nodes[-1]
    await company.start("worker", reports(), roles=("worker",))
    leader.kill()
    await asyncio.sleep(200)
    coordinator = company.office.backend.coordinator
    await coordinator.acquire("main", "other", 60)
    at = company.clock.now() - timedelta(seconds=40)
    verdict, text, setting = await told_of(company, at)
    assert (verdict, setting) == ("not_planned", "leader")
    assert "nobody leads main/4, where it is planned" in text
    await coordinator.acquire("main/4", "another", 60)
    _, text, _ = await told_of(company, at)
    assert "another leads main/4 and has come as far as" in text


@played
async def test_no_node_is_alive_to_plan(company):
    node = await company.start("one", reports())
    await asyncio.sleep(30)
    node.node.kill()
    await asyncio.sleep(200)
    verdict, text, setting = await told_of(company, company.clock.now() - timedelta(seconds=40))
    assert (verdict, setting) == ("not_planned", "leader")
    assert "no node is alive" in text


@played
async def test_a_short_pause_after_an_outage_is_not_the_reason(company):
    node = await company.start("one", reports(misfire="skip"))
    await asyncio.sleep(60)
    node.node.kill()
    died = company.clock.now()
    await asyncio.sleep(600)
    await company.definitions.pause("report", "")
    await asyncio.sleep(1)
    await company.start("two", reports(misfire="skip"))
    await company.definitions.resume("report")
    await asyncio.sleep(30)
    verdict, text, setting = await told_of(company, died + timedelta(seconds=300))
    assert (verdict, setting) == ("skipped", "misfire='skip'")
    assert "no node reached the store from" in text


@played
async def test_the_job_was_paused(company):
    await company.start("one", reports())
    await asyncio.sleep(30)
    await company.definitions.pause("report", "")
    paused = company.clock.now()
    await asyncio.sleep(100)
    await company.definitions.resume("report")
    await asyncio.sleep(30)
    verdict, text, setting = await told_of(company, paused + timedelta(seconds=50))
    assert (verdict, setting) == ("skipped", "pause")
    assert "the job was paused" in text


@played
async def test_an_earlier_run_was_still_running_and_where(company):
    async def slow() -> None:
        await asyncio.sleep(35)

    scheduler = Scheduler("memory://")
    scheduler.add(Job(name="report", handler=slow, schedule=Every(10), timeout=None))
    node = await company.start("one", scheduler)
    await asyncio.sleep(100)
    skipped = [run for run in await company.runs("report", State.SKIPPED) if run.reason == "overlap"]
    verdict, text, setting = await told_of(company, skipped[0].due)
    assert (verdict, setting) == ("skipped", "overlap='skip'")
    [before] = [run for run in await company.runs("report") if run.due == skipped[0].due - timedelta(seconds=10)]
    assert f"run {before.id} (due " in text
    assert f"was not finished: it ran on {node.running.node.id} and ended at" in text


@played
async def test_an_earlier_run_was_waiting_to_start(company):
    scheduler = Scheduler("memory://")
    scheduler.add(Job(name="report", handler=nothing, schedule=Every(10)))
    scheduler.add(Job(name="long", handler=long, timeout=25.0, retry=None))
    await company.start("one", scheduler, max_concurrent=1)
    await asyncio.sleep(21)
    await company.submit("long")
    await asyncio.sleep(60)
    skipped = [run for run in await company.runs("report", State.SKIPPED) if run.reason == "overlap"]
    verdict, text, setting = await told_of(company, skipped[0].due)
    assert (verdict, setting) == ("skipped", "overlap='skip'")
    assert "was waiting to start; it started at" in text


@played
async def test_no_worker_had_a_free_slot_in_time(company):
    scheduler = Scheduler("memory://")
    scheduler.add(Job(name="report", handler=nothing, schedule=Every(30), misfire="skip", overlap="allow"))
    scheduler.add(Job(name="long", handler=long, timeout=100.0, retry=None))
    node = await company.start("one", scheduler, max_concurrent=1)
    await asyncio.sleep(61)
    await company.submit("long")
    await asyncio.sleep(150)
    missed = [run for run in await company.runs("report", State.SKIPPED) if run.reason == "misfire"]
    verdict, text, setting = await told_of(company, missed[0].due)
    assert (verdict, setting) == ("skipped", "misfire='skip'")
    assert f"{node.running.node.id} was the first worker with a free slot for it" in text


@played
async def test_nothing_is_due_then(company):
    await company.start("one", reports())
    await asyncio.sleep(60)
    [first, *_] = await company.runs("report", State.COMPLETED)
    found = await company.office.explainer.instant("report", first.due + timedelta(seconds=3))
    assert found.due == first.due
    assert any("Nothing is due at" in reason and "next due" in reason and "last" in reason for reason in found.reasons)


@played
async def test_it_is_not_due_yet_or_was_before_the_job_or_after_its_removal(company):
    await company.start("one", reports())
    born = company.clock.now()
    await asyncio.sleep(60)
    assert (await told_of(company, company.clock.now() + timedelta(seconds=500)))[0] == "not_yet"
    verdict, text, _ = await told_of(company, born - timedelta(seconds=100))
    assert (verdict, "The job was registered later" in text) == ("before_job", True)
    await company.definitions.remove("report")
    verdict, text, setting = await told_of(company, company.clock.now() + timedelta(seconds=500))
    assert (verdict, setting) == ("not_planned", "remove")
    assert "The job was removed at" in text


# --- a run that ended badly


@played
async def test_it_was_lost_and_may_not_begin_twice(company):
    scheduler = Scheduler("memory://")
    scheduler.add(Job(name="long", handler=long, timeout=None, delivery="at_most_once"))
    node = await company.start("one", scheduler)
    put = await company.submit("long")
    await asyncio.sleep(5)
    node.node.kill()
    await company.start("two", program())
    await company.office.ended(put.id, 100)
    text, setting = await told(company, put)
    assert text == "It is lost: worker vanished. It may have begun, and must not be tried twice."
    assert setting == "delivery"


@played
async def test_a_waiting_run_was_cancelled(company):
    put = await company.office.submitter.submit("mail", None, Options(delay=100))
    await company.office.backend.store.cancel([put.id], "by ada")
    text, _ = await told(company, put)
    assert text == "It was cancelled: by ada."
