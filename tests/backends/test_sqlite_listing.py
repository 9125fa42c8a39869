"""Listings and lookups: the same answer whichever way they are found, and memories that are too small."""

import asyncio
import itertools

import pytest

from duly.backends.sql import listing, pages, unit
from duly.backends.sqlite import claiming, dialect, open_url
from duly.backends.sqlite import interning as names
from duly.errors import BackendError
from duly.model import Cause, RunQuery, State, Verdict
from duly.ports import Opening
from duly.testing.conformance import World
from duly.testing.conformance.world import failed


@pytest.fixture
async def backend(tmp_path):
    async with open_url(f"sqlite:///{tmp_path}/jobs.db", Opening()) as opened:
        yield opened


@pytest.fixture
def world(backend):
    return World(backend)


async def _some_of_everything(world: World) -> None:
    for number in range(24):
        job, queue = ("mail", "sms", "fax")[number % 3], ("a", "b")[number % 2]
        cause = (Cause.SUBMIT, Cause.TRIGGER)[number // 2 % 2]
        await world.put(
            world.run(job, queue=queue, cause=cause, delay=number * 10 - 60),
            world.run(job, queue=queue, group=f"g{number % 5}"),
        )
        world.advance(1)
    claims = await world.claim(9)
    for claim, outcome in zip(claims, itertools.cycle([None, failed(verdict=Verdict.NEVER), failed()]), strict=False):
        await world.settle(claim, outcome)
    await world.claim(3)
    await world.put(world.run("mail", hold="k"), world.run("sms", queue="b"), world.run("fax", queue="a"))


QUERIES = [
    RunQuery(*chosen)
    for chosen in itertools.product(
        (None, "mail", "nobody"),
        (None, "sms"),
        (None, "b", "nowhere"),
        (
            (),
            (State.QUEUED,),
            (State.PENDING, State.RUNNING),
            (State.COMPLETED,),
            (State.FAILED, State.SKIPPED, State.QUEUED),
        ),
        (None, Cause.TRIGGER),
    )
]


async def _all_pages(world: World, query: RunQuery) -> list[str]:
    found, cursor = [], None
    while True:
        page = await world.store.runs(query, 5, cursor, now=world.now)
        found += [run.id for run in page.runs]
        if (cursor := page.next) is None:
            return found


def _matches(query: RunQuery, run) -> bool:
    return (
        query.job in {None, run.job}
        and query.handler in {None, run.handler}
        and query.queue in {None, run.queue}
        and query.cause in {None, run.cause}
        and (not query.states or run.state in query.states)
    )


@pytest.mark.parametrize(("few", "few_kinds"), [(20_000, 20), (0, 0), (0, 20), (20_000, 0)])
async def test_a_listing_is_the_same_whichever_way_it_is_found(world, monkeypatch, few, few_kinds):
    await _some_of_everything(world)
    everything = (await world.store.runs(RunQuery(), 1000, now=world.now)).runs
    assert len({run.state for run in everything}) >= 6
    monkeypatch.setattr(pages, "_FEW", few)
    monkeypatch.setattr(pages, "_SOME", few)
    monkeypatch.setattr(dialect, "_FEW_KINDS", few_kinds)
    for query in QUERIES:
        assert await _all_pages(world, query) == [run.id for run in everything if _matches(query, run)], query


async def test_a_page_of_nothing_ends_the_listing(world):
    await world.put(world.run(), world.run())
    page = await world.store.runs(RunQuery(), 0, now=world.now)
    assert (page.runs, page.next) == ([], None)


@pytest.mark.parametrize("most", [1, 2])
async def test_a_memory_that_is_too_small_is_no_harm(tmp_path, monkeypatch, most):
    monkeypatch.setattr(names, "_MOST", most)
    monkeypatch.setattr(unit, "_MOST_REMEMBERED", 1)
    async with open_url(f"sqlite:///{tmp_path}/jobs.db", Opening()) as backend:
        world = World(backend)
        await _some_of_everything(world)
        jobs = [run.job for run in (await world.store.runs(RunQuery(), 1000, now=world.now)).runs]
        assert sorted(set(jobs)) == ["fax", "mail", "sms"]
        world.advance(1000)
        while claims := await world.claim(7):
            assert all(await backend.queue.settle([world.settlement(claim) for claim in claims]))


async def test_a_claim_examines_a_bounded_number_of_runs(world, monkeypatch):
    monkeypatch.setattr(claiming, "_MOST_EXAMINED", 10)
    await world.put(*[world.run("unknown", priority=9) for _ in range(25)])
    await world.put(known := world.run("known"))
    answers = []
    for request in range(4):
        claimed = await world.queue.claim("n", None, {"known"}, 5, 15, request + 1, now=world.now)
        answers.append(([claim.run.id for claim in claimed.claims], claimed.next_due))
        if claimed.claims:
            break
    assert answers[:2] == [([], world.now)] * 2
    assert answers[-1] == ([known.id], None)


async def test_waiting_for_an_end_does_not_outlive_the_session(tmp_path):
    backend = open_url(f"sqlite:///{tmp_path}/jobs.db", Opening())
    await backend.open()
    world = World(backend)
    await world.put(run := world.run())
    waiting = asyncio.create_task(backend.store.finished([run.id], 3600))
    await world.settle((await world.claim())[0], failed())
    await backend.close()
    async with asyncio.timeout(20):  # sooner than it would look again unasked
        with pytest.raises(BackendError, match="not open"):
            await waiting


@pytest.mark.parametrize(("few", "front"), [(0, 0), (0, 5), (0, 1_000), (1_000, 0)])
async def test_upcoming_runs_of_a_job_are_the_same_by_every_way(world, few, front, monkeypatch):
    await _some_of_everything(world)
    jobs = ("mail", "sms", "fax", "nobody")
    expected = {(job, limit): await world.store.upcoming(limit, job, now=world.now) for job in jobs for limit in (1, 9)}
    monkeypatch.setattr(listing, "_FEW_OF_JOB", few)
    monkeypatch.setattr(listing, "_FRONT", front)
    for (job, limit), runs in expected.items():
        assert await world.store.upcoming(limit, job, now=world.now) == runs
    assert expected["mail", 9]
    assert not expected["nobody", 9]
