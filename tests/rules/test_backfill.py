"""Backfill: which instants get a run, and what such a run is."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from duly.model import Cause, EverySpec, JobRecord, JobSpec, Origin, Overlap, State, WhenFull, recurring_id
from duly.rules.backfill import backfilled_by, late_run, recorded, replaced_ranges, rest_of_range, skipped_again
from duly.rules.misfires import is_missed
from duly.rules.planning import run_for, skipped
from duly.rules.schedules import Every

NOW = datetime(2027, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOURLY = Every(hours=1)
SPEC = JobSpec(name="report", handler="report", schedule=EverySpec(HOUR), payload=b'{"a":1}', priority=4, queue="night")
RECORD = JobRecord("0u", SPEC, 3, Origin.CODE, NOW - 100 * HOUR, NOW)


def hours(*numbers):
    return [NOW + number * HOUR for number in numbers]


def test_a_run_or_a_skip_accounts_for_an_instant():
    done = replace(run_for(RECORD, NOW - 5 * HOUR), state=State.COMPLETED)
    alone = skipped(RECORD, NOW - 4 * HOUR, NOW - 4 * HOUR, "overlap")
    several = skipped(RECORD, NOW - 3 * HOUR, NOW - 1 * HOUR, "misfire")
    inside = replace(run_for(RECORD, NOW - 2 * HOUR), state=State.FAILED)
    found = recorded(hours(-6, -5, -4, -3, -2, -1), [done, alone, several, inside])
    assert [each.record for each in found] == [None, done, alone, several, inside, several]
    assert [each.is_open for each in found] == [True, False, True, True, False, True]


@pytest.mark.parametrize("state", [state for state in State if state is not State.SKIPPED])
def test_no_run_is_repeated_whatever_became_of_it(state):
    [found] = recorded([NOW], [replace(run_for(RECORD, NOW), state=state)])
    assert not found.is_open


def test_a_late_run_is_of_its_instant_and_of_the_present_definition():
    due = NOW - 9 * HOUR
    run = late_run(RECORD, due, NOW, "ada", "queue")
    assert (run.id, run.due, run.ready_at) == (recurring_id("0u", due), due, NOW)
    assert (run.cause, run.state) == (Cause.BACKFILL, State.PENDING)
    assert (run.payload, run.priority, run.queue, run.revision) == (b'{"a":1}', 4, "night", 3)
    assert backfilled_by(run) == "ada"
    assert backfilled_by(run_for(RECORD, due)) is None


def test_a_late_run_is_no_misfire():
    run = late_run(RECORD, NOW - 9000 * HOUR, NOW, "ada", "queue")
    assert run.start_by is None
    assert not is_missed(run, NOW + 9000 * HOUR)


@pytest.mark.parametrize(
    ("overlap", "group", "when_full"),
    [
        (None, "report", WhenFull.QUEUE),
        (Overlap.SKIP, "report", WhenFull.QUEUE),
        (Overlap.REPLACE, "report", WhenFull.QUEUE),
        (Overlap.QUEUE, "report", WhenFull.QUEUE),
        (Overlap.ALLOW, None, WhenFull.SKIP),
    ],
)
def test_late_runs_wait_for_each_other_instead_of_being_skipped(overlap, group, when_full):
    record = replace(RECORD, spec=replace(SPEC, overlap=overlap))
    run = late_run(record, NOW - HOUR, NOW, "ada", "queue")
    assert (run.group, run.when_full) == (group, when_full)


def test_a_late_run_is_placed_like_any_other():
    assert late_run(RECORD, NOW - HOUR, NOW, "ada", "assign").assignable
    record = replace(RECORD, spec=replace(SPEC, selector={"gpu": "yes"}))
    assert late_run(record, NOW - HOUR, NOW, "ada", "queue").hold == "place"


@given(st.integers(1, 12), st.sets(st.integers(0, 11)))
def test_the_rest_of_a_range_has_every_instant_that_gets_no_run(length, numbers):
    instants = hours(*range(length))
    whole = skipped(RECORD, instants[0], instants[-1], "misfire")
    whole = replace(whole, until=instants[-1])
    chosen = {instants[number] for number in numbers if number < length} | {instants[0]}
    taken = [each for each in recorded(instants, [whole]) if each.due in chosen]
    assert replaced_ranges(taken) == [whole]
    left = list(rest_of_range(HOURLY, whole, chosen))
    assert left == [due for due in instants if due not in chosen]
    if left:
        rest = skipped_again(RECORD, whole, left[0])
        assert (rest.state, rest.reason, rest.due) == (State.SKIPPED, "misfire", left[0])
        assert (rest.until or rest.due) == instants[-1]


def test_a_range_whose_first_instant_stays_skipped_keeps_its_record():
    whole = skipped(RECORD, NOW - 3 * HOUR, NOW, "misfire")
    taken = recorded(hours(-2, -1), [whole])
    assert replaced_ranges(taken) == []
