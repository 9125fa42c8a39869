"""Suspects: runs that are held after a settlement, and lent one at a time to the node that takes them from there."""

from __future__ import annotations

from duly.model import (
    Assignment,
    Beat,
    CancelReply,
    Claim,
    Interrupted,
    JobChange,
    Lost,
    OutcomeKind,
    Pause,
    Run,
    State,
    WhenFull,
    shift,
)
from duly.model.holds import ALONE, UNPLACED
from duly.testing.conformance.world import LEASE, World, failed, scenario

_REQUEST = 1_000


async def _suspect(world: World, run: Run | None = None) -> Run:
    """A run whose worker vanished twice: the third time would be the last."""
    await world.put(run := run or world.run())
    for _ in range(2):
        assert len(await world.claim(node="vanished")) == 1
        world.advance(LEASE)
        [taken] = await world.queue.reap(10, LEASE, now=world.now)
        await world.queue.settle([world.settlement(taken, Lost())])
    return run


async def _take(world: World, run: Run, node: str = "node-1", request: int = _REQUEST) -> Claim | None:
    return await world.queue.claim_held(ALONE, run.id, node, LEASE, request, now=world.now)


class SuspectSuite:
    """A settlement may hold a run; `held` shows it, `claim_held` lends it, and no claim does."""

    @scenario
    async def test_a_settlement_with_a_hold_keeps_a_run_out_of_claims(self, world: World) -> None:
        run = await _suspect(world)
        stored = await world.stored(run)
        assert (stored.state, stored.hold, stored.losses) == (State.PENDING, ALONE, 2)
        assert await world.queue.holds() == {ALONE: 1}
        assert await world.claim() == []
        assert await world.queue.held(ALONE, 10, now=world.now) == [stored]
        assert await world.queue.held(UNPLACED, 10, now=world.now) == []

    @scenario
    async def test_who_takes_it_has_it_alone(self, world: World) -> None:
        run = await _suspect(world)
        before = (await world.stored(run)).fence
        claim = await _take(world, run, "brave")
        assert claim is not None
        assert claim.fence > before
        assert (claim.run.state, claim.run.node, claim.run.losses, claim.run.hold) == (State.RUNNING, "brave", 2, None)
        assert (claim.run.started_at, claim.expires_at) == (world.now, shift(world.now, LEASE))
        assert await world.stored(run) == claim.run
        assert await world.queue.holds() == {}
        assert await _take(world, run, "late", _REQUEST + 1) is None
        renewal = await world.queue.renew([Beat(run.id, claim.fence)], LEASE, now=world.now)
        assert [reply.value for reply in renewal.replies] == ["kept"]
        assert await world.settle(claim)
        assert await world.state(run) is State.COMPLETED
        outcomes = [attempt.outcome for attempt in await world.store.attempts(run.id)]
        assert outcomes == [OutcomeKind.LOST, OutcomeKind.LOST, OutcomeKind.SUCCEEDED]

    @scenario
    async def test_a_repeated_taking_gives_the_same_claim_while_it_runs(self, world: World) -> None:
        run = await _suspect(world)
        first = await _take(world, run)
        world.advance(1)
        assert await _take(world, run) == first
        assert first is not None
        assert await world.settle(first)
        assert await _take(world, run) is None

    @scenario
    async def test_what_may_not_start_is_not_taken(self, world: World) -> None:
        await world.create(record := world.record("mail"))
        run = await _suspect(world, world.run("mail"))
        await world.store.pause("default")
        assert await _take(world, run) is None
        await world.store.resume("default")
        paused = world.record("mail", revision=record.revision + 1, uid=record.uid, paused=Pause(world.now))
        [saved] = await world.store.save([JobChange(paused, record.revision)], now=world.now)
        assert saved is not None
        assert await _take(world, run) is None
        assert (await world.stored(run)).hold == ALONE
        assert await world.queue.claim_held("other", run.id, "node-1", LEASE, _REQUEST, now=world.now) is None
        assert await world.queue.claim_held(ALONE, "0none", "node-1", LEASE, _REQUEST, now=world.now) is None

    @scenario
    async def test_it_is_not_taken_before_its_time(self, world: World) -> None:
        run = await _suspect(world)
        claim = await _take(world, run)
        assert claim is not None
        await world.queue.settle([world.settlement(claim, failed(delay=30))])
        stored = await world.stored(run)
        assert (stored.hold, stored.ready_at) == (ALONE, shift(world.now, 30))
        assert await _take(world, run, request=_REQUEST + 1) is None
        world.advance(30)
        assert await _take(world, run, request=_REQUEST + 2) is not None

    @scenario
    async def test_it_keeps_its_place_in_its_group(self, world: World) -> None:
        run = await _suspect(world, world.run(group="g", when_full=WhenFull.QUEUE))
        await world.put(behind := world.run(group="g", when_full=WhenFull.QUEUE))
        assert await world.claim() == []
        claim = await _take(world, run)
        assert claim is not None
        assert claim.run.member
        assert await world.claim() == []
        assert await world.settle(claim)
        assert [each.run.id for each in await world.claim()] == [behind.id]

    @scenario
    async def test_a_run_before_its_group_is_not_taken(self, world: World) -> None:
        await world.put(run := world.run(group="g", hold=ALONE))
        assert await _take(world, run) is None
        assert (await world.stored(run)).hold == ALONE

    @scenario
    async def test_a_wish_to_cancel_ends_it(self, world: World) -> None:
        run, asked = await _suspect(world), await _suspect(world)
        assert await world.store.cancel([run.id], "enough", now=world.now) == [CancelReply.DONE]
        claim = await _take(world, asked)
        assert claim is not None
        assert await world.store.cancel([asked.id], "enough", now=world.now) == [CancelReply.REQUESTED]
        await world.queue.settle([world.settlement(claim, Interrupted())])
        for each in (run, asked):
            stored = await world.stored(each)
            assert (stored.state, stored.reason, stored.hold) == (State.CANCELLED, "enough", None)
        assert await world.queue.holds() == {}

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
        claim = await _take(world, run)
        assert claim is not None
        await world.queue.settle([world.settlement(claim, Interrupted())])
        assert await world.queue.holds() == {ALONE: 1}
        assert not {node: share for node, share in (await world.queue.assigned(now=world.now)).items() if share.due}

    @scenario
    async def test_reaping_tells_when_the_lost_claim_expired(self, world: World) -> None:
        await world.put(world.run())
        [claim] = await world.claim(node="vanished")
        world.advance(4)
        await world.queue.renew([Beat(claim.run.id, claim.fence)], LEASE, now=world.now)
        lapsed = shift(world.now, LEASE)
        world.advance(10 * LEASE)
        [taken] = await world.queue.reap(10, LEASE, now=world.now)
        assert (taken.run.started_at, taken.run.expires_at) == (claim.run.started_at, lapsed)
        assert taken.expires_at == shift(world.now, LEASE)
        assert (await world.stored(taken.run)).expires_at == taken.expires_at

    @scenario
    async def test_only_a_loss_alone_fails_a_run(self, world: World) -> None:
        run = await _suspect(world)
        for request, alone in enumerate((False, True), _REQUEST):
            assert await _take(world, run, request=request) is not None
            world.advance(LEASE)
            [taken] = await world.queue.reap(10, LEASE, now=world.now)
            await world.queue.settle([world.settlement(taken, Lost(alone=alone))])
        stored = await world.stored(run)
        assert (stored.state, stored.losses) == (State.FAILED, 4)
        assert stored.reason == "its worker vanished 4 times, the last time with no other run on it"
