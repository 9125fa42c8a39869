"""What every store must do for operators: cancel, redrive, purge."""

from __future__ import annotations

from duly.model import Beat, BeatReply, Cancelled, CancelReply, Progress, RedriveReply, RetrySpec, RunPolicy, State
from duly.testing.conformance.world import LEASE, World, failed, part, scenario


@part
class OperatingSuite:
    """What operators do to runs: cancel, redrive, purge."""

    # --- cancel

    @scenario
    async def test_cancelling_answers_for_each(self, world: World) -> None:
        await world.put(waiting := world.run(delay=60), running := world.run(), ended := world.run(priority=9))
        first, _ = await world.claim()
        assert first.run.id == ended.id
        await world.settle(first)
        replies = await world.store.cancel([waiting.id, running.id, ended.id, "0none"], "by ada", now=world.now)
        assert replies == [
            CancelReply.DONE,
            CancelReply.REQUESTED,
            CancelReply.TOO_LATE,
            CancelReply.UNKNOWN,
        ]
        stored = await world.stored(waiting)
        assert (stored.state, stored.reason, stored.finished_at) == (State.CANCELLED, "by ada", world.now)
        assert await world.state(running) is State.RUNNING
        world.advance(100)
        assert await world.claim() == []

    @scenario
    async def test_renewal_carries_progress_and_names_the_cancelled(self, world: World) -> None:
        await world.put(run := world.run())
        [claim] = await world.claim()
        beat = Beat(run.id, claim.fence, Progress(3, 10, "rows"))
        assert (await world.queue.renew([beat], LEASE, now=world.now)).replies == (BeatReply.KEPT,)
        assert (await world.stored(run)).progress == Progress(3, 10, "rows")
        assert await world.store.cancel([run.id], now=world.now) == [CancelReply.REQUESTED]
        without = Beat(run.id, claim.fence)
        assert (await world.queue.renew([without], LEASE, now=world.now)).replies == (BeatReply.CANCEL,)
        assert (await world.stored(run)).progress == Progress(3, 10, "rows")

    @scenario
    async def test_a_run_to_be_cancelled_is_not_retried(self, world: World) -> None:
        await world.put(run := world.run())
        [claim] = await world.claim()
        await world.store.cancel([run.id], "by ada", now=world.now)
        assert await world.settle(claim, failed())
        stored = await world.stored(run)
        assert (stored.state, stored.reason) == (State.CANCELLED, "by ada")

    @scenario
    async def test_a_retry_that_becomes_a_cancellation_has_the_times_of_the_settlement(self, world: World) -> None:
        await world.put(run := world.run())
        [claim] = await world.claim()
        await world.store.cancel([run.id], "by ada", now=world.now)
        world.advance(2)
        assert await world.settle(claim, failed(delay=30))
        stored = await world.stored(run)
        assert (stored.state, stored.failures) == (State.CANCELLED, 1)
        assert (stored.ready_at, stored.finished_at) == (world.after(30), world.now)

    @scenario
    async def test_a_cancelled_outcome_ends_the_run(self, world: World) -> None:
        await world.put(run := world.run())
        [claim] = await world.claim()
        await world.store.cancel([run.id], "by ada", now=world.now)
        assert await world.settle(claim, Cancelled())
        stored = await world.stored(run)
        assert (stored.state, stored.reason) == (State.CANCELLED, "by ada")

    # --- redrive

    @scenario
    async def test_redriving_runs_again_under_the_same_id(self, world: World) -> None:
        await world.put(run := world.run(policy=RunPolicy(retry=RetrySpec(max_retries=0))))
        [claim] = await world.claim()
        await world.settle(claim, failed())
        assert await world.state(run) is State.FAILED
        world.advance(100)
        assert await world.store.redrive([run.id, "0none"], now=world.now) == [
            RedriveReply.DONE,
            RedriveReply.UNKNOWN,
        ]
        [again] = await world.claim()
        assert (again.run.id, again.run.failures, again.run.due) == (run.id, 0, run.due)
        await world.settle(again)
        attempts = await world.store.attempts(run.id)
        assert [attempt.outcome.value for attempt in attempts] == ["failed", "succeeded"]
        assert await world.store.redrive([run.id], now=world.now) == [RedriveReply.NOT_ENDED]

    @scenario
    async def test_a_redriven_run_shows_its_last_attempt_until_the_next(self, world: World) -> None:
        await world.put(run := world.run(policy=RunPolicy(retry=RetrySpec(max_retries=0))))
        [claim] = await world.claim(node="n1")
        await world.queue.renew([Beat(run.id, claim.fence, Progress(1, 2, "rows"))], LEASE, now=world.now)
        await world.settle(claim, failed())
        world.advance(100)
        await world.store.redrive([run.id], now=world.now)
        again = await world.stored(run)
        assert (again.state, again.ready_at, again.reason, again.finished_at) == (State.QUEUED, world.now, None, None)
        assert (again.node, again.started_at) == ("n1", claim.run.started_at)
        assert (again.progress, again.failure is None, again.fence) == (Progress(1, 2, "rows"), False, claim.fence)
        [second] = await world.claim(node="n2")
        assert (second.run.node, second.run.progress) == ("n2", None)

    @scenario
    async def test_only_what_ended_unwell_is_redriven(self, world: World) -> None:
        await world.put(waiting := world.run(), cancelled := world.run(priority=9))
        await world.store.cancel([cancelled.id], now=world.now)
        assert await world.store.redrive([waiting.id, cancelled.id], now=world.now) == [
            RedriveReply.NOT_ENDED,
            RedriveReply.DONE,
        ]
        first, second = await world.claim()
        assert (first.run.id, second.run.id) == (cancelled.id, waiting.id)

    @scenario
    async def test_a_redriven_run_respects_its_dedupe_key(self, world: World) -> None:
        await world.put(first := world.run(dedupe_key="k"))
        await world.store.cancel([first.id], now=world.now)
        await world.put(second := world.run(dedupe_key="k"))
        assert await world.store.redrive([first.id], now=world.now) == [RedriveReply.DUPLICATE]
        await world.store.cancel([second.id], now=world.now)
        assert await world.store.redrive([first.id], now=world.now) == [RedriveReply.DONE]
        assert not (await world.put(world.run(dedupe_key="k")))[0].created

    @scenario
    async def test_a_run_is_redriven_with_another_payload(self, world: World) -> None:
        """Payloads of every length that a store may write in another form, and runs of every kind."""
        sizes = (2, 200, 300, 70_000)
        runs = [world.run(payload=b'"%s"' % (b"a" * size)) for size in sizes]
        trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        runs += [
            world.run(payload=b'"%s"' % (b"a" * size), dedupe_key=f"k{size}", group=f"g{size}", headers=trace)
            for size in sizes
        ]
        await world.put(*runs)
        ids = [run.id for run in runs]
        for size in (*reversed(sizes), 0):
            await world.store.cancel(ids, now=world.now)
            payload = b'"%s"' % (b"b" * size)
            done = [RedriveReply.DONE] * len(runs)
            assert await world.store.redrive(ids, payload=payload, now=world.now) == done
            for run in runs:
                stored = await world.stored(run)
                kept = (stored.job, stored.dedupe_key, stored.group, stored.headers, stored.due, stored.uid)
                assert kept == (run.job, run.dedupe_key, run.group, run.headers, run.due, run.uid)
                assert (stored.payload, stored.policy) == (payload, run.policy)
        await world.queue.promote(100, now=world.now)
        claims = await world.claim(100)
        assert {claim.run.id: claim.run.payload for claim in claims} == dict.fromkeys(ids, b'""')

    @scenario
    async def test_a_payload_is_replaced_only_where_the_run_is_redriven(self, world: World) -> None:
        await world.put(waiting := world.run(payload=b"1"), ended := world.run(payload=b"2", priority=9))
        [claim] = await world.claim(1)
        await world.settle(claim)
        replies = await world.store.redrive([waiting.id, ended.id], payload=b"3", now=world.now)
        assert replies == [RedriveReply.NOT_ENDED] * 2
        assert [(await world.stored(run)).payload for run in (waiting, ended)] == [b"1", b"2"]

    # --- purge

    @scenario
    async def test_purging_goes_by_state_age_and_number(self, world: World) -> None:
        ended: list[str] = []
        for _ in range(6):
            await world.put(run := world.run())
            [claim] = await world.claim()
            await world.settle(claim)
            ended.append(run.id)
            world.advance(10)
        await world.put(waiting := world.run(delay=-1000))
        assert await world.store.purge(State.FAILED, world.after(1), 0, 100) == 0
        assert await world.store.purge(State.COMPLETED, world.after(-45), None, 100) == 2
        assert await world.store.purge(State.COMPLETED, world.after(-45), None, 100) == 0
        assert await world.store.purge(State.COMPLETED, None, 2, 1) == 1
        assert await world.store.purge(State.COMPLETED, None, 2, 100) == 1
        assert await world.store.purge(State.COMPLETED, None, 2, 100) == 0
        left = [await world.state(run_id) is not None for run_id in ended]
        assert left == [False, False, False, False, True, True]
        assert await world.state(waiting) is State.QUEUED
        assert await world.store.purge(State.COMPLETED, None, 0, 100) == 2

    @scenario
    async def test_purging_takes_the_attempts_too(self, world: World) -> None:
        await world.put(run := world.run(policy=RunPolicy(retry=RetrySpec(max_retries=0))))
        [claim] = await world.claim()
        await world.settle(claim, failed())
        assert len(await world.store.attempts(run.id)) == 1
        assert await world.store.purge(State.FAILED, world.after(1), None, 10) == 1
        assert await world.store.attempts(run.id) == []
