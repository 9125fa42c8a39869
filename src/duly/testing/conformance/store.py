"""What every store must do: definitions, planning, records and their history, and the small things."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from duly.errors import ConfigurationError
from duly.model import (
    CancelReply,
    Cause,
    CommandSpec,
    CronSpec,
    CustomSpec,
    Fired,
    JobChange,
    JobRecord,
    JobSpec,
    Misfire,
    Origin,
    Overlap,
    Pause,
    RedriveReply,
    RetrySpec,
    RunPolicy,
    RunQuery,
    State,
    Waiting,
    WhenFull,
)
from duly.testing.conformance.world import NIGHTLY, World, failed, scenario


async def _planned(world: World, *, count: int = 3, name: str = "report") -> JobRecord:
    """A job with its next `count` instants, ten seconds apart, planned."""
    record = world.record(name)
    await world.create(record)
    epoch = await world.store.install("main", 1)
    instants = [world.after(10 * number) for number in range(1, count + 1)]
    firing = world.firing(record, instants, cursor=world.after(10 * (count + 1)))
    assert await world.store.fire([firing], "main", epoch, now=world.now) == [Fired.APPLIED]
    stored = await world.store.job(name)
    assert stored is not None
    return stored


class StoreSuite:
    """Saving, planning, looking up, operating, purging; logs, values, buckets."""

    # --- definitions

    @scenario
    async def test_a_job_is_stored_as_it_was_saved(self, world: World) -> None:
        spec = JobSpec(
            name="report",
            handler="build_report",
            schedule=replace(NIGHTLY, start_at=world.now, end_at=world.after(9e6), jitter=timedelta(seconds=3)),
            payload=b'{"region":"eu"}',
            queue="reports",
            priority=7,
            policy=RunPolicy(timeout=600, retry=RetrySpec(max_retries=5, strategy="linear")),
            overlap=Overlap.QUEUE,
            misfire=Misfire.ALL,
            max_runs=9,
            description="Build and mail the report.",
            tags=("daily", "eu"),
            command=CommandSpec(
                ("report", "--all"), shell=False, cwd="/", environment={"A": "ü"}, pass_environment=("HOME",)
            ),
        )
        record = world.record("report", spec=spec, origin=Origin.FILE, code_since=world.now, job_file="night")
        await world.create(record)
        assert await world.store.job("report") == record
        assert await world.store.jobs() == [record]
        assert await world.store.job("nobody") is None

    @scenario
    async def test_jobs_are_listed_by_name(self, world: World) -> None:
        await world.create(*[world.record(name) for name in ("b", "a", "c")])
        assert [record.name for record in await world.store.jobs()] == ["a", "b", "c"]
        assert [record.name for record in await world.store.jobs(["c", "nobody", "a"])] == ["a", "c"]
        assert await world.store.jobs([]) == []

    @scenario
    async def test_jobs_are_read_in_slices(self, world: World) -> None:
        await world.create(*[world.record(name) for name in ("b", "a", "C", "_d", "e")])
        names = [record.name for record in await world.store.jobs()]
        assert names == ["C", "_d", "a", "b", "e"]
        assert [record.name for record in await world.store.jobs(limit=2)] == names[:2]
        assert [record.name for record in await world.store.jobs(after="_d", limit=2)] == names[2:4]
        assert [record.name for record in await world.store.jobs(["e", "a", "C"], after="C", limit=1)] == ["a"]
        assert await world.store.jobs(after="e", limit=2) == []

    @scenario
    async def test_a_name_is_created_once(self, world: World) -> None:
        await world.create(record := world.record())
        twin = replace(record, uid=world.ids.new())
        assert await world.store.save([JobChange(twin, None)], now=world.now) == [None]
        assert await world.store.job(record.name) == record

    @scenario
    async def test_a_change_applies_to_the_revision_it_was_made_from(self, world: World) -> None:
        await world.create(record := world.record())
        second = replace(record, revision=2)
        assert await world.store.save([JobChange(second, 1)], now=world.now) == [second]
        assert await world.store.save([JobChange(second, 1)], now=world.now) == [None]
        assert await world.store.save([JobChange(replace(second, revision=4), 3)], now=world.now) == [None]
        assert await world.store.job(record.name) == second

    @scenario
    async def test_changes_are_answered_in_order(self, world: World) -> None:
        await world.create(world.record("a"))
        new, stale = world.record("b"), world.record("a")
        assert await world.store.save([JobChange(stale, None), JobChange(new, None)], now=world.now) == [None, new]

    @scenario
    async def test_a_change_keeps_the_cursor_that_the_planner_moved(self, world: World) -> None:
        read = world.record()
        await world.create(read)
        epoch = await world.store.install("main", 1)
        firing = world.firing(read, [world.after(10)], cursor=world.after(20))
        await world.store.fire([firing], "main", epoch, now=world.now)
        [saved] = await world.store.save([JobChange(replace(read, revision=2), 1)], now=world.now)
        assert saved is not None
        assert (saved.cursor, saved.plan_at, saved.planned) == (world.after(20), world.after(20), 1)
        assert await world.store.job(read.name) == saved

    @scenario
    async def test_a_change_may_move_the_cursor(self, world: World) -> None:
        record = await _planned(world)
        moved = replace(record, revision=2, cursor=world.after(500), plan_at=world.after(400))
        [saved] = await world.store.save([JobChange(moved, 1, moves_cursor=True)], now=world.now)
        assert saved is not None
        assert (saved.cursor, saved.plan_at) == (world.after(500), world.after(400))

    @scenario
    async def test_rewinding_deletes_what_is_not_yet_due(self, world: World) -> None:
        record = await _planned(world)
        world.advance(10)
        [saved] = await world.store.save([JobChange(replace(record, revision=2), 1, Waiting.REWIND)], now=world.now)
        assert saved is not None
        assert (saved.cursor, saved.plan_at, saved.planned) == (world.after(10), world.now, 1)
        left = await world.store.upcoming(10, now=world.now)
        assert [run.due for run in left] == [world.now]

    @scenario
    async def test_rewinding_nothing_leaves_the_cursor(self, world: World) -> None:
        await world.create(record := world.record())
        [saved] = await world.store.save([JobChange(replace(record, revision=2), 1, Waiting.REWIND)], now=world.now)
        assert saved is not None
        assert saved.cursor == record.cursor

    @scenario
    async def test_dropping_deletes_and_leaves_the_cursor(self, world: World) -> None:
        record = await _planned(world)
        [saved] = await world.store.save([JobChange(replace(record, revision=2), 1, Waiting.DROP)], now=world.now)
        assert saved is not None
        assert (saved.cursor, saved.planned) == (record.cursor, 0)
        assert await world.store.upcoming(10, now=world.now) == []

    @scenario
    async def test_submitted_attempted_and_other_jobs_runs_are_not_dropped(self, world: World) -> None:
        record = await _planned(world, count=1)
        other = await _planned(world, count=1, name="other")
        await world.put(submitted := world.run("report", delay=60))
        world.advance(10)
        claims = {claim.run.job: claim for claim in await world.claim()}
        await world.settle(claims["report"], failed(delay=100.0))
        world.advance(-5)  # even were the clock to step back over its instant
        await world.store.save([JobChange(replace(record, revision=2), 1, Waiting.REWIND)], now=world.now)
        assert await world.state(submitted) is State.PENDING
        assert await world.state(claims["report"].run.id) is State.PENDING
        assert await world.state(claims["other"].run.id) is State.RUNNING
        assert other.name == "other"

    @scenario
    async def test_cancelling_ends_every_waiting_run(self, world: World) -> None:
        record = await _planned(world)
        await world.put(
            submitted := world.run("report", delay=60),
            held := world.run("report", hold="k"),
            other := world.run("other"),
            running := world.run("report", priority=9),
        )
        [claim] = await world.claim(1)
        assert claim.run.id == running.id
        removed = replace(record, revision=2, removed_at=world.now)
        await world.store.save([JobChange(removed, 1, Waiting.CANCEL)], now=world.now)
        for run in (submitted, held):
            stored = await world.stored(run)
            assert (stored.state, stored.reason) == (State.CANCELLED, "job removed")
        assert await world.state(other) is State.QUEUED
        assert await world.state(running) is State.RUNNING
        assert (await world.store.runs(RunQuery(cause=Cause.SCHEDULE), 10, now=world.now)).runs == []

    @scenario
    async def test_a_change_writes_its_ledger(self, world: World) -> None:
        await world.create(record := world.record())
        skipped = world.planned(record, world.after(10), state=State.SKIPPED, reason="paused", until=world.after(30))
        resumed = replace(record, revision=2)
        await world.store.save([JobChange(resumed, 1, ledger=(skipped,))], now=world.now)
        stored = await world.stored(skipped)
        assert (stored.state, stored.reason, stored.until) == (State.SKIPPED, "paused", world.after(30))
        assert await world.claim() == []

    @scenario
    async def test_removing_forgets_the_job_and_cancels_its_runs(self, world: World) -> None:
        record = await _planned(world)
        await world.put(submitted := world.run("report"))
        assert not await world.store.remove("report", 9, now=world.now)
        assert not await world.store.remove("nobody", 1, now=world.now)
        assert await world.store.remove("report", record.revision, now=world.now)
        assert not await world.store.remove("report", record.revision, now=world.now)
        assert await world.store.job("report") is None
        assert await world.state(submitted) is State.CANCELLED
        assert await world.store.upcoming(10, now=world.now) == []

    # --- planning

    @scenario
    async def test_due_returns_what_is_to_be_planned_in_time(self, world: World) -> None:
        early = world.record("early", plan_at=world.after(-5))
        soon = world.record("soon", plan_at=world.now)
        later = world.record("later", plan_at=world.after(7))
        await world.create(later, soon, early, world.record("never", every=None))
        records, next_at = await world.store.due("main", 10, now=world.now)
        assert [record.name for record in records] == ["early", "soon"]
        assert next_at == later.plan_at
        records, next_at = await world.store.due("main", 1, now=world.now)
        assert ([record.name for record in records], next_at) == (["early"], soon.plan_at)

    @scenario
    async def test_due_leaves_out_what_is_not_planned(self, world: World) -> None:
        await world.create(
            world.record("paused", paused=Pause(world.now, "why")),
            world.record("retired", retired_at=world.now),
            world.record("removed", removed_at=world.now),
            world.record("finished", cursor=None),
        )
        assert await world.store.due("main", 10, now=world.now) == ([], None)

    @scenario
    async def test_jobs_with_a_schedule_in_code_are_planned_apart(self, world: World) -> None:
        spec = JobSpec(name="moon", handler="moon", schedule=CustomSpec("tides.Moon"))
        await world.create(world.record("moon", spec=spec), world.record("plain"))
        assert [record.name for record in (await world.store.due("main", 10, now=world.now))[0]] == ["plain"]
        assert [record.name for record in (await world.store.due("job:moon", 10, now=world.now))[0]] == ["moon"]

    @scenario
    async def test_firing_moves_the_cursor_and_inserts_the_runs(self, world: World) -> None:
        record = await _planned(world, count=2)
        assert (record.cursor, record.plan_at, record.planned) == (world.after(30), world.after(30), 2)
        upcoming = await world.store.upcoming(10, now=world.now)
        assert [run.due for run in upcoming] == [world.after(10), world.after(20)]
        assert all(run.state is State.PENDING for run in upcoming)
        world.advance(10)
        [claim] = await world.claim()
        assert (claim.run.uid, claim.run.cause, claim.run.due) == (record.uid, Cause.SCHEDULE, world.now)

    @scenario
    async def test_a_firing_applies_once(self, world: World) -> None:
        await world.create(record := world.record())
        epoch = await world.store.install("main", 1)
        firing = world.firing(record, [world.after(10)], cursor=world.after(20))
        assert await world.store.fire([firing], "main", epoch, now=world.now) == [Fired.APPLIED]
        world.advance(10)
        [claim] = await world.claim()
        await world.settle(claim)
        await world.store.purge(State.COMPLETED, world.after(1), None, 10)
        assert await world.store.fire([firing], "main", epoch, now=world.now) == [Fired.STALE_JOB]
        assert await world.claim() == []

    @scenario
    async def test_a_firing_of_another_revision_or_identity_is_stale(self, world: World) -> None:
        await world.create(record := world.record())
        epoch = await world.store.install("main", 1)
        firing = world.firing(record, [world.after(10)], cursor=world.after(20))
        await world.store.save([JobChange(replace(record, revision=2), 1)], now=world.now)
        assert await world.store.fire([firing], "main", epoch, now=world.now) == [Fired.STALE_JOB]
        reborn = replace(firing, revision=2, uid=world.ids.new())
        assert await world.store.fire([reborn], "main", epoch, now=world.now) == [Fired.STALE_JOB]
        unknown = replace(firing, name="nobody")
        assert await world.store.fire([unknown], "main", epoch, now=world.now) == [Fired.STALE_JOB]
        assert await world.store.upcoming(10, now=world.now) == []

    @scenario
    async def test_a_stale_firing_does_not_hinder_its_neighbours(self, world: World) -> None:
        records = [world.record(name) for name in ("a", "b", "c")]
        await world.create(*records)
        epoch = await world.store.install("main", 1)
        firings = [world.firing(record, [world.after(10)], cursor=world.after(20)) for record in records]
        firings[1] = replace(firings[1], expect=world.after(99))
        fired = await world.store.fire(firings, "main", epoch, now=world.now)
        assert fired == [Fired.APPLIED, Fired.STALE_JOB, Fired.APPLIED]
        assert [run.job for run in await world.store.upcoming(10, now=world.now)] in (["a", "c"], ["c", "a"])

    @scenario
    async def test_a_firing_may_end_a_job(self, world: World) -> None:
        await world.create(record := world.record())
        epoch = await world.store.install("main", 1)
        firing = replace(world.firing(record, [world.after(10)], cursor=None), plan_at=None)
        assert await world.store.fire([firing], "main", epoch, now=world.now) == [Fired.APPLIED]
        stored = await world.store.job(record.name)
        assert stored is not None
        assert stored.cursor is None
        assert await world.store.due("main", 10, now=world.after(1e6)) == ([], None)

    @scenario
    async def test_skipped_instants_are_kept_but_not_counted(self, world: World) -> None:
        await world.create(record := world.record())
        epoch = await world.store.install("main", 1)
        missed = world.planned(record, world.after(10), state=State.SKIPPED, reason="misfire", until=world.after(40))
        firing = world.firing(record, [world.after(50)], cursor=world.after(60))
        await world.store.fire([replace(firing, runs=(missed, *firing.runs))], "main", epoch, now=world.now)
        stored = await world.store.job(record.name)
        assert stored is not None
        assert stored.planned == 1
        assert await world.state(missed) is State.SKIPPED

    @scenario
    async def test_an_older_leader_changes_nothing(self, world: World) -> None:
        await world.create(record := world.record())
        old = await world.store.install("main", 5)
        new = await world.store.install("main", 3)
        assert old == 5
        assert new > old
        firing = world.firing(record, [world.after(10)], cursor=world.after(20))
        assert await world.store.fire([firing], "main", old, now=world.now) == [Fired.STALE_EPOCH]
        assert await world.store.install("other", 1) == 1
        assert await world.store.fire([firing], "main", new, now=world.now) == [Fired.APPLIED]

    @scenario
    async def test_a_leader_that_was_never_installed_changes_nothing(self, world: World) -> None:
        await world.create(record := world.record())
        firing = world.firing(record, [world.after(10)], cursor=world.after(20))
        assert await world.store.fire([firing], "main", 0, now=world.now) == [Fired.STALE_EPOCH]

    @scenario
    async def test_a_run_that_is_due_when_it_is_planned_is_claimed(self, world: World) -> None:
        record = world.record(cursor=world.after(-30))
        await world.create(record)
        epoch = await world.store.install("main", 1)
        firing = world.firing(record, [world.after(-30)], cursor=world.after(10))
        await world.store.fire([firing], "main", epoch, now=world.now)
        assert len(await world.claim()) == 1

    # --- looking up

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
    async def test_runs_are_found_by_what_they_are(self, world: World) -> None:
        await _planned(world, count=2)
        await world.put(
            mail := world.run("mail", queue="q1"),
            world.run("sms", handler="text", queue="q2", delay=500),
            ended := world.run("done", priority=9),
        )
        [claim] = await world.claim(1)
        await world.settle(claim)

        async def found(query: RunQuery) -> list[str]:
            return sorted(run.job for run in (await world.store.runs(query, 50, now=world.now)).runs)

        assert await found(RunQuery(job="mail")) == ["mail"]
        assert await found(RunQuery(handler="text")) == ["sms"]
        assert await found(RunQuery(queue="q2")) == ["sms"]
        assert await found(RunQuery(states=(State.COMPLETED,))) == ["done"]
        assert await found(RunQuery(states=(State.QUEUED,))) == ["mail"]
        assert await found(RunQuery(states=(State.PENDING, State.COMPLETED))) == ["done", "report", "report", "sms"]
        assert await found(RunQuery(cause=Cause.SCHEDULE)) == ["report", "report"]
        assert await found(RunQuery(due_from=world.after(15), due_until=world.after(100))) == ["report"]
        assert await found(RunQuery(job="mail", states=(State.FAILED,))) == []
        assert (mail.job, ended.job) == ("mail", "done")

    @scenario
    async def test_upcoming_runs_are_listed_by_time(self, world: World) -> None:
        await world.put(late := world.run(delay=60), soon := world.run("sms", delay=5), now := world.run())
        await world.put(world.run(delay=1, hold="k"))
        assert [run.id for run in await world.store.upcoming(10, now=world.now)] == [now.id, soon.id, late.id]
        assert [run.id for run in await world.store.upcoming(1, now=world.now)] == [now.id]
        assert [run.id for run in await world.store.upcoming(10, "sms", now=world.now)] == [soon.id]
        assert await world.store.next_runs(now=world.now) == {"mail": now.ready_at, "sms": soon.ready_at}

    @scenario
    async def test_every_instant_is_covered_by_its_record(self, world: World) -> None:
        record = await _planned(world, count=1)
        skipped = world.planned(
            record, world.after(-100), state=State.SKIPPED, reason="misfire", until=world.after(-50)
        )
        await world.store.save([JobChange(replace(record, revision=2), 1, ledger=(skipped,))], now=world.now)

        async def covering(at: datetime) -> str | None:
            run = await world.store.covering(record.uid, at)
            return None if run is None else run.id

        planned = world.planned(record, world.after(10))
        assert await covering(world.after(10)) == planned.id
        assert [await covering(world.after(n)) for n in (-100, -75, -50)] == [skipped.id] * 3
        assert [await covering(world.after(n)) for n in (-101, -49, 11)] == [None] * 3
        assert await world.store.covering("0other", world.after(-75)) is None

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

    # --- waiting for the end

    @scenario
    async def test_finished_returns_what_has_ended(self, world: World) -> None:
        await world.put(world.run(), world.run())
        first, second = await world.claim()
        await world.settle(first)
        [ended] = await world.store.finished([first.run.id, second.run.id], 30)
        assert (ended.id, ended.state) == (first.run.id, State.COMPLETED)
        assert await world.store.finished([second.run.id], 0.01) == []
        assert await world.store.finished(["0none"], 30) == []

    @scenario
    async def test_finished_wakes_when_a_run_ends(self, world: World) -> None:
        await world.put(run := world.run())
        [claim] = await world.claim()
        async with asyncio.timeout(30):
            waiting = asyncio.create_task(world.store.finished([run.id], 60))
            await asyncio.sleep(0)
            await world.settle(claim)
            [ended] = await waiting
        assert ended.state is State.COMPLETED

    # --- operating

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
    async def test_a_redriven_run_asks_its_group_again(self, world: World) -> None:
        await world.put(first := world.run(group="g", when_full=WhenFull.QUEUE))
        await world.store.cancel([first.id], now=world.now)
        await world.put(second := world.run(group="g", when_full=WhenFull.QUEUE))
        [claim] = await world.claim()
        assert claim.run.id == second.id
        await world.store.redrive([first.id], now=world.now)
        assert await world.claim() == []
        await world.settle(claim)
        assert [claim.run.id for claim in await world.claim()] == [first.id]

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

    # --- small things

    @scenario
    async def test_logs_are_append_only_and_numbered(self, world: World) -> None:
        assert await world.store.append("audit", [b"one", b"two"]) == 2
        assert await world.store.append("audit", [b"three"]) == 3
        assert await world.store.append("other", [b"x"]) == 1
        entries = await world.store.read("audit")
        assert [(entry.sequence, entry.value) for entry in entries] == [(1, b"one"), (2, b"two"), (3, b"three")]
        assert [entry.value for entry in await world.store.read("audit", after=1, limit=1)] == [b"two"]
        assert await world.store.read("nothing") == []
        assert all(entry.at.tzinfo is not None for entry in entries)

    @scenario
    async def test_a_log_can_be_chained(self, world: World) -> None:
        assert await world.store.append("audit", [b"a"], expect=1) is None
        assert await world.store.append("audit", [b"a"], expect=0) == 1
        assert await world.store.append("audit", [b"b"], expect=0) is None
        assert await world.store.append("audit", [b"b", b"c"], expect=1) == 3
        assert [entry.value for entry in await world.store.read("audit")] == [b"a", b"b", b"c"]

    @scenario
    async def test_a_log_may_keep_only_its_newest_entries(self, world: World) -> None:
        assert await world.store.append("events", [b"1", b"2", b"3"], keep=5) == 3
        assert await world.store.append("events", [b"4", b"5", b"6"], keep=4) == 6
        entries = await world.store.read("events")
        assert [(entry.sequence, entry.value) for entry in entries] == [(3, b"3"), (4, b"4"), (5, b"5"), (6, b"6")]
        for after, limit, found in ((0, 2, [3, 4]), (2, 1, [3]), (4, 9, [5, 6]), (6, 9, []), (9, 9, [])):
            entries = await world.store.read("events", after=after, limit=limit)
            assert [entry.sequence for entry in entries] == found
        assert await world.store.append("events", [b"7"]) == 7
        assert len(await world.store.read("events")) == 5, "without `keep` nothing goes"

    @scenario
    async def test_numbers_of_a_log_go_on_whatever_has_gone(self, world: World) -> None:
        assert await world.store.append("events", [b"x"] * 5, keep=1) == 5
        assert [entry.sequence for entry in await world.store.read("events")] == [5]
        assert await world.store.append("events", [b"y"], expect=1) is None
        assert await world.store.append("events", [b"y"] * 7, expect=5, keep=2) == 12
        assert [entry.sequence for entry in await world.store.read("events")] == [11, 12]
        assert await world.store.append("events", [b"z"], expect=5, keep=1) is None
        assert [entry.sequence for entry in await world.store.read("events")] == [11, 12]
        assert await world.store.append("audit", [b"a"]) == 1, "other logs are as they were"

    @scenario
    async def test_adding_nothing_to_a_log_tells_its_last_number(self, world: World) -> None:
        assert await world.store.append("events", []) == 0
        await world.store.append("events", [b"a", b"b", b"c"], keep=2)
        assert await world.store.append("events", []) == 3
        assert await world.store.append("events", [], keep=1) == 3
        assert [entry.sequence for entry in await world.store.read("events")] == [3]

    @scenario
    async def test_values_are_compared_and_set(self, world: World) -> None:
        assert await world.store.get("token", "a") is None
        assert await world.store.put("token", "a", b"1", expect=1) is None
        first = await world.store.put("token", "a", b"1", expect=0)
        assert first is not None
        assert (first.key, first.value, first.version) == ("a", b"1", 1)
        assert await world.store.put("token", "a", b"2", expect=0) is None
        second = await world.store.put("token", "a", b"2", expect=1)
        assert second == await world.store.get("token", "a")
        assert second is not None
        assert second.version == 2
        third = await world.store.put("token", "a", b"3")
        assert third is not None
        assert third.version == 3

    @scenario
    async def test_values_are_listed_by_kind_and_deleted(self, world: World) -> None:
        for key in ("b", "a"):
            await world.store.put("token", key, key.encode())
        await world.store.put("setting", "a", b"other")
        assert [(item.key, item.value) for item in await world.store.items("token")] == [("a", b"a"), ("b", b"b")]
        assert await world.store.put("token", "a", None, expect=9) is None
        assert len(await world.store.items("token")) == 2
        await world.store.put("token", "a", None, expect=1)
        assert [item.key for item in await world.store.items("token")] == ["b"]
        assert await world.store.get("setting", "a") is not None

    @scenario
    async def test_buckets_refill_with_time(self, world: World) -> None:
        async def take(tokens: float) -> float:
            return await world.store.take("api", tokens, rate=2, burst=10, now=world.now)

        assert await take(10) == 0
        assert await take(1) == pytest.approx(0.5)
        world.advance(2)
        assert await take(4) == 0
        assert await take(3) == pytest.approx(1.5)
        world.advance(1000)
        assert await take(10) == 0
        assert await take(11) > 1e9
        assert await world.store.take("other", 1, rate=2, burst=10, now=world.now) == 0

    # --- housekeeping

    @scenario
    async def test_migrating_twice_changes_nothing(self, world: World) -> None:
        await world.put(run := world.run())
        assert await world.store.migrate() == []
        assert await world.state(run) is State.QUEUED

    @scenario
    async def test_the_store_has_a_clock(self, world: World) -> None:
        first = await world.store.time()
        second = await world.store.time()
        assert first.utcoffset() == timedelta(0)
        assert second >= first

    @scenario
    async def test_a_session_sees_the_same_store(self, world: World) -> None:
        await world.put(run := world.run())
        async with world.backend.session() as other:
            assert (await other.store.run(run.id, now=world.now)) is not None
            claimed = await other.queue.claim("n", None, None, 1, 5, 1, now=world.now)
        assert [claim.run.id for claim in claimed.claims] == [run.id]
        assert await world.state(run) is State.RUNNING

    @scenario
    async def test_a_cron_job_keeps_its_zone(self, world: World) -> None:
        spec = JobSpec(name="nightly", handler="nightly", schedule=NIGHTLY)
        await world.create(world.record("nightly", spec=spec))
        stored = await world.store.job("nightly")
        assert stored is not None
        assert isinstance(stored.spec.schedule, CronSpec)
        assert stored.spec.schedule.timezone == "Europe/Berlin"

    # --- what the store can promise

    @scenario
    async def test_asking_again_tells_what_opening_told(self, world: World) -> None:
        told = world.backend.capabilities
        assert await world.backend.refresh() == told
        assert world.backend.capabilities == told
