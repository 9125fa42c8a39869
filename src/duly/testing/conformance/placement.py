"""What every queue must do for runs that the leader places: hold, assign, lend to one node only, take back."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from duly.model import (
    Assignment,
    CancelReply,
    Interrupted,
    JobChange,
    Lost,
    Pause,
    RedriveReply,
    RunQuery,
    Share,
    State,
    WhenFull,
)
from duly.model.holds import ALONE, UNPLACED, hold_for_job
from duly.testing.conformance.groups import in_line
from duly.testing.conformance.world import LEASE, LOST, World, failed, give, part, scenario, to_place


@part
class PlacementSuite:
    """Assignable runs."""

    # --- held from the start

    @scenario
    async def test_a_run_that_carries_a_hold_is_held_from_the_start(self, world: World) -> None:
        run = to_place(world, queue="fast", priority=3, dedupe_key="k", group="g", when_full=WhenFull.QUEUE)
        await world.put(run)
        assert replace(await world.stored(run), created_at=None) == run
        assert await world.queue.holds() == {UNPLACED: 1}
        assert await world.claim() == []
        twin = to_place(world, dedupe_key="k")
        assert [(put.id, put.created) for put in await world.put(twin)] == [(run.id, False)]

    @scenario
    async def test_runs_to_be_placed_come_by_urgency_and_later_ones_by_time(self, world: World) -> None:
        plans = ((5, 0), (5, 0), (9, 9), (7, 3), (-1, 0), (0, 0), (0, 9), (-3, 4), (0, 9))
        runs = [to_place(world, delay=delay, priority=priority) for delay, priority in plans]
        await world.put(*runs)
        tied = [sorted(run.id for run in (one, other)) for one, other in ((runs[6], runs[8]), (runs[0], runs[1]))]
        expected = [*tied[0], runs[7].id, runs[4].id, runs[5].id, *tied[1], runs[3].id, runs[2].id]
        found = await world.queue.held(UNPLACED, 10, now=world.now)
        assert [run.id for run in found] == expected
        assert [run.id for run in await world.queue.held(UNPLACED, 2, now=world.now)] == expected[:2]
        assert await world.queue.held(UNPLACED, 0, now=world.now) == []
        for place, run in enumerate(found, 1):
            rest = await world.queue.held(UNPLACED, 3, run, now=world.now)
            assert [after.id for after in rest] == expected[place : place + 3]

    @scenario
    async def test_one_may_go_on_after_a_run_that_is_no_longer_there(self, world: World) -> None:
        runs = [to_place(world, delay=delay) for delay in (-2, -1, 5)]
        await world.put(*runs)
        assert await give(world, runs[1], "a")
        assert [run.id for run in await world.queue.held(UNPLACED, 10, runs[1], now=world.now)] == [runs[2].id]
        assert [run.id for run in await world.queue.held(UNPLACED, 10, runs[0], now=world.now)] == [runs[2].id]

    # --- assigned

    @scenario
    async def test_only_the_assignee_is_lent_the_run(self, world: World) -> None:
        run = to_place(world)
        await world.put(run)
        assert await give(world, run, "a")
        assert (await world.stored(run)).assignee == "a"
        assert await world.claim(node="b") == []
        [claim] = await world.claim(node="a")
        assert (claim.run.id, claim.run.queue, claim.run.assignee) == (run.id, "default", "a")
        assert await world.settle(claim)
        ended = await world.stored(run)
        assert (ended.state, ended.assignee, ended.hold) == (State.COMPLETED, "a", None)

    @scenario
    async def test_of_two_who_assign_a_run_the_first_is_heard(self, world: World) -> None:
        run = to_place(world)
        await world.put(run)
        wishes = [Assignment(run.id, "a"), Assignment(run.id, "b"), Assignment("0none", "a")]
        assert await world.queue.assign(wishes) == [True, False, False]
        assert await world.queue.assign(wishes[1:]) == [False, False]
        assert await world.claim(node="b") == []
        assert len(await world.claim(node="a")) == 1
        assert not await give(world, run, "b")

    @scenario
    async def test_two_leaders_assigning_at_once_start_a_run_once(self, world: World) -> None:
        runs = [to_place(world) for _ in range(20)]
        await world.put(*runs)
        first, second = await asyncio.gather(
            *(world.queue.assign([Assignment(run.id, node) for run in runs]) for node in ("a", "b"))
        )
        assert [one + other for one, other in zip(first, second, strict=True)] == [1] * 20
        lent = [*(await world.claim(node="a")), *(await world.claim(node="b"))]
        assert sorted(claim.run.id for claim in lent) == sorted(run.id for run in runs)

    @scenario
    async def test_a_run_that_has_ended_is_not_assigned(self, world: World) -> None:
        run = to_place(world)
        await world.put(run)
        assert await world.store.cancel([run.id], now=world.now) == [CancelReply.DONE]
        assert not await give(world, run, "a")
        assert await world.queue.holds() == {}

    @scenario
    async def test_an_assigned_run_waits_for_its_time(self, world: World) -> None:
        run = to_place(world, delay=30)
        await world.put(run)
        assert await give(world, run, "a")
        claimed = await world.queue.claim("a", None, None, 10, LEASE, 1_000, now=world.now)
        assert (claimed.claims, claimed.next_due) == ([], run.ready_at)
        world.advance(30)
        assert [claim.run.id for claim in await world.claim(node="a")] == [run.id]

    @scenario
    async def test_order_is_kept_among_own_and_common_runs(self, world: World) -> None:
        common = [world.run(delay=delay) for delay in (-4, -2)]
        own = [to_place(world, delay=delay) for delay in (-3, -1)]
        urgent, others = to_place(world, priority=9), to_place(world, delay=-9)
        await world.put(*common, *own, urgent, others)
        for run in (*own, urgent):
            assert await give(world, run, "a")
        assert await give(world, others, "b")
        lent = [claim.run.id for claim in await world.claim(node="a")]
        assert lent == [urgent.id, common[0].id, own[0].id, common[1].id, own[1].id]

    @scenario
    async def test_an_assigned_run_belongs_to_its_queue(self, world: World) -> None:
        run = to_place(world, queue="fast")
        await world.put(run)
        assert await give(world, run, "a")
        counts = await world.store.counts(now=world.now)
        assert (counts.queues["fast"].queued, set(counts.queues)) == (1, {"fast"})
        assert [found.id for found in (await world.store.runs(RunQuery(queue="fast"), 10, now=world.now)).runs] == [
            run.id
        ]
        assert await world.claim(node="a", queues=["slow"]) == []
        assert await world.store.pause("fast")
        assert await world.claim(node="a") == []
        assert await world.store.resume("fast")
        assert len(await world.claim(node="a", queues=["fast"])) == 1
        assert (await world.store.counts(now=world.now)).queues["fast"].running == 1

    @scenario
    async def test_groups_go_across_nodes(self, world: World) -> None:
        runs = [to_place(world, delay=delay, group="g", when_full=WhenFull.QUEUE) for delay in (-2, -1)]
        await world.put(*runs)
        assert await give(world, runs[0], "a")
        assert await give(world, runs[1], "b")
        [claim] = await world.claim(node="a")
        assert await world.claim(node="b") == []
        assert await world.settle(claim)
        assert [claim.run.id for claim in await world.claim(node="b")] == [runs[1].id]

    @scenario
    async def test_an_assigned_run_is_held_and_put_back_for_the_same_node(self, world: World) -> None:
        record = world.record("mail", every=None, paused=Pause(world.now))
        await world.create(record)
        run = to_place(world)
        await world.put(run)
        assert await give(world, run, "a")
        assert await world.claim(node="a") == []
        assert await world.queue.holds() == {hold_for_job("mail"): 1}
        assert await world.queue.assigned(now=world.now) == {}
        await world.store.save([JobChange(replace(record, revision=2, paused=None), 1)], now=world.now)
        assert await world.queue.unhold(hold_for_job("mail"), 10) == 1
        assert await world.queue.assigned(now=world.now) == {"a": Share(due=1)}
        assert await world.claim(node="b") == []
        assert len(await world.claim(node="a")) == 1

    @scenario
    async def test_a_node_without_the_handler_gives_the_run_back_to_be_placed(self, world: World) -> None:
        run = to_place(world)
        await world.put(run)
        assert await give(world, run, "a")
        assert await world.claim(node="a", handlers={"sms"}) == []
        stored = await world.stored(run)
        assert (stored.hold, stored.assignee, stored.assignable) == (UNPLACED, None, True)
        assert await world.claim(node="b", handlers={"mail"}) == []
        assert await give(world, run, "b")
        assert len(await world.claim(node="b", handlers={"mail"})) == 1

    @scenario
    async def test_an_assigned_run_can_be_cancelled(self, world: World) -> None:
        run = to_place(world)
        await world.put(run)
        assert await give(world, run, "a")
        assert await world.store.cancel([run.id], now=world.now) == [CancelReply.DONE]
        assert await world.claim(node="a") == []
        assert await world.queue.assigned(now=world.now) == {}

    # --- given back

    @scenario
    async def test_what_is_to_run_again_is_to_be_placed_again(self, world: World) -> None:
        for outcome in (failed(delay=5.0), Interrupted(), LOST):
            run = to_place(world, group="g", when_full=WhenFull.QUEUE)
            await world.put(run)
            assert await give(world, run, "a")
            [claim] = await world.claim(node="a")
            assert await world.settle(claim, outcome)
            again = await world.stored(run)
            assert (again.state, again.hold, again.assignee) == (State.PENDING, UNPLACED, None)
            assert (again.member, await world.queue.assigned(now=world.now)) == (True, {})
            assert await world.claim(node="a") == []
            world.advance(10)
            assert await give(world, run, "b")
            [claim] = await world.claim(node="b")
            assert (claim.run.id, claim.run.failures) == (run.id, again.failures)
            assert await world.settle(claim)

    @scenario
    async def test_a_wish_to_cancel_ends_a_placed_run_instead_of_a_retry(self, world: World) -> None:
        run = to_place(world)
        await world.put(run)
        assert await give(world, run, "a")
        [claim] = await world.claim(node="a")
        assert await world.store.cancel([run.id], "by ada", now=world.now) == [CancelReply.REQUESTED]
        assert await world.settle(claim, failed())
        ended = await world.stored(run)
        assert (ended.state, ended.reason) == (State.CANCELLED, "by ada")
        assert (await world.queue.holds(), await world.queue.assigned(now=world.now)) == ({}, {})

    @scenario
    async def test_a_redriven_run_is_to_be_placed_again(self, world: World) -> None:
        placed, never = to_place(world), to_place(world)
        await world.put(placed, never)
        assert await give(world, placed, "a")
        await world.store.cancel([placed.id, never.id], now=world.now)
        assert await world.store.redrive([placed.id, never.id], now=world.now) == [RedriveReply.DONE] * 2
        for run in (placed, never):
            again = await world.stored(run)
            assert (again.state, again.hold, again.assignee) == (State.PENDING, UNPLACED, None)
        assert await world.claim(node="a") == []
        assert {run.id for run in await world.queue.held(UNPLACED, 10, now=world.now)} == {placed.id, never.id}

    @scenario
    async def test_waiting_runs_of_a_node_are_taken_back_and_running_ones_are_not(self, world: World) -> None:
        running, due, later, others = (to_place(world, delay=delay) for delay in (-2, -1, 30, -1))
        await world.put(running, due, later, others)
        for run in (running, due, later):
            assert await give(world, run, "a")
        assert await give(world, others, "b")
        [claim] = await world.claim(1, node="a")
        assert claim.run.id == running.id
        assert await world.queue.unassign("a", 1) == 1
        assert await world.queue.unassign("a", 10) == 1
        assert await world.queue.unassign("a", 10) == 0
        assert await world.queue.unassign("nobody", 10) == 0
        assert {run.id for run in await world.queue.held(UNPLACED, 10, now=world.now)} == {due.id, later.id}
        assert (await world.stored(due)).assignee is None
        assert await world.queue.assigned(now=world.now) == {"a": Share(due=1), "b": Share(due=1)}
        assert await give(world, due, "b")
        assert {claim.run.id for claim in await world.claim(node="b")} == {due.id, others.id}
        assert await world.settle(claim)

    @scenario
    async def test_shares_tell_due_and_upcoming_runs_by_node(self, world: World) -> None:
        runs = [to_place(world, delay=delay) for delay in (-2, -1, 30, 30)]
        await world.put(*runs, world.run(), to_place(world))
        assert await world.queue.assigned(now=world.now) == {}
        for run, node in zip(runs, "aaab", strict=True):
            assert await give(world, run, node)
        expected = {"a": Share(due=2, upcoming=1), "b": Share(upcoming=1)}
        assert await world.queue.assigned(now=world.now) == expected
        claims = [claim for claim in await world.claim(node="a") if claim.run.assignable]
        assert await world.queue.assigned(now=world.now) == expected
        for claim in claims:
            assert await world.settle(claim)
        assert await world.queue.assigned(now=world.now) == {"a": Share(upcoming=1), "b": Share(upcoming=1)}
        world.advance(30)
        assert (await world.queue.assigned(now=world.now))["b"] == Share(due=1)

    @scenario
    async def test_a_ready_run_in_a_paused_queue_takes_nobodys_slot(self, world: World) -> None:
        running, ready, later = (to_place(world, delay=delay, queue="fast") for delay in (-2, -1, 30))
        await world.put(running, ready, later)
        for run in (running, ready, later):
            assert await give(world, run, "a")
        [claim] = await world.claim(1, node="a")
        assert await world.store.pause("fast")
        assert await world.store.paused() == {"fast"}
        assert await world.queue.assigned(now=world.now) == {"a": Share(due=1, upcoming=1)}
        assert await world.settle(claim)
        assert await world.queue.assigned(now=world.now) == {"a": Share(upcoming=1)}
        assert await world.store.resume("fast")
        assert await world.store.paused() == set()
        assert await world.queue.assigned(now=world.now) == {"a": Share(due=1, upcoming=1)}

    @scenario
    async def test_runs_put_back_from_placement_go_to_whoever_has_room(self, world: World) -> None:
        runs = [to_place(world), to_place(world)]
        await world.put(*runs)
        assert await world.queue.unhold(UNPLACED, 1) == 1
        assert await world.queue.unhold(UNPLACED, 10) == 1
        lent = await world.claim(node="a")
        assert sorted(claim.run.id for claim in lent) == sorted(run.id for run in runs)
        assert not any(claim.run.assignable for claim in lent)
        assert await world.settle(lent[0], failed())
        assert (await world.stored(lent[0].run)).hold is None

    @scenario
    async def test_an_assigned_run_is_nobodys_while_it_is_held(self, world: World) -> None:
        await world.put(run := world.run(hold=UNPLACED, assignable=True))
        for _ in range(2):
            assert await world.queue.assign([Assignment(run.id, "gone")]) == [True]
            assert len(await world.claim(node="gone")) == 1
            world.advance(LEASE)
            [taken] = await world.queue.reap(10, LEASE, now=world.now)
            await world.queue.settle([world.settlement(taken, Lost())])
        stored = await world.stored(run)
        assert (stored.hold, stored.assignable, stored.assignee) == (ALONE, True, None)
        claim = await world.queue.claim_held(ALONE, run.id, "node-1", LEASE, 1_000, now=world.now)
        assert claim is not None
        await world.queue.settle([world.settlement(claim, Interrupted())])
        assert await world.queue.holds() == {ALONE: 1}
        assert not {node: share for node, share in (await world.queue.assigned(now=world.now)).items() if share.due}

    @scenario
    async def test_the_next_in_line_follows_one_that_was_held_for_something_else(self, world: World) -> None:
        first, second = await in_line(world, assignee="a")
        assert await world.queue.unassign("a", 10) == 1
        assert (await world.stored(first)).hold == UNPLACED
        assert [claim.run.id for claim in await world.claim(node="a")] == [second.id]
