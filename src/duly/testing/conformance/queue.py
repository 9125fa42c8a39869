"""What every queue must do: the hot path of a run."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from duly.model import Delivery, Interrupted, OutcomeKind, Run, RunPolicy, State, WhenFull
from duly.ports import Order
from duly.testing.conformance.world import LEASE, World, failed, part, scenario


@part
class QueueSuite:
    """The hot path of a run: put, promoted, claimed, settled."""

    # --- put

    @scenario
    async def test_a_ready_run_is_queued_and_a_later_one_pending(self, world: World) -> None:
        ready, later = world.run(), world.run(delay=60)
        answers = await world.put(ready, later)
        assert [(put.id, put.created) for put in answers] == [(ready.id, True), (later.id, True)]
        assert await world.state(ready) is State.QUEUED
        assert await world.state(later) is State.PENDING
        assert (await world.stored(ready)).created_at == world.now

    @scenario
    async def test_a_run_is_stored_as_it_was_put(self, world: World) -> None:
        run = world.run(
            payload=b'{"to":"ada@example.org"}',
            uid="0uid",
            revision=7,
            queue="mail",
            priority=9,
            policy=RunPolicy(timeout=2.5, delivery=Delivery.AT_MOST_ONCE),
            dedupe_key="welcome-ada",
            headers={"traceparent": "00-ab-cd-01"},
            group="g",
            limit=3,
            when_full=WhenFull.QUEUE,
        )
        await world.put(run)
        stored = await world.stored(run)
        assert replace(stored, created_at=None, state=State.PENDING) == run

    @scenario
    async def test_instants_keep_their_microseconds(self, world: World) -> None:
        due = world.now.replace(microsecond=123457) + timedelta(seconds=5)
        run = world.run(due=due, ready_at=due + timedelta(microseconds=1))
        await world.put(run)
        stored = await world.stored(run)
        assert (stored.due, stored.ready_at) == (run.due, run.ready_at)

    @scenario
    async def test_the_same_id_is_put_once(self, world: World) -> None:
        run = world.run()
        await world.put(run)
        twice = await world.put(replace(run, payload=b'{"other":1}'), run)
        assert [(put.id, put.created) for put in twice] == [(run.id, False)] * 2
        assert len(await world.claim()) == 1
        assert (await world.stored(run)).payload == run.payload

    @scenario
    async def test_a_dedupe_key_returns_the_unfinished_run(self, world: World) -> None:
        first = world.run(dedupe_key="k")
        await world.put(first)
        [again] = await world.put(world.run(dedupe_key="k"))
        assert (again.id, again.created) == (first.id, False)

    @scenario
    async def test_a_dedupe_key_holds_inside_one_batch(self, world: World) -> None:
        runs = [world.run(dedupe_key="k") for _ in range(3)]
        answers = await world.put(*runs)
        assert [(put.id, put.created) for put in answers] == [
            (runs[0].id, True),
            (runs[0].id, False),
            (runs[0].id, False),
        ]

    @scenario
    async def test_a_dedupe_key_belongs_to_one_handler(self, world: World) -> None:
        answers = await world.put(world.run("mail", dedupe_key="k"), world.run("sms", dedupe_key="k"))
        assert [put.created for put in answers] == [True, True]

    @scenario
    async def test_a_dedupe_key_is_kept_while_running_and_waiting_for_a_retry(self, world: World) -> None:
        await world.put(first := world.run(dedupe_key="k"))
        [claim] = await world.claim()
        assert not (await world.put(world.run(dedupe_key="k")))[0].created
        await world.settle(claim, failed())
        [again] = await world.put(world.run(dedupe_key="k"))
        assert (again.id, again.created) == (first.id, False)

    @scenario
    async def test_a_dedupe_key_is_free_once_the_run_has_ended(self, world: World) -> None:
        await world.put(world.run(dedupe_key="k"))
        [claim] = await world.claim()
        await world.settle(claim)
        [again] = await world.put(world.run(dedupe_key="k"))
        assert again.created

    @scenario
    async def test_many_runs_are_answered_in_order(self, world: World) -> None:
        runs = [world.run(dedupe_key=f"k{number % 700}" if number % 2 else None) for number in range(1500)]
        answers = await world.put(*runs)
        seen: dict[str, str] = {}
        for run, put in zip(runs, answers, strict=True):
            expected = run.id if run.dedupe_key is None else seen.setdefault(run.dedupe_key, run.id)
            assert (put.id, put.created) == (expected, expected == run.id)

    # --- promote

    @scenario
    async def test_promote_queues_what_is_ready_and_names_the_next(self, world: World) -> None:
        soon, later = world.run(delay=5), world.run(delay=9)
        await world.put(soon, later)
        assert await world.queue.promote(100, now=world.now) == (0, soon.ready_at)
        world.advance(5)
        looked_at, next_due = await world.queue.promote(100, now=world.now)
        assert next_due == later.ready_at
        assert looked_at <= 1
        assert await world.state(soon) is State.QUEUED

    @scenario
    async def test_promote_without_pending_runs_names_no_next(self, world: World) -> None:
        assert await world.queue.promote(100, now=world.now) == (0, None)

    # --- claim

    @scenario
    async def test_claims_carry_the_run_a_fence_and_an_expiry(self, world: World) -> None:
        await world.put(run := world.run(payload=b'{"n":1}'))
        [claim] = await world.claim(node="node-7", lease=20)
        assert claim.run.id == run.id
        assert claim.run.payload == run.payload
        assert claim.run.policy == run.policy
        assert claim.run.state is State.RUNNING
        assert (claim.run.node, claim.run.started_at) == ("node-7", world.now)
        assert claim.fence == claim.run.fence > 0
        assert claim.expires_at == world.after(20)
        stored = await world.stored(run)
        assert (stored.state, stored.fence, stored.node) == (State.RUNNING, claim.fence, "node-7")

    @scenario
    async def test_nothing_is_claimed_early(self, world: World) -> None:
        run = world.run(delay=1)
        await world.put(run)
        world.now = run.ready_at - timedelta(microseconds=1)
        assert await world.claim() == []
        world.now = run.ready_at
        assert [claim.run.id for claim in await world.claim()] == [run.id]

    @scenario
    async def test_a_claim_tells_the_next_due(self, world: World) -> None:
        await world.put(world.run(), later := world.run(delay=30))
        claimed = await world.queue.claim("n", None, None, 10, LEASE, 1, now=world.now)
        assert claimed.next_due == later.ready_at
        world.advance(30)
        claimed = await world.queue.claim("n", None, None, 10, LEASE, 2, now=world.now)
        assert [claim.run.id for claim in claimed.claims] == [later.id]
        assert claimed.next_due is None

    @scenario
    async def test_order_is_priority_then_ready_time_then_id(self, world: World) -> None:
        low_early = world.run(priority=0, delay=-9)
        high_late = world.run(priority=9, delay=-1)
        high_early = world.run(priority=9, delay=-5)
        middle = world.run(priority=5, delay=-3, queue="other")
        twins = [world.run(priority=5, delay=-2) for _ in range(3)]
        await world.put(low_early, twins[2], high_late, twins[0], high_early, middle, twins[1])
        claimed = [claim.run for claim in await world.claim()]
        expected = [high_early, high_late, middle, *twins, low_early]
        if world.backend.capabilities.order is Order.EXACT:
            assert [run.id for run in claimed] == [run.id for run in expected]
        else:
            assert {run.id for run in claimed} == {run.id for run in expected}

    @scenario
    async def test_order_holds_from_one_claim_to_the_next(self, world: World) -> None:
        runs = [world.run(priority=number % 10, delay=-number) for number in range(60)]
        await world.put(*runs)
        claimed: list[Run] = []
        for _ in range(12):
            claimed += [claim.run for claim in await world.claim(5)]
        expected = sorted(runs, key=lambda run: (-run.priority, run.ready_at, run.id))
        if world.backend.capabilities.order is Order.EXACT:
            assert [run.id for run in claimed] == [run.id for run in expected]
        assert len({run.id for run in claimed}) == 60

    @scenario
    async def test_a_retry_takes_its_place_by_its_new_time(self, world: World) -> None:
        await world.put(first := world.run(delay=-5))
        [claim] = await world.claim()
        await world.settle(claim, failed(delay=1.0))
        world.advance(10)
        await world.put(second := world.run(delay=-9.5))
        claimed = [claim.run.id for claim in await world.claim()]
        assert claimed == [second.id, first.id]

    @scenario
    async def test_a_run_is_claimed_once(self, world: World) -> None:
        await world.put(*[world.run() for _ in range(10)])
        first = await world.claim(6, node="a")
        second = await world.claim(6, node="b")
        assert (len(first), len(second)) == (6, 4)
        assert await world.claim(6, node="a") == []
        assert len({claim.run.id for claim in first + second}) == 10

    @scenario
    async def test_fences_grow_and_never_repeat(self, world: World) -> None:
        fences: list[int] = []
        for _ in range(3):
            await world.put(*[world.run() for _ in range(4)])
            for claim in await world.claim():
                fences.append(claim.fence)
                await world.settle(claim, failed(delay=0.0))
        fences += [claim.fence for claim in await world.claim()]
        assert fences == sorted(set(fences))
        assert max(fences) < 2**53  # a fence survives JSON in every language

    @scenario
    async def test_only_the_asked_queues_are_claimed(self, world: World) -> None:
        mail, sms = world.run(queue="mail"), world.run(queue="sms")
        await world.put(mail, sms)
        assert [claim.run.id for claim in await world.claim(queues=["sms"])] == [sms.id]
        assert await world.claim(queues=["sms"]) == []
        assert await world.claim(queues=[]) == []
        assert [claim.run.id for claim in await world.claim(queues=["sms", "mail"])] == [mail.id]

    @scenario
    async def test_a_repeated_request_returns_the_same_claims(self, world: World) -> None:
        await world.put(*[world.run() for _ in range(5)])
        first = await world.claim(3, request=41)
        again = await world.claim(3, request=41)
        assert sorted((claim.run.id, claim.fence) for claim in again) == sorted(
            (claim.run.id, claim.fence) for claim in first
        )
        assert len(await world.claim(3, request=42)) == 2

    @scenario
    async def test_a_repeated_request_leaves_out_what_is_settled(self, world: World) -> None:
        await world.put(world.run(), world.run())
        first, second = await world.claim(request=1)
        await world.settle(first)
        assert [claim.run.id for claim in await world.claim(request=1)] == [second.run.id]

    @scenario
    async def test_requests_of_different_nodes_are_different(self, world: World) -> None:
        await world.put(world.run(), world.run())
        [first] = await world.claim(1, node="a", request=1)
        [second] = await world.claim(1, node="b", request=1)
        assert first.run.id != second.run.id

    @scenario
    async def test_a_paused_queue_gives_nothing_until_it_is_resumed(self, world: World) -> None:
        await world.put(run := world.run(queue="mail"), other := world.run(queue="sms"))
        assert await world.store.pause("mail")
        assert not await world.store.pause("mail")
        assert [claim.run.id for claim in await world.claim()] == [other.id]
        assert await world.claim(queues=["mail"]) == []
        assert await world.store.resume("mail")
        assert not await world.store.resume("mail")
        assert [claim.run.id for claim in await world.claim()] == [run.id]

    @scenario
    async def test_an_older_request_still_returns_what_it_lent(self, world: World) -> None:
        await world.put(*[world.run() for _ in range(3)])
        [first] = await world.claim(1, request=1)
        await world.claim(1, request=2)
        again = await world.claim(5, request=1)
        assert [(claim.run.id, claim.fence) for claim in again] == [(first.run.id, first.fence)]

    # --- settle

    @scenario
    async def test_a_success_completes_the_run(self, world: World) -> None:
        await world.put(run := world.run())
        [claim] = await world.claim()
        world.advance(2)
        settlement = replace(world.settlement(claim), result=b'"done"')
        assert all(await world.queue.settle([settlement]))
        stored = await world.stored(run)
        assert (stored.state, stored.result, stored.finished_at) == (State.COMPLETED, b'"done"', world.now)
        assert stored.expires_at is None

    @scenario
    async def test_a_failure_waits_for_its_retry(self, world: World) -> None:
        await world.put(run := world.run())
        [claim] = await world.claim()
        assert await world.settle(claim, failed())
        stored = await world.stored(run)
        assert (stored.state, stored.failures, stored.ready_at) == (State.PENDING, 1, world.after(1))
        assert stored.due == run.due
        assert stored.failure is not None
        assert await world.claim() == []
        world.advance(1)
        [again] = await world.claim()
        assert (again.run.attempt, again.run.due) == (2, run.due)
        assert again.fence > claim.fence

    @scenario
    async def test_the_last_failure_ends_as_failed(self, world: World) -> None:
        await world.put(run := world.run())
        for _ in range(4):
            [claim] = await world.claim()
            await world.settle(claim, failed())
            world.advance(60)
        stored = await world.stored(run)
        assert (stored.state, stored.failures) == (State.FAILED, 4)
        attempts = await world.store.attempts(run.id)
        assert [attempt.number for attempt in attempts] == [1, 2, 3, 4]

    @scenario
    async def test_a_settlement_of_an_unknown_run_is_stale(self, world: World) -> None:
        await world.put(world.run())
        [claim] = await world.claim()
        unknown = replace(world.settlement(claim), run_id="0none")
        assert await world.queue.settle([unknown]) == [False]

    @scenario
    async def test_a_repeated_settlement_is_no_surprise(self, world: World) -> None:
        await world.put(done := world.run(), retried := world.run())
        first, second = await world.claim()
        settlements = [world.settlement(first), world.settlement(second, failed())]
        assert all(await world.queue.settle(settlements))
        assert all(await world.queue.settle(settlements))
        assert (await world.stored(done)).state is State.COMPLETED
        assert (await world.stored(retried)).failures == 1
        assert len(await world.store.attempts(retried.id)) == 1
        assert (await world.store.statistics())["mail"].run_count == 1

    @scenario
    async def test_stale_settlements_are_named_in_order_beside_those_that_applied(self, world: World) -> None:
        await world.put(*[world.run() for _ in range(6)])
        claims = await world.claim()
        settlements = [world.settlement(claim) for claim in claims]
        for index in (1, 4):
            settlements[index] = replace(settlements[index], fence=claims[index].fence - 1000)
        assert await world.queue.settle(settlements) == [True, False, True, True, False, True]
        states = [await world.state(claim.run.id) for claim in claims]
        assert [state is State.RUNNING for state in states] == [False, True, False, False, True, False]

    @scenario
    async def test_a_release_gives_the_run_back_uncounted(self, world: World) -> None:
        await world.put(run := world.run())
        [claim] = await world.claim()
        assert await world.settle(claim, Interrupted())
        [again] = await world.claim(node="node-2")
        assert (again.run.attempt, again.run.ready_at) == (1, run.ready_at)
        [attempt] = await world.store.attempts(run.id)
        assert attempt.outcome is OutcomeKind.INTERRUPTED

    @scenario
    async def test_a_release_before_the_start_leaves_no_trace(self, world: World) -> None:
        await world.put(run := world.run(policy=RunPolicy(delivery=Delivery.AT_MOST_ONCE)))
        [claim] = await world.claim()
        assert await world.settle(claim, Interrupted(began=False))
        assert await world.store.attempts(run.id) == []
        assert len(await world.claim()) == 1

    @scenario
    async def test_history_and_counters_tell_what_happened(self, world: World) -> None:
        await world.put(flaky := world.run("flaky"), fine := world.run("fine"))
        claims = {claim.run.job: claim for claim in await world.claim(node="n1")}
        world.advance(2)
        await world.settle(claims["fine"])
        await world.settle(claims["flaky"], failed())
        world.advance(30)
        [again] = await world.claim(node="n2")
        world.advance(1)
        await world.settle(again)
        attempts = await world.store.attempts(flaky.id)
        assert [(a.number, a.node, a.outcome) for a in attempts] == [
            (1, "n1", OutcomeKind.FAILED),
            (2, "n2", OutcomeKind.SUCCEEDED),
        ]
        assert attempts[0].failure is not None
        assert attempts[0].failure.message == "boom"
        [only] = await world.store.attempts(fine.id)
        assert (only.number, only.node, only.outcome) == (1, "n1", OutcomeKind.SUCCEEDED)
        assert (only.ended_at - only.started_at).total_seconds() == 2
        statistics = await world.store.statistics()
        assert statistics["flaky"].completed == 1
        assert statistics["flaky"].retried == 1
        assert statistics["flaky"].seconds == 3
        assert statistics["flaky"].last_outcome is OutcomeKind.SUCCEEDED
        assert statistics["fine"].last_run_at == only.started_at
        assert set(await world.store.statistics(["fine", "nobody"])) == {"fine"}

    # --- the same store

    @scenario
    async def test_a_session_sees_the_same_store(self, world: World) -> None:
        await world.put(run := world.run())
        async with world.backend.session() as other:
            assert (await other.store.run(run.id, now=world.now)) is not None
            claimed = await other.queue.claim("n", None, None, 1, 5, 1, now=world.now)
        assert [claim.run.id for claim in claimed.claims] == [run.id]
        assert await world.state(run) is State.RUNNING

    @scenario
    async def test_migrating_twice_changes_nothing(self, world: World) -> None:
        await world.put(run := world.run())
        assert await world.store.migrate() == []
        assert await world.state(run) is State.QUEUED
