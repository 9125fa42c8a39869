"""What every store must do for the planner: due jobs, leaders, cursors, and changes of planned jobs."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from duly.model import (
    Cause,
    CustomSpec,
    EverySpec,
    Fired,
    JobChange,
    JobRecord,
    JobSpec,
    Pause,
    RunQuery,
    Share,
    State,
    Waiting,
)
from duly.model.holds import UNPLACED
from duly.testing.conformance.world import World, failed, give, part, scenario


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


async def _due(world: World, shard: str) -> list[str]:
    records, _ = await world.store.due(shard, 10, now=world.now)
    return [record.name for record in records]


async def _job(world: World, name: str) -> JobRecord:
    record = await world.store.job(name)
    assert record is not None
    return record


async def _moved(world: World, name: str, shard: str, plan_at: datetime, record: JobRecord | None = None) -> JobRecord:
    """A job that was moved to a shard, nothing of it planned, to be planned at that time."""
    await world.create(record := record or world.record(name))
    epoch = await world.store.install("main", 1)
    firing = replace(world.firing(record, [], cursor=record.cursor), plan_at=plan_at, move_to=shard)
    assert await world.store.fire([firing], "main", epoch, now=world.now) == [Fired.APPLIED]
    return await _job(world, name)


def _plain(name: str) -> JobSpec:
    return JobSpec(name=name, handler=name, schedule=EverySpec(timedelta(seconds=10)))


@part
class PlanningSuite:
    """Planning: leaders, cursors, and the runs of a job's instants."""

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
    async def test_the_next_plans_of_all_shards_are_ordered_by_time(self, world: World) -> None:
        moon = JobSpec(name="moon", handler="moon", schedule=CustomSpec("tides.Moon"))
        await world.create(
            world.record("later", plan_at=world.after(7)),
            world.record("moon", spec=moon, plan_at=world.after(3)),
            world.record("b", plan_at=world.now),
            world.record("a", plan_at=world.now),
            world.record("paused", paused=Pause(world.now, "why")),
            world.record("never", every=None),
        )
        plans = [("a", world.now), ("b", world.now), ("moon", world.after(3)), ("later", world.after(7))]
        assert await world.store.next_plans(10) == plans
        assert await world.store.next_plans(3) == plans[:3]
        stored = await world.store.job("moon")
        assert stored is not None
        change = JobChange(replace(stored, revision=2, spec=_plain("moon")), 1)
        await world.store.save([change], now=world.now)
        assert await world.store.next_plans(10) == plans
        assert await world.store.remove("moon", 2, now=world.now)
        assert await world.store.next_plans(10) == [*plans[:2], plans[3]]
        assert "moon" not in await world.store.handlers(retired=False)
        assert "moon" not in [record.name for record in await world.store.jobs()]

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

    @scenario
    async def test_a_job_with_another_kind_of_schedule_is_due_in_its_new_shard_only(self, world: World) -> None:
        await world.create(record := world.record("moon"))
        custom = replace(record, revision=2, spec=replace(record.spec, schedule=CustomSpec("tides.Moon")))
        await world.store.save([JobChange(custom, 1)], now=world.now)
        assert await _due(world, "main") == []
        assert await _due(world, "job:moon") == ["moon"]
        plain = replace(record, revision=3, spec=_plain("moon"))
        await world.store.save([JobChange(plain, 2)], now=world.now)
        assert await _due(world, "main") == ["moon"]
        assert await _due(world, "job:moon") == []

    @scenario
    async def test_a_firing_moves_its_job_to_another_shard(self, world: World) -> None:
        await world.create(world.record("moves"), world.record("stays"))
        epoch = await world.store.install("main", 1)
        for record, shard in ((await _job(world, "moves"), "main/3"), (await _job(world, "stays"), None)):
            firing = world.firing(record, [world.after(10)], cursor=world.after(20))
            firing = replace(firing, plan_at=world.now, move_to=shard)
            assert await world.store.fire([firing], "main", epoch, now=world.now) == [Fired.APPLIED]
        assert await _due(world, "main") == ["stays"]
        assert await _due(world, "main/3") == ["moves"]
        moved = await _job(world, "moves")
        assert (moved.shard, moved.planned_in, moved.planned, moved.revision) == ("main/3", "main/3", 1, 1)
        assert [record.shard for record in await world.store.jobs()] == ["main/3", "main"]

    @scenario
    async def test_a_shard_has_its_own_epoch_and_clock_of_planning(self, world: World) -> None:
        first = await _moved(world, "first", "main/1", world.after(5))
        second = await _moved(world, "second", "main/2", world.after(7))
        assert await world.store.due("main", 10, now=world.now) == ([], None)
        assert await world.store.due("main/1", 10, now=world.now) == ([], first.plan_at)
        assert await world.store.due("main/2", 10, now=world.after(7)) == ([second], None)
        one = await world.store.install("main/1", 7)
        firing = world.firing(first, [], cursor=world.after(60))
        assert await world.store.fire([firing], "main/2", one, now=world.now) == [Fired.STALE_EPOCH]
        assert await world.store.fire([firing], "main/1", one, now=world.now) == [Fired.APPLIED]

    @scenario
    async def test_two_shards_that_plan_the_same_job_plan_it_once(self, world: World) -> None:
        """A leader that has read a job before it was moved writes after the leader of the new shard, or before it."""
        record = await _moved(world, "report", "main/1", world.now)
        stale = world.firing(record, [world.after(10)], cursor=world.after(20))
        one, two = await world.store.install("main/1", 1), await world.store.install("main/2", 1)
        move = replace(world.firing(record, [], cursor=record.cursor), plan_at=world.now, move_to="main/2")
        assert await world.store.fire([move], "main/1", one, now=world.now) == [Fired.APPLIED]
        assert await _due(world, "main/2") == ["report"]
        assert await world.store.fire([stale], "main/2", two, now=world.now) == [Fired.APPLIED]
        assert await world.store.fire([stale], "main/1", one, now=world.now) == [Fired.STALE_JOB]
        assert [run.due for run in await world.store.upcoming(10, now=world.now)] == [world.after(10)]
        assert (await _job(world, "report")).shard == "main/2"

    @scenario
    async def test_a_change_leaves_a_job_in_the_shard_that_the_planner_moved_it_to(self, world: World) -> None:
        before = world.record("report")
        await _moved(world, "report", "main/3", world.now, before)
        [saved] = await world.store.save([JobChange(replace(before, revision=2), 1)], now=world.now)
        assert saved == await _job(world, "report")
        assert saved is not None
        assert saved.shard == "main/3"
        assert await _due(world, "main/3") == ["report"]
        custom = replace(before, revision=3, spec=replace(before.spec, schedule=CustomSpec("tides.Moon")))
        [saved] = await world.store.save([JobChange(custom, 2)], now=world.now)
        assert saved == await _job(world, "report")
        assert (await _due(world, "main/3"), await _due(world, "job:report")) == ([], ["report"])
        [saved] = await world.store.save([JobChange(replace(before, revision=4), 3)], now=world.now)
        assert saved == await _job(world, "report")
        assert (await _due(world, "main"), await _due(world, "job:report")) == (["report"], [])

    @scenario
    async def test_a_job_whose_schedule_is_code_is_not_moved(self, world: World) -> None:
        spec = JobSpec(name="moon", handler="moon", schedule=CustomSpec("tides.Moon"))
        await world.create(record := world.record("moon", spec=spec))
        epoch = await world.store.install("job:moon", 1)
        firing = replace(world.firing(record, [], cursor=world.after(20)), plan_at=world.now, move_to="main/3")
        assert await world.store.fire([firing], "job:moon", epoch, now=world.now) == [Fired.APPLIED]
        assert (await _due(world, "main/3"), await _due(world, "job:moon")) == ([], ["moon"])

    @scenario
    async def test_a_removed_job_leaves_its_shard(self, world: World) -> None:
        record = await _moved(world, "report", "main/1", world.now)
        assert await world.store.remove("report", record.revision, now=world.now)
        assert await world.store.due("main/1", 10, now=world.after(1e6)) == ([], None)

    @scenario
    async def test_planned_runs_may_be_born_held(self, world: World) -> None:
        record = world.record(every=10)
        await world.create(record)
        epoch = await world.store.install("main", 1)
        instants = [world.after(10), world.after(20)]
        firing = world.firing(record, instants, world.after(30))
        firing = replace(firing, runs=tuple(replace(run, hold=UNPLACED, assignable=True) for run in firing.runs))
        await world.store.fire([firing], "main", epoch, now=world.now)
        assert [run.due for run in await world.queue.held(UNPLACED, 10, now=world.now)] == instants
        stored = await world.store.job("report")
        assert stored is not None
        assert stored.planned == 2
        assert (await world.store.next_runs(now=world.now)) == {"report": instants[0]}

    @scenario
    async def test_a_changed_job_takes_its_unplaced_runs_along(self, world: World) -> None:
        record = world.record(every=10)
        await world.create(record)
        epoch = await world.store.install("main", 1)
        firing = world.firing(record, [world.after(10), world.after(20)], world.after(30))
        firing = replace(firing, runs=tuple(replace(run, hold=UNPLACED, assignable=True) for run in firing.runs))
        await world.store.fire([firing], "main", epoch, now=world.now)
        assert await give(world, firing.runs[1], "a")
        change = JobChange(replace(record, revision=2), 1, Waiting.REWIND)
        [saved] = await world.store.save([change], now=world.now)
        assert saved is not None
        assert (saved.cursor, saved.planned) == (world.after(10), 0)
        assert await world.queue.held(UNPLACED, 10, now=world.now) == []
        assert (await world.queue.assigned(now=world.now)).get("a", Share()) == Share()

    # --- changes of a planned job

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
        world.advance(-5)  # even if the clock steps back before its instant
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
    async def test_only_runs_of_the_same_job_are_deleted_and_not_of_an_earlier_one_of_its_name(
        self, world: World
    ) -> None:
        record = await _planned(world, count=2)
        reborn = replace(record, uid=world.ids.new(), revision=2)
        [saved] = await world.store.save([JobChange(reborn, 1, Waiting.CANCEL)], now=world.now)
        assert saved is not None
        assert saved.planned == 2
        runs = (await world.store.runs(RunQuery(cause=Cause.SCHEDULE), 10, now=world.now)).runs
        assert [(run.uid, run.state, run.reason) for run in runs] == [(record.uid, State.CANCELLED, "job removed")] * 2

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

    # --- looking up

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
