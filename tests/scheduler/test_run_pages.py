"""Readings that need more than one page: a short page is not taken for the end, and an incomplete search is named."""

from functools import partial

import pytest
from msgspec.structs import replace

from duly import SchedulerConfig
from duly.backends.memory import open_url
from duly.model import RunQuery, State
from duly.ports import Opening, Severity
from duly.rules.admission import OVERLAP
from duly.scheduler import examination, explaining
from duly.scheduler.explaining import Explainer
from duly.scheduler.run_pages import find, pages_of
from duly.testing.conformance import World


@pytest.fixture
async def backend():
    async with open_url("memory://", Opening()) as opened:
        yield opened


@pytest.fixture
def world(backend):
    return World(backend)


@pytest.fixture
def few(backend, monkeypatch):
    """The store looks at three runs a call, whatever it is asked for."""
    runs = backend.store.runs

    def short(*arguments, scan, **named):
        return runs(*arguments, scan=min(scan, 3), **named)

    monkeypatch.setattr(backend.store, "runs", partial(short, scan=3))


def explainer(backend):
    return Explainer(backend, SchedulerConfig(), lambda _: None)


async def _skipped_behind_many(world):
    """A run that was skipped for another one, with many skipped ones created in between."""
    await world.put(occupant := world.run(group="g", limit=1))
    [claim] = await world.claim()
    skipped = []
    for _ in range(30):
        world.advance(1)
        run = world.run(group="g", limit=1)
        skipped.append(replace(run, state=State.SKIPPED, reason=OVERLAP, finished_at=world.now))
        await world.put(skipped[-1])
    world.advance(1)
    await world.settle(claim)
    return occupant, skipped[-1]


async def test_pages_are_read_until_the_listing_ends(world, backend, few):
    for _ in range(10):
        await world.put(world.run("noise"), world.run("mail"))
        world.advance(1)
    pages = [page async for page in pages_of(backend.store, RunQuery(job="mail"), 4)]
    assert len(pages) > 5
    assert sum(len(page.runs) for page in pages) == 10
    assert pages[-1].next is None


async def test_pages_end_when_enough_runs_have_been_looked_at(world, backend, few):
    for _ in range(10):
        await world.put(world.run("noise"), world.run("mail"))
        world.advance(1)
    pages = [page async for page in pages_of(backend.store, RunQuery(job="mail"), 4, most=7)]
    assert pages[-1].next is not None
    assert not (
        await find(backend.store, RunQuery(job="nobody"), 4, lambda runs: runs[0] if runs else None, 7)
    ).complete
    assert (await find(backend.store, RunQuery(job="nobody"), 4, lambda runs: runs[0] if runs else None)).complete


async def test_the_run_that_another_was_skipped_for_is_found_behind_many_skipped_ones(world, backend, few):
    occupant, skipped = await _skipped_behind_many(world)
    assert f"run {occupant.id}" in str(await explainer(backend).run(skipped.id))


async def test_a_run_that_was_not_found_is_not_said_to_be_gone(world, backend, few, monkeypatch):
    _, skipped = await _skipped_behind_many(world)
    monkeypatch.setattr(explaining, "find", partial(find, most=9))
    story = str(await explainer(backend).run(skipped.id))
    assert "its record is gone" not in story
    assert "too many runs to look for it" in story


async def test_a_run_that_waits_for_a_handler_is_named_as_the_reason_of_an_overlap(world, backend):
    await world.put(first := world.run(group="g", limit=1))
    assert await world.claim(handlers={"another"}) == []
    world.advance(10)
    await world.put(second := world.run(group="g", limit=1, when_full="skip"))
    await world.claim(handlers={"another"})
    story = str(await explainer(backend).run(second.id))
    assert f"run {first.id}" in story
    assert "was waiting to start, because no node had its handler" in story


async def _waiting_behind_many(world):
    await world.put(first := world.run(group="g", limit=1))
    await world.claim()
    for number in range(30):
        world.advance(1)
        await world.put(world.run(group=f"other{number}", limit=1))
    await world.claim(30)
    world.advance(1)
    await world.put(run := world.run(group="g", limit=1, delay=-60))
    return first, run


async def test_the_run_that_another_waits_for_is_found_behind_many(world, backend, few):
    first, run = await _waiting_behind_many(world)
    assert f"run {first.id} has ended" in str(await explainer(backend).waits_for(run))


async def test_a_run_that_may_wait_for_another_says_so(world, backend, few, monkeypatch):
    _, run = await _waiting_behind_many(world)
    monkeypatch.setattr(explaining, "find", partial(find, most=9))
    assert "may wait until an earlier run of the job has ended" in await explainer(backend).waits_for(run)


async def test_records_are_examined_beyond_a_short_page(world, backend, few, monkeypatch):
    await world.put(replace(world.run(delay=60), damage="cannot be decoded"))
    for _ in range(10):
        world.advance(1)
        await world.put(world.run(delay=60), replace(world.run(), state=State.SKIPPED, finished_at=world.now))
    [finding] = [each for each in await examination.examine(backend) if each.subject == "records"]
    assert finding.severity is Severity.WARNING
    assert "looked at" not in finding.message


async def test_records_that_were_not_examined_are_named(world, backend, monkeypatch):
    monkeypatch.setattr(examination, "_LOOKED_AT", 4)
    await world.put(*(world.run(delay=60 + number) for number in range(9)))
    [finding] = [each for each in await examination.examine(backend) if each.subject == "records"]
    assert finding.severity is Severity.OK
    assert finding.message == "only the newest runs were looked at: 4 pending"
