"""Finding a run by a part of its id: unique, ambiguous, unknown, and how far is searched."""

from datetime import UTC, datetime

import pytest

from duly import Scheduler
from duly.errors import AmbiguousRun, RunNotFound
from duly.model import recurring_id, short_id
from duly.scheduler.run_lookup import find_run


@pytest.fixture
async def scheduler():
    async with Scheduler("memory://").client() as scheduler:
        yield scheduler


async def store_of(scheduler):
    return (await scheduler.opened()).backend.store


async def submitted(scheduler, number):
    return [handle.id for handle in await scheduler.submit_many("mail", [{} for _ in range(number)])]


async def test_a_run_is_found_by_its_beginning_its_end_and_its_short_form(scheduler):
    store = await store_of(scheduler)
    first, *_ = await submitted(scheduler, 5)
    for part in (first, first[-8:], first[-10:], short_id(first)):
        assert (await find_run(store, part)).id == first


async def test_several_matches_are_candidates(scheduler):
    store = await store_of(scheduler)
    runs = await submitted(scheduler, 5)
    with pytest.raises(AmbiguousRun, match="ambiguous: 5 runs") as caught:
        await find_run(store, runs[0][:6])
    assert {run.id for run in caught.value.candidates} == set(runs)
    await submitted(scheduler, 50)
    with pytest.raises(AmbiguousRun, match="more than 10 runs") as caught:
        await find_run(store, runs[0][:3])
    assert len(caught.value.candidates) == 10


@pytest.mark.parametrize("text", ["", "~", "a b", "\x00", "\ud800", "0" * 300, "%", "*", "zzzz"])
async def test_a_text_that_is_no_part_of_an_id_is_unknown(scheduler, text):
    await submitted(scheduler, 2)
    with pytest.raises(RunNotFound, match="there is no run"):
        await find_run(await store_of(scheduler), text)


async def test_a_search_that_ends_early_says_how_far_it_came(scheduler):
    store = await store_of(scheduler)
    old, *_ = await submitted(scheduler, 1)
    handle = await scheduler.submit("mail")
    await scheduler.cancel(old)
    await scheduler.cancel(handle.id)
    await submitted(scheduler, 30)
    assert (await find_run(store, old[-8:], most=5)).id == old  # among the few that were cancelled
    with pytest.raises(RunNotFound, match=r"searched back to 20.* full id"):
        await find_run(store, "zzzzzzzz", most=5)


async def test_a_full_id_costs_one_read(scheduler):
    class Counting:
        def __init__(self, store):
            self.store = store
            self.calls = []

        def __getattr__(self, name):
            self.calls.append(name)
            return getattr(self.store, name)

    [run] = await submitted(scheduler, 1)
    store = Counting(await store_of(scheduler))
    await find_run(store, run)
    assert store.calls == ["run"]


async def test_runs_of_a_schedule_are_found_by_job_and_time(scheduler):
    from duly.model import Cause, Run

    store = (await scheduler.opened()).backend
    due = datetime(2026, 11, 18, 8, 15, tzinfo=UTC)
    uids = [(await scheduler.opened()).ids.new() for _ in range(2)]
    for uid in uids:
        run = Run(recurring_id(uid, due), "report", "report", due, due, uid=uid, cause=Cause.SCHEDULE)
        await store.queue.put([run])
    wanted = recurring_id(uids[0], due)
    assert short_id(wanted).endswith("-1118T081500")
    assert (await find_run(store.store, short_id(wanted))).id == wanted
    with pytest.raises(AmbiguousRun):
        await find_run(store.store, "20261118T081500.000000")
