"""What every queue must do with the leases of claims: renew, take over, spare after an outage."""

from __future__ import annotations

from duly.model import Beat, BeatReply, Delivery, Interrupted, OutcomeKind, RunPolicy, State, shift
from duly.testing.conformance.world import LEASE, LOST, World, part, scenario


@part
class LeaseSuite:
    """Leases of claims: renewed while a node lives, taken over when they have expired."""

    # --- renew

    @scenario
    async def test_renewal_extends_where_the_fence_matches(self, world: World) -> None:
        await world.put(world.run(), world.run())
        mine, other = await world.claim()
        world.advance(10)
        renewal = await world.queue.renew([Beat(mine.run.id, mine.fence)], LEASE, now=world.now)
        assert renewal.replies == (BeatReply.KEPT,)
        world.advance(10)
        assert [claim.run.id for claim in await world.queue.reap(10, LEASE, now=world.now)] == [other.run.id]

    @scenario
    async def test_renewal_names_what_this_fence_no_longer_owns(self, world: World) -> None:
        await world.put(world.run(), world.run(), world.run())
        settled, reaped, kept = await world.claim()
        await world.settle(settled)
        await world.queue.renew([Beat(kept.run.id, kept.fence)], 60, now=world.now)
        world.advance(LEASE + 1)
        await world.queue.reap(10, LEASE, now=world.now)
        beats = [Beat(claim.run.id, claim.fence) for claim in (settled, reaped, kept)] + [Beat("0none", 1)]
        renewal = await world.queue.renew(beats, LEASE, now=world.now)
        assert renewal.replies == (BeatReply.LOST, BeatReply.LOST, BeatReply.KEPT, BeatReply.LOST)

    @scenario
    async def test_an_old_and_a_new_fence_of_one_run_have_replies_each(self, world: World) -> None:
        await world.put(world.run())
        [old] = await world.claim()
        assert await world.settle(old, Interrupted(began=False))
        [new] = await world.claim()
        for first, second in ((old, new), (new, old)):
            beats = [Beat(claim.run.id, claim.fence) for claim in (first, second)]
            replies = (await world.queue.renew(beats, LEASE, now=world.now)).replies
            assert [reply is BeatReply.KEPT for reply in replies] == [claim is new for claim in (first, second)]
        assert await world.queue.settle([world.settlement(old), world.settlement(new)]) == [False, True]
        assert await world.state(new.run) is State.COMPLETED

    @scenario
    async def test_an_expired_claim_that_nobody_took_is_renewed(self, world: World) -> None:
        await world.put(world.run())
        [claim] = await world.claim()
        world.advance(LEASE * 3)
        renewal = await world.queue.renew([Beat(claim.run.id, claim.fence)], LEASE, now=world.now)
        assert renewal.replies == (BeatReply.KEPT,)
        assert await world.queue.reap(10, LEASE, now=world.now) == []

    # --- reap

    @scenario
    async def test_an_expired_claim_is_taken_over_under_a_new_fence(self, world: World) -> None:
        await world.put(run := world.run())
        [claim] = await world.claim(node="vanished")
        world.advance(LEASE - 0.001)
        assert await world.queue.reap(10, LEASE, now=world.now) == []
        world.advance(0.001)
        [taken] = await world.queue.reap(10, LEASE, now=world.now)
        assert taken.fence > claim.fence
        assert (taken.run.node, taken.run.started_at) == ("vanished", claim.run.started_at)
        assert taken.expires_at == world.after(LEASE)
        assert await world.queue.reap(10, LEASE, now=world.now) == []
        await world.queue.settle([world.settlement(taken, LOST)])
        stored = await world.stored(run)
        assert (stored.state, stored.losses, stored.failures) == (State.QUEUED, 1, 0)
        [attempt] = await world.store.attempts(run.id)
        assert (attempt.node, attempt.outcome) == ("vanished", OutcomeKind.LOST)

    @scenario
    async def test_a_reaper_that_vanishes_is_reaped(self, world: World) -> None:
        await world.put(world.run())
        await world.claim()
        world.advance(LEASE)
        [first] = await world.queue.reap(10, LEASE, now=world.now)
        world.advance(LEASE)
        [second] = await world.queue.reap(10, LEASE, now=world.now)
        assert second.fence > first.fence
        assert await world.queue.settle([world.settlement(first, LOST)]) == [False]

    @scenario
    async def test_at_most_once_ends_as_lost(self, world: World) -> None:
        await world.put(run := world.run(policy=RunPolicy(delivery=Delivery.AT_MOST_ONCE)))
        await world.claim()
        world.advance(LEASE)
        [taken] = await world.queue.reap(10, LEASE, now=world.now)
        await world.queue.settle([world.settlement(taken, LOST)])
        assert await world.state(run) is State.LOST

    @scenario
    async def test_the_longest_expired_is_reaped_first(self, world: World) -> None:
        await world.put(*[world.run() for _ in range(3)])
        [first] = await world.claim(1, lease=30)
        [second] = await world.claim(1, lease=10)
        [third] = await world.claim(1, lease=20)
        world.advance(60)
        taken = await world.queue.reap(2, LEASE, now=world.now)
        assert [claim.run.id for claim in taken] == [second.run.id, third.run.id]
        assert [claim.run.id for claim in await world.queue.reap(2, LEASE, now=world.now)] == [first.run.id]

    @scenario
    async def test_after_silence_nothing_is_reaped_for_one_lease(self, world: World) -> None:
        await world.put(world.run())
        [claim] = await world.claim(node="other")
        await world.queue.renew([Beat(claim.run.id, claim.fence)], LEASE, now=world.now)
        last = world.now
        world.advance(LEASE * 2)
        renewal = await world.queue.renew([], LEASE, LEASE * 2 / 3, now=world.now)
        assert renewal.silent_since == last
        assert await world.queue.reap(10, LEASE, now=world.now) == []
        world.advance(LEASE / 2)
        renewal = await world.queue.renew([], LEASE, LEASE * 2 / 3, now=world.now)
        assert renewal.silent_since is None
        assert await world.queue.reap(10, LEASE, now=world.now) == []
        world.advance(LEASE / 2)
        assert len(await world.queue.reap(10, LEASE, now=world.now)) == 1

    @scenario
    async def test_who_reaps_in_silence_comes_too_late(self, world: World) -> None:
        """No node has sent a heartbeat, not even the caller's own: the store was away, which delayed this call too."""
        await world.put(world.run())
        await world.claim()
        await world.queue.renew([], LEASE, now=world.now)
        world.advance(LEASE * 2)
        assert await world.queue.reap(10, LEASE, LEASE * 2 / 3, now=world.now) == []
        await world.queue.renew([], LEASE, now=world.now)
        assert len(await world.queue.reap(10, LEASE, LEASE * 2 / 3, now=world.now)) == 1

    @scenario
    async def test_there_is_no_amnesty_while_somebody_beats(self, world: World) -> None:
        await world.put(world.run())
        await world.claim(node="vanished")
        for _ in range(4):
            world.advance(LEASE / 2)
            await world.queue.renew([], LEASE, LEASE * 2 / 3, now=world.now)
        assert len(await world.queue.reap(10, LEASE, LEASE * 2 / 3, now=world.now)) == 1

    @scenario
    async def test_who_has_just_started_leaves_the_others_time_to_renew(self, world: World) -> None:
        """After an outage a new node may be the first to reach the store: surviving nodes come a little later."""
        await world.put(world.run())
        [claim] = await world.claim(node="lives")
        await world.queue.renew([Beat(claim.run.id, claim.fence)], LEASE, LEASE * 2 / 3, now=world.now)
        world.advance(LEASE * 2)
        assert await world.queue.reap(10, LEASE, LEASE * 2 / 3, now=world.now) == []
        for _ in range(3):  # newcomers, one after the other
            await world.queue.renew([], LEASE, LEASE * 2 / 3, now=world.now)
            assert await world.queue.reap(10, LEASE, LEASE * 2 / 3, now=world.now) == []
            world.advance(LEASE / 4)
        renewal = await world.queue.renew([Beat(claim.run.id, claim.fence)], LEASE, LEASE * 2 / 3, now=world.now)
        assert renewal.replies == (BeatReply.KEPT,)
        world.advance(LEASE / 2)
        await world.queue.renew([], LEASE, LEASE * 2 / 3, now=world.now)
        assert await world.queue.reap(10, LEASE, LEASE * 2 / 3, now=world.now) == []

    @scenario
    async def test_an_amnesty_does_not_outlast_a_clock_that_goes_back(self, world: World) -> None:
        await world.put(world.run())
        await world.claim(node="vanished")
        await world.queue.renew([], LEASE, LEASE * 2 / 3, now=world.now)
        await world.queue.renew([], LEASE, LEASE * 2 / 3, now=world.after(600))
        await world.queue.renew([], LEASE, LEASE * 2 / 3, now=world.advance(1))
        for _ in range(4):
            world.advance(LEASE / 2)
            await world.queue.renew([], LEASE, LEASE * 2 / 3, now=world.now)
        assert len(await world.queue.reap(10, LEASE, LEASE * 2 / 3, now=world.now)) == 1

    @scenario
    async def test_a_renewal_that_does_not_ask_for_silence_begins_no_amnesty(self, world: World) -> None:
        await world.put(world.run())
        await world.claim(node="vanished")
        await world.queue.renew([], LEASE, now=world.now)
        world.advance(LEASE * 2)
        await world.queue.renew([], LEASE, now=world.now)
        assert len(await world.queue.reap(10, LEASE, LEASE * 2 / 3, now=world.now)) == 1

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

    # --- late and repeated calls

    @scenario
    async def test_a_stale_settlement_changes_nothing(self, world: World) -> None:
        await world.put(run := world.run())
        [late] = await world.claim(node="late")
        world.advance(LEASE + 1)
        [taken] = await world.queue.reap(10, LEASE, now=world.now)
        await world.queue.settle([world.settlement(taken, LOST)])
        [current] = await world.claim(node="current")
        before = await world.stored(run)
        assert await world.queue.settle([world.settlement(late)]) == [False]
        assert await world.stored(run) == before
        assert await world.settle(current)
        assert await world.queue.settle([world.settlement(late)]) == [False]
        assert (await world.stored(run)).fence == current.fence

    @scenario
    async def test_a_repeated_request_does_not_hand_out_the_reapers_fence(self, world: World) -> None:
        await world.put(world.run())
        [claim] = await world.claim(node="paused", request=7)
        world.advance(LEASE)
        [taken] = await world.queue.reap(10, LEASE, now=world.now)
        assert taken.fence > claim.fence
        assert await world.claim(node="paused", request=7) == []
