"""Planning: every instant between two cursors gets exactly one record."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from duly.model import EverySpec, JobRecord, JobSpec, Misfire, OnceSpec, Origin, Overlap, State, WhenFull, recurring_id
from duly.rules.planning import MOST_AHEAD, MOST_CAUGHT_UP, Outlook, plan
from duly.rules.schedules import Every, Once, from_spec

NOW = datetime(2027, 1, 1, tzinfo=UTC)
OUTLOOK = Outlook(horizon=timedelta(seconds=30), grace=timedelta(seconds=60))

ONCE = JobSpec(name="report", handler="build", schedule=OnceSpec(NOW))


def at(seconds):
    return NOW + timedelta(seconds=seconds)


def job(cursor, *, every=10.0, **fields):
    spec = JobSpec(name="report", handler="build", schedule=EverySpec(timedelta(seconds=every)), **fields)
    return JobRecord(
        uid="0u", spec=spec, revision=3, origin=Origin.CODE, created_at=NOW, updated_at=NOW, cursor=cursor, plan_at=NOW
    )


def planned(record, now=NOW):
    return plan(record, from_spec(record.spec.schedule), now, OUTLOOK)


def test_runs_are_made_a_horizon_ahead():
    firing = planned(job(at(10)))
    assert [run.due for run in firing.runs] == [at(10), at(20), at(30), at(40)]
    assert (firing.expect, firing.cursor) == (at(10), at(50))
    assert (firing.uid, firing.revision) == ("0u", 3)


def test_the_next_step_comes_while_a_horizon_is_left_and_halfway_between_two_instants():
    firing = planned(job(at(10)))
    assert firing.plan_at == at(50 - 30 - 5)


def test_a_short_horizon_never_asks_for_a_step_that_has_passed():
    record = job(at(10))
    firing = plan(record, from_spec(record.spec.schedule), NOW, Outlook(timedelta(seconds=1), OUTLOOK.grace))
    assert firing.plan_at is not None
    assert firing.plan_at > NOW


def test_a_run_carries_its_definition():
    record = job(at(10), payload=b'{"a":1}', queue="q", priority=4, overlap=Overlap.QUEUE)
    run = planned(record).runs[0]
    assert run.id == recurring_id("0u", at(10))
    assert (run.job, run.handler, run.uid, run.revision) == ("report", "build", "0u", 3)
    assert (run.payload, run.queue, run.priority) == (b'{"a":1}', "q", 4)
    assert (run.group, run.limit, run.when_full) == ("report", 1, WhenFull.QUEUE)


def test_scheduled_runs_do_not_overlap_by_default():
    assert planned(job(at(10))).runs[0].when_full is WhenFull.SKIP
    assert planned(job(at(10), overlap=Overlap.ALLOW)).runs[0].group is None


def test_instants_within_the_grace_each_get_their_run():
    firing = planned(job(at(-50)))
    assert [run.due for run in firing.runs][:6] == [at(n) for n in (-50, -40, -30, -20, -10, 0)]
    assert all(run.state is State.PENDING for run in firing.runs)


def test_an_instant_exactly_at_the_grace_counts_as_missed():
    firing = planned(job(at(-60), misfire=Misfire.SKIP))
    assert (firing.runs[0].state, firing.runs[0].due, firing.runs[0].until) == (State.SKIPPED, at(-60), None)
    assert firing.runs[1].due == at(-50)


def test_by_default_one_run_stands_for_all_that_were_missed():
    firing = planned(job(at(-3600)))
    missed, latest, first = firing.runs[:3]
    assert (missed.state, missed.reason) == (State.SKIPPED, "misfire")
    assert (missed.due, missed.until) == (at(-3600), at(-70))
    assert (latest.state, latest.due) == (State.PENDING, at(-60))
    assert first.due == at(-50)


def test_a_single_missed_instant_is_run_without_a_skip():
    firing = planned(job(at(-60)))
    assert [run.state for run in firing.runs[:1]] == [State.PENDING]
    assert firing.runs[0].due == at(-60)


def test_misfire_all_runs_the_latest_hundred_and_accounts_for_the_rest():
    firing = planned(job(at(-36000), misfire=Misfire.ALL))
    skipped, *runs = firing.runs
    caught_up = [run for run in runs if run.due <= at(-60)]
    assert len(caught_up) == MOST_CAUGHT_UP
    assert (skipped.due, skipped.until) == (at(-36000), caught_up[0].due - timedelta(seconds=10))
    assert [run.due for run in caught_up] == sorted(run.due for run in caught_up)


def test_misfire_skip_runs_nothing_late():
    firing = planned(job(at(-3600), misfire=Misfire.SKIP))
    assert (firing.runs[0].due, firing.runs[0].until) == (at(-3600), at(-60))
    assert all(run.state is State.PENDING for run in firing.runs[1:])


def test_a_run_that_must_not_be_late_says_until_when_it_may_start():
    runs = planned(job(at(10), misfire=Misfire.SKIP)).runs
    assert [run.start_by - run.due for run in runs] == [OUTLOOK.grace] * 4
    assert all(run.strict for run in runs)


def test_by_default_a_run_may_start_until_the_next_one_is_missed():
    runs = planned(job(at(-500))).runs
    assert [run.start_by for run in runs[1:]] == [run.due + timedelta(seconds=10) + OUTLOOK.grace for run in runs[1:]]
    assert not any(run.strict for run in runs)


def test_the_last_run_of_all_may_start_late():
    runs = planned(job(at(10), max_runs=2)).runs
    assert [run.start_by for run in runs] == [at(20) + OUTLOOK.grace, None]
    [late] = [run for run in planned(job(at(-500), max_runs=1)).runs if run.state is not State.SKIPPED]
    assert late.start_by is None
    [once] = plan(replace(job(NOW), spec=ONCE), Once(NOW), NOW, OUTLOOK).runs
    assert once.start_by is None


def test_with_misfire_all_every_run_may_start_late():
    assert {run.start_by for run in planned(job(at(-500), misfire=Misfire.ALL)).runs} == {None}


def test_jitter_moves_the_latest_start_along():
    schedule = EverySpec(timedelta(seconds=10), jitter=timedelta(seconds=5))
    record = job(at(10), misfire=Misfire.SKIP)
    runs = planned(replace(record, spec=replace(record.spec, schedule=schedule))).runs
    assert all(run.start_by == run.ready_at + OUTLOOK.grace for run in runs)


def test_a_year_of_missed_milliseconds_costs_one_record():
    record = job(NOW - timedelta(days=365), every=0.001)
    firing = planned(record)
    assert sum(run.state is State.SKIPPED for run in firing.runs) == 1


def test_a_fast_schedule_is_planned_a_bounded_number_ahead_and_again_when_half_is_used():
    record = job(at(0.1), every=0.1)
    firing = planned(record)
    assert len(firing.runs) == MOST_AHEAD
    assert firing.cursor == at(0.1 * (MOST_AHEAD + 1))
    assert firing.plan_at == firing.runs[MOST_AHEAD // 2].due


def test_the_number_of_runs_is_bounded_by_max_runs():
    record = job(at(10), max_runs=5)
    firing = planned(replace(record, planned=3))
    assert len(firing.runs) == 2
    assert (firing.cursor, firing.plan_at) == (None, None)


def test_a_job_that_had_all_its_runs_is_finished():
    firing = planned(replace(job(at(10), max_runs=5), planned=5))
    assert (firing.runs, firing.cursor) == ((), None)


def test_the_last_run_may_be_a_late_one():
    firing = planned(job(at(-3600), max_runs=1))
    assert [run.state for run in firing.runs] == [State.SKIPPED, State.PENDING]
    assert firing.cursor is None


def test_a_past_instant_runs_at_once():
    spec = JobSpec(name="once", handler="once", schedule=OnceSpec(at(-86400)))
    record = replace(job(at(-86400)), spec=spec)
    firing = plan(record, Once(at(-86400)), NOW, OUTLOOK)
    assert [(run.due, run.state) for run in firing.runs] == [(at(-86400), State.PENDING)]
    assert firing.cursor is None


def test_a_jittered_run_is_ready_later_but_keeps_its_identity():
    spec = JobSpec(name="j", handler="j", schedule=EverySpec(timedelta(seconds=10), jitter=timedelta(seconds=5)))
    runs = plan(replace(job(at(10)), spec=spec), Every(seconds=10), NOW, OUTLOOK).runs
    assert [run.id for run in runs] == [recurring_id("0u", run.due) for run in runs]
    assert all(timedelta(0) <= run.ready_at - run.due < timedelta(seconds=5) for run in runs)
    assert len({run.ready_at - run.due for run in runs}) > 1


@settings(deadline=None)
@given(
    every=st.integers(1, 400),
    behind=st.integers(-40, 4000),
    misfire=st.sampled_from(Misfire),
    steps=st.lists(st.integers(1, 600), min_size=1, max_size=6),
    max_runs=st.none() | st.integers(1, 30),
)
def test_every_instant_has_exactly_one_record(every, behind, misfire, steps, max_runs):
    schedule = Every(seconds=every)
    start = schedule.next_run(at(-behind))
    record = job(start, every=every, misfire=misfire, max_runs=max_runs)
    covered, now, ids = [], NOW, set()
    for pause in steps:
        for _ in range(200):
            if record.cursor is None:
                break
            firing = plan(record, schedule, now, OUTLOOK)
            for run in firing.runs:
                assert run.id not in ids
                ids.add(run.id)
                due = run.due
                while due is not None and due <= (run.until or run.due):
                    covered.append(due)
                    due = schedule.next_run(due)
            runs = sum(run.state is not State.SKIPPED for run in firing.runs)
            record = replace(record, cursor=firing.cursor, planned=record.planned + runs)
            if firing.plan_at is None or firing.plan_at > now:
                break
        now += timedelta(seconds=pause)
    expected, due = [], start
    while covered and due <= covered[-1]:
        expected.append(due)
        due = schedule.next_run(due)
    assert covered == expected
    if record.cursor is not None:
        assert record.cursor == due
        assert record.cursor > now - timedelta(seconds=pause) + OUTLOOK.horizon
    if max_runs is not None:
        assert record.planned <= max_runs


@pytest.mark.parametrize("misfire", list(Misfire))
def test_planning_twice_from_the_same_record_is_the_same(misfire):
    record = job(at(-500), misfire=misfire)
    assert planned(record) == planned(record)


def test_while_nodes_of_0_1_0_are_alive_runs_are_planned_as_they_plan_them():
    """They hold and retry runs without regard to `start_by`, so nobody may be late by it."""
    record = job(at(-600), misfire=Misfire.SKIP)
    firing = plan(record, from_spec(record.spec.schedule), NOW, replace(OUTLOOK, legacy=True))
    plain = planned(record)
    assert all(run.legacy and run.start_by is None and not run.strict for run in firing.runs)
    assert [replace(run, start_by=None, strict=False, legacy=True) for run in plain.runs] == list(firing.runs)
    assert any(run.start_by for run in plain.runs)
