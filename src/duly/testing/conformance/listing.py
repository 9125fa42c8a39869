"""What every store must do to list and count runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from duly.errors import ConfigurationError
from duly.model import (
    SCAN,
    Cancelled,
    CancelReply,
    Cause,
    Outcome,
    PathEquals,
    RetrySpec,
    RunOrder,
    RunPolicy,
    RunQuery,
    State,
    Succeeded,
    recurring_id,
)
from duly.testing.conformance.world import World, failed, part, scenario, to_place

_NO_RETRY = RunPolicy(retry=RetrySpec(max_retries=0))


async def _ids(world: World, query: RunQuery, limit: int, scan: int = SCAN) -> list[str]:
    """The ids of all pages in order."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await world.store.runs(query, limit, cursor, scan=scan, now=world.now)
        assert len(page.runs) <= limit
        found += [run.id for run in page.runs]
        cursor = page.next
        if cursor is None:
            return found


@part
class ListingSuite:
    """Lists and counts of runs."""

    # --- pages

    @scenario
    async def test_runs_are_listed_newest_first_in_pages(self, world: World) -> None:
        runs = []
        for _ in range(7):
            await world.put(run := world.run())
            runs.append(run)
            world.advance(1)
        seen: list[str] = []
        cursor = None
        while True:
            page = await world.store.runs(RunQuery(), 3, cursor, now=world.now)
            seen += [run.id for run in page.runs]
            cursor = page.next
            if cursor is None:
                break
        assert seen == [run.id for run in reversed(runs)]

    @scenario
    async def test_a_cursor_that_no_page_gave_is_refused(self, world: World) -> None:
        await world.put(world.run())
        for cursor in ("", "x", "-1", " 1", "9" * 40, "1\x00", "\ud800", "٣"):
            with pytest.raises(ConfigurationError, match="cursor="):
                await world.store.runs(RunQuery(), 3, cursor, now=world.now)

    @scenario
    async def test_runs_put_together_are_listed_once_each(self, world: World) -> None:
        runs = [world.run() for _ in range(10)]
        await world.put(*runs)
        first = await world.store.runs(RunQuery(), 6, now=world.now)
        rest = await world.store.runs(RunQuery(), 6, first.next, now=world.now)
        assert {run.id for run in first.runs + rest.runs} == {run.id for run in runs}
        assert len(rest.runs) == 4
        assert rest.next is None

    @scenario
    async def test_a_wish_to_cancel_is_over_when_the_run_has_ended(self, world: World) -> None:
        runs = [world.run() for _ in range(3)]
        await world.put(*runs)
        claims = await world.claim()
        for run in runs:
            assert await world.store.cancel([run.id], now=world.now) == [CancelReply.REQUESTED]
            assert (await world.stored(run)).cancelling
        outcomes: list[Outcome] = [Cancelled(), Succeeded(), failed()]
        for claim, outcome in zip(claims, outcomes, strict=True):
            assert await world.settle(claim, outcome)
        for run in runs:
            stored = await world.stored(run)
            assert (stored.final, stored.cancelling) == (True, False)
        page = await world.store.runs(RunQuery(), 10, now=world.now)
        assert not any(run.cancelling for run in page.runs)

    @scenario
    async def test_ended_runs_are_listed_by_their_end(self, world: World) -> None:
        runs = [world.run(policy=_NO_RETRY) for _ in range(6)]
        await world.put(*runs, world.run(delay=60))
        claims = {claim.run.id: claim for claim in await world.claim(6)}
        order = [runs[number] for number in (2, 0, 5, 1, 4, 3)]
        for number, run in enumerate(order):
            await world.settle(claims[run.id], Succeeded() if number % 2 else failed())
            world.advance(1)
        latest_first = [run.id for run in reversed(order)]
        assert await _ids(world, RunQuery(order=RunOrder.ENDED), 2) == latest_first
        assert await _ids(world, RunQuery(order=RunOrder.ENDED, states=(State.COMPLETED,)), 2) == latest_first[::2]
        assert await _ids(world, RunQuery(order=RunOrder.ENDED, job="mail"), 2) == latest_first
        assert await _ids(world, RunQuery(order=RunOrder.ENDED, states=(State.QUEUED,)), 2) == []
        ends = [(await world.stored(run)).finished_at for run in order]
        between = RunQuery(order=RunOrder.ENDED, ended_from=ends[1], ended_until=ends[3])
        assert await _ids(world, between, 2) == [order[3].id, order[2].id, order[1].id]
        assert sorted(await _ids(world, RunQuery(ended_from=ends[4]), 2)) == sorted([order[4].id, order[5].id])

    @scenario
    async def test_waiting_runs_are_listed_by_ready_time(self, world: World) -> None:
        late, soon, held = world.run(delay=60), world.run("sms", delay=5, priority=3), world.run(delay=30, hold="k")
        ready, other = world.run(delay=-1), world.run(delay=20, queue="fast")
        await world.put(late, soon, held, ready, other)
        by_time = [ready.id, soon.id, other.id, held.id, late.id]
        assert await _ids(world, RunQuery(order=RunOrder.READY), 2) == by_time
        assert await _ids(world, RunQuery(order=RunOrder.READY, queue="fast"), 2) == [other.id]
        assert await _ids(world, RunQuery(order=RunOrder.READY, job="sms"), 2) == [soon.id]
        assert await _ids(world, RunQuery(order=RunOrder.READY, states=(State.PENDING,)), 1) == by_time[1:]
        await world.claim()
        assert await _ids(world, RunQuery(order=RunOrder.READY), 2) == by_time[1:]

    @scenario
    async def test_runs_of_one_ready_time_and_one_end_are_listed_once_each(self, world: World) -> None:
        runs = [world.run(delay=60) for _ in range(9)]
        await world.put(*runs)
        ids = sorted(run.id for run in runs)
        assert sorted(await _ids(world, RunQuery(order=RunOrder.READY), 2)) == ids
        await world.store.cancel(ids, now=world.now)
        assert sorted(await _ids(world, RunQuery(order=RunOrder.ENDED), 2)) == ids

    @scenario
    async def test_a_search_stops_after_its_budget_and_says_how_far_it_came(self, world: World) -> None:
        await world.put(rare := world.run(payload=b'{"rare":true}'))
        for _ in range(300):
            world.advance(1)
            await world.put(*[world.run() for _ in range(4)])
        query = RunQuery(where=(PathEquals(("payload", "rare"), value=True),))
        found: list[str] = []
        cursor, pages, reached = None, 0, world.now
        while True:
            page = await world.store.runs(query, 2, cursor, scan=5, now=world.now)
            found += [run.id for run in page.runs]
            pages, cursor = pages + 1, page.next
            if cursor is None:
                break
            assert page.reached is not None
            assert page.searched >= 3
            assert page.reached <= reached
            reached = page.reached
        assert found == [rare.id]
        assert pages > 2
        assert (page.reached, page.searched) == (None, 0)

    @scenario
    async def test_runs_are_found_by_what_they_have(self, world: World) -> None:
        plain = world.run(delay=600)
        keyed = world.run("sms", delay=600, dedupe_key="invoice-7", payload=b'{"to":{"id":7},"tags":["a","b"]}')
        await world.put(failing := world.run("mail", policy=_NO_RETRY))
        [claim] = await world.claim(1, node="n1")
        world.advance(3)
        assert await world.settle(claim, failed("Mailbox full"))
        await world.put(plain, keyed)

        async def found(**wanted: Any) -> set[str]:
            return set(await _ids(world, RunQuery(**wanted), 2))

        assert await found() == {plain.id, keyed.id, failing.id}
        assert await found(node="n1") == {failing.id}
        assert await found(node="n2") == set()
        assert await found(error="mailbox") == {failing.id}
        assert await found(text="INVOICE") == {keyed.id}
        assert await found(text="valueerror") == {failing.id}
        assert await found(key="invoice-7") == {keyed.id}
        assert await found(id=keyed.id) == {keyed.id}
        assert await found(id="~") == set()
        assert await found(short=keyed.id[-8:]) == {keyed.id}
        assert await found(short="~") == set()
        assert await found(where=(PathEquals(("payload", "to", "id"), value=7),)) == {keyed.id}
        assert await found(where=(PathEquals(("payload", "tags", "1"), value="b"),)) == {keyed.id}
        assert await found(where=(PathEquals(("payload", "to", "id"), value="7"),)) == set()
        assert await found(min_seconds=3) == {failing.id}
        assert await found(min_seconds=4) == set()
        assert await found(min_attempt=2) == set()
        assert await found(jobs=("mail", "fax")) == {plain.id, failing.id}
        assert await found(jobs=()) == set()
        assert await found(job="mail", jobs=("sms",)) == set()
        assert await found(none_of=(RunQuery(job="mail"),)) == {keyed.id}
        assert await found(none_of=(RunQuery(key="invoice-7"), RunQuery(states=(State.FAILED,)))) == {plain.id}
        world.advance(700)
        assert await found(min_late=100) == {plain.id, keyed.id}

    @scenario
    async def test_the_newest_runs_of_a_job_are_found_among_those_of_others(self, world: World) -> None:
        mine = []
        for number in range(9):
            await world.put(*[world.run("noise") for _ in range(3)], run := world.run("report"))
            mine.append(run.id)
            claims = await world.claim(4)
            for claim in claims if number % 2 else claims[:2]:
                await world.settle(claim)
            world.advance(1)
        assert await _ids(world, RunQuery(job="report"), 4, scan=8) == mine[::-1]
        assert set(await _ids(world, RunQuery(jobs=("report", "other")), 4)) == set(mine)

    # --- the instants of a recurring job

    @scenario
    async def test_the_ledger_has_the_instants_of_a_job_in_a_range(self, world: World) -> None:
        instants = [world.after(60 * number) for number in range(1, 7)]
        runs = [
            world.run("report", id=recurring_id("u1", at), uid="u1", due=at, ready_at=at, cause=Cause.SCHEDULE)
            for at in instants
        ]
        skipped = replace(runs[0], state=State.SKIPPED, reason="misfire", until=instants[2])
        other = world.run("other", id=recurring_id("u2", instants[4]), uid="u2", due=instants[4], ready_at=instants[4])
        await world.put(skipped, *runs[3:], other)

        async def ledger(start: datetime, until: datetime, limit: int = 10) -> list[str]:
            expected = [at for at in instants if start <= at <= until]
            found = await world.store.ledger("u1", start, until, limit, expected, now=world.now)
            return [run.id for run in found]

        assert await ledger(world.now, instants[-1]) == [skipped.id, *(run.id for run in runs[3:])]
        assert await ledger(instants[1], instants[3]) == [skipped.id, runs[3].id]  # it began before
        assert await ledger(instants[4], instants[4]) == [runs[4].id]
        assert await ledger(world.now, instants[-1], 2) == [skipped.id, runs[3].id]
        assert await ledger(world.after(10_000), world.after(20_000)) == []

    # --- upcoming runs

    @scenario
    async def test_upcoming_runs_are_listed_by_time(self, world: World) -> None:
        await world.put(late := world.run(delay=60), soon := world.run("sms", delay=5), now := world.run())
        await world.put(world.run(delay=1, hold="k"))
        assert [run.id for run in await world.store.upcoming(10, now=world.now)] == [now.id, soon.id, late.id]
        assert [run.id for run in await world.store.upcoming(1, now=world.now)] == [now.id]
        assert [run.id for run in await world.store.upcoming(10, "sms", now=world.now)] == [soon.id]
        assert await world.store.next_runs(now=world.now) == {"mail": now.ready_at, "sms": soon.ready_at}
        assert await world.store.next_runs(["sms", "nobody"], now=world.now) == {"sms": soon.ready_at}
        assert await world.store.next_runs([], now=world.now) == {}

    @scenario
    async def test_the_next_run_of_a_job_is_one_that_waits(self, world: World) -> None:
        runs = [world.run(delay=delay) for delay in (0, 10, 20)]
        await world.put(*runs)
        [claim] = await world.claim(limit=1)
        assert await world.store.next_runs(["mail"], now=world.now) == {"mail": runs[1].ready_at}
        await world.settle(claim, failed())
        stored = await world.stored(runs[0])
        assert await world.store.next_runs(["mail"], now=world.now) == {"mail": min(stored.ready_at, runs[1].ready_at)}
        await world.store.cancel([run.id for run in runs], now=world.now)
        assert await world.store.next_runs(["mail"], now=world.now) == {}

    @scenario
    async def test_the_first_run_of_a_job_is_found_in_a_backlog(self, world: World) -> None:
        # It is neither among the first of all runs nor among the newest of its job.
        noise = [world.run("noise", delay=-100 - number) for number in range(40)]
        mine = [world.run("mail", delay=delay) for delay in (7, 5, 9)]
        await world.put(*noise[:20], *mine, world.run("mail", delay=1, hold="k"))
        await world.put(*(world.run("mail", delay=60 + number) for number in range(30)), *noise[20:])
        found = await world.store.upcoming(3, "mail", now=world.now)
        assert [run.id for run in found] == [mine[1].id, mine[0].id, mine[2].id]
        assert len(await world.store.upcoming(100, "mail", now=world.now)) == 33
        assert (await world.store.next_runs(["mail"], now=world.now))["mail"] >= mine[1].ready_at

    @scenario
    async def test_runs_to_be_placed_are_upcoming_and_other_held_ones_are_not(self, world: World) -> None:
        later, sooner, held = to_place(world, delay=20), to_place(world, delay=10), world.run(delay=5, hold="breaker:x")
        await world.put(later, sooner, held)
        assert [run.id for run in await world.store.upcoming(10, now=world.now)] == [sooner.id, later.id]
        assert [run.id for run in await world.store.upcoming(1, "mail", now=world.now)] == [sooner.id]
        assert await world.store.next_runs(now=world.now) == {"mail": sooner.ready_at}
        assert await world.store.next_runs(["mail"], now=world.now) == {"mail": sooner.ready_at}

    # --- counts

    @scenario
    async def test_counts_tell_states_and_queues(self, world: World) -> None:
        await world.put(
            world.run(queue="a", priority=9),
            world.run(queue="a", priority=9),
            oldest := world.run(queue="a", delay=-30),
            world.run(queue="a"),
            world.run(queue="b", delay=60),
            world.run(queue="b", hold="k"),
        )
        first, second = await world.claim(2)
        await world.settle(first)
        await world.store.pause("b")
        counts = await world.store.counts(now=world.now)
        assert counts.states[State.COMPLETED] == 1
        assert counts.states[State.RUNNING] == 1
        assert counts.states[State.QUEUED] == 2
        assert counts.states[State.FAILED] == 0
        a, b = counts.queues["a"], counts.queues["b"]
        assert (a.queued, a.running, a.pending, a.oldest, a.paused) == (2, 1, 0, oldest.ready_at, False)
        assert (b.queued, b.running, b.pending, b.paused) == (0, 0, 2, True)
        await world.settle(second)
        await world.store.purge(State.COMPLETED, world.after(1), None, 10)
        assert (await world.store.counts(now=world.now)).states[State.COMPLETED] == 2

    @scenario
    async def test_counts_are_exact_or_lower_bounds(self, world: World) -> None:
        # A store that keeps counters returns exact numbers. One that counts runs may stop, and then says so.
        runs = [
            *(world.run(queue="long", delay=-number) for number in range(20)),
            *(world.run(queue="long", priority=5, delay=60 + number) for number in range(9)),
            *(world.run(queue="short", delay=-number) for number in range(3)),
            *(world.run(queue="held", hold="k") for _ in range(6)),
        ]
        await world.put(*runs)
        await world.claim(7, queues=["long"])
        exact = {"long": (13, 9, 7), "short": (3, 0, 0), "held": (0, 6, 0)}
        for scan in (1, 2, 5, 8, 12, 100):
            counts = await world.store.counts(scan=scan, now=world.now)
            seen = dict.fromkeys((State.QUEUED, State.PENDING, State.RUNNING), 0)
            for queue, numbers in exact.items():
                depth = counts.depth(queue)
                found = (depth.queued, depth.pending, depth.running)
                for state, given, number in zip(seen, found, numbers, strict=True):
                    seen[state] += given
                    assert given == number or (given < number and state in depth.at_least), (scan, queue, state, given)
                    assert bool(given) or not number or state is not State.QUEUED
            assert {state: counts.states[state] for state in seen} == seen
            assert counts.queues["long"].oldest == world.after(-12)
            assert counts.queues["short"].oldest == world.after(-2)
            assert counts.at_least == frozenset().union(*(depth.at_least for depth in counts.queues.values()))
        assert not counts.at_least

    @scenario
    async def test_every_end_of_a_run_is_counted(self, world: World) -> None:
        await world.put(run := world.run())
        for ends in (1, 2):
            await world.store.cancel([run.id], now=world.now)
            assert (await world.store.counts(now=world.now)).states[State.CANCELLED] == ends
            await world.store.redrive([run.id], now=world.now)
        counts = (await world.store.counts(now=world.now)).states
        assert (counts[State.CANCELLED], counts[State.QUEUED]) == (2, 1)
