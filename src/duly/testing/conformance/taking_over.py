"""What every queue must do with the claims of a process that has certainly ended."""

from __future__ import annotations

from duly.model import Beat, BeatReply, Delivery, EndedProcess, OutcomeKind, RunPolicy, State
from duly.testing.conformance.world import LEASE, LOST, World, part, scenario

# Requests are numbered in microseconds since 1970: these are of two processes that started one after the other.
_OLD, _NEW = 1_790_000_000_000_000, 1_790_000_060_000_000
_ENDED = EndedProcess("web-1", _OLD, _NEW - 1, "killed by SIGKILL")
_MANY, _SOME = 2_500, 500


@part
class TakingOverSuite:
    """Claims are taken over before they expire, if their process has ended."""

    @scenario
    async def test_claims_of_an_ended_process_are_taken_over_at_once(self, world: World) -> None:
        await world.put(run := world.run())
        [claim] = await world.claim(node="web-1", request=_OLD + 1)
        world.advance(1)
        [taken] = await world.queue.take_over(_ENDED, 10, LEASE, now=world.now)
        assert taken.fence > claim.fence
        assert (taken.run.id, taken.run.node, taken.run.started_at) == (run.id, "web-1", claim.run.started_at)
        assert (taken.run.expires_at, taken.expires_at) == (claim.expires_at, world.after(LEASE))
        assert await world.queue.settle([world.settlement(claim)]) == [False]
        await world.queue.settle([world.settlement(taken, LOST)])
        stored = await world.stored(run)
        assert (stored.state, stored.losses, stored.failures) == (State.QUEUED, 1, 0)
        [attempt] = await world.store.attempts(run.id)
        assert (attempt.node, attempt.outcome) == ("web-1", OutcomeKind.LOST)

    @scenario
    async def test_claims_of_other_processes_stay(self, world: World) -> None:
        await world.put(*[world.run() for _ in range(5)])
        [old] = await world.claim(1, node="web-1", request=_OLD)
        [last] = await world.claim(1, node="web-1", request=_NEW - 1)
        [newer] = await world.claim(1, node="web-1", request=_NEW)
        [other] = await world.claim(1, node="web-2", request=_OLD + 1)
        [older] = await world.claim(1, node="web-1", request=_OLD - 1)
        taken = await world.queue.take_over(_ENDED, 10, LEASE, now=world.now)
        assert {claim.run.id for claim in taken} == {old.run.id, last.run.id}
        beats = [Beat(claim.run.id, claim.fence) for claim in (newer, other, older, old, last)]
        kept, lost = BeatReply.KEPT, BeatReply.LOST
        assert (await world.queue.renew(beats, LEASE, now=world.now)).replies == (kept, kept, kept, lost, lost)

    @scenario
    async def test_a_repeat_takes_what_is_left(self, world: World) -> None:
        await world.put(*[world.run() for _ in range(3)])
        [late] = await world.claim(1, lease=30, node="web-1", request=_OLD + 1)
        [first] = await world.claim(1, lease=10, node="web-1", request=_OLD + 2)
        [second] = await world.claim(1, lease=20, node="web-1", request=_OLD + 3)
        taken = await world.queue.take_over(_ENDED, 2, LEASE, now=world.now)
        assert [claim.run.id for claim in taken] == [first.run.id, second.run.id]
        [rest] = await world.queue.take_over(_ENDED, 2, LEASE, now=world.now)
        assert rest.run.id == late.run.id
        assert await world.queue.take_over(_ENDED, 2, LEASE, now=world.now) == []

    @scenario
    async def test_all_claims_of_a_large_process_are_taken_over(self, world: World) -> None:
        await world.put(*[world.run() for _ in range(_MANY)])
        claims = [
            claim
            for number in range(_MANY // _SOME)
            for claim in await world.claim(_SOME, node="web-1", request=_OLD + number)
        ]
        taken: list[str] = []
        while some := await world.queue.take_over(_ENDED, _MANY, LEASE, now=world.now):
            taken += [claim.run.id for claim in some]
        assert sorted(taken) == sorted(claim.run.id for claim in claims)
        assert len(taken) == _MANY

    @scenario
    async def test_a_claim_that_arrives_after_the_end_is_found_by_the_next_call(self, world: World) -> None:
        await world.put(world.run())
        assert await world.queue.take_over(_ENDED, 10, LEASE, now=world.now) == []
        [claim] = await world.claim(node="web-1", request=_OLD + 7)
        [taken] = await world.queue.take_over(_ENDED, 10, LEASE, now=world.now)
        assert taken.run.id == claim.run.id

    @scenario
    async def test_a_repeated_request_of_the_ended_process_returns_nothing_of_it(self, world: World) -> None:
        await world.put(world.run())
        await world.claim(node="web-1", request=_OLD + 1)
        await world.queue.take_over(_ENDED, 10, LEASE, now=world.now)
        assert await world.claim(node="web-1", request=_OLD + 1) == []

    @scenario
    async def test_a_settled_run_is_not_taken_over(self, world: World) -> None:
        await world.put(run := world.run())
        [claim] = await world.claim(node="web-1", request=_OLD + 1)
        assert await world.settle(claim)
        assert await world.queue.take_over(_ENDED, 10, LEASE, now=world.now) == []
        assert await world.state(run) is State.COMPLETED

    @scenario
    async def test_neither_an_amnesty_nor_a_silence_prevents_it(self, world: World) -> None:
        await world.put(world.run())
        await world.queue.renew([], LEASE, now=world.now)
        [claim] = await world.claim(node="web-1", request=_OLD + 1)
        world.advance(10 * LEASE)
        await world.queue.renew([], LEASE, LEASE * 2 / 3, now=world.now)
        assert await world.queue.reap(10, LEASE, LEASE * 2 / 3, now=world.now) == []
        [taken] = await world.queue.take_over(_ENDED, 10, LEASE, now=world.now)
        assert taken.run.id == claim.run.id

    @scenario
    async def test_one_who_takes_over_and_vanishes_is_reaped(self, world: World) -> None:
        await world.put(world.run())
        await world.claim(node="web-1", request=_OLD + 1)
        [first] = await world.queue.take_over(_ENDED, 10, LEASE, now=world.now)
        world.advance(LEASE)
        [second] = await world.queue.reap(10, LEASE, now=world.now)
        assert second.fence > first.fence
        assert await world.queue.settle([world.settlement(first, LOST)]) == [False]

    @scenario
    async def test_at_most_once_ends_as_lost_when_its_process_ends(self, world: World) -> None:
        await world.put(run := world.run(policy=RunPolicy(delivery=Delivery.AT_MOST_ONCE)))
        await world.claim(node="web-1", request=_OLD + 1)
        [taken] = await world.queue.take_over(_ENDED, 10, LEASE, now=world.now)
        await world.queue.settle([world.settlement(taken, LOST)])
        assert await world.state(run) is State.LOST

    @scenario
    async def test_two_processes_of_one_node_may_claim_at_the_same_time(self, world: World) -> None:
        """A new process claims before the old one has stopped: requests of the old one are still answered."""
        await world.put(*[world.run() for _ in range(2)])
        [new] = await world.claim(1, node="web-1", request=_NEW + 1)
        [old] = await world.claim(1, node="web-1", request=_OLD + 5)
        assert old.run.id != new.run.id
        [again] = await world.claim(1, node="web-1", request=_OLD + 5)
        assert (again.run.id, again.fence) == (old.run.id, old.fence)
