"""Forecasts: which runs of the next 30 days a change of a definition adds, removes or moves."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from duly.model import CronSpec, CustomSpec, EverySpec, JobRecord, JobSpec, OnceSpec, Origin, Pause
from duly.rules.forecast import MOST_IN_ALL, MOST_INSTANTS, WINDOW, forecast, forecasts

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
SPRING = datetime(2027, 3, 10, 12, tzinfo=UTC)


def cron(expression, zone="UTC"):
    return JobSpec(name="report", handler="report", schedule=CronSpec(expression, zone))


def every(**span):
    return JobSpec(name="report", handler="report", schedule=EverySpec(timedelta(**span)))


def stored(spec, **fields):
    return replace(JobRecord("0u", spec, 1, Origin.FILE, NOW, NOW, cursor=NOW, plan_at=NOW), **fields)


def test_a_new_job_brings_its_runs():
    found = forecast(None, cron("30 2 * * *"), NOW)
    assert (found.appear, found.vanish, found.move, found.stay, found.complete) == (30, 0, 0, 0, True)
    assert found.appearing[0] == datetime(2026, 11, 19, 2, 30, tzinfo=UTC)
    assert found.words(NOW) == (
        "appear: 30 runs in the next 30 days: 2026-11-19T02:30:00Z, 2026-11-20T02:30:00Z, 2026-11-21T02:30:00Z, …",
    )


def test_a_removed_job_takes_its_runs_away():
    found = forecast(stored(cron("0 0 1 * *")), None, NOW)
    assert (found.appear, found.vanish) == (0, 1)
    assert found.words(NOW) == ("vanish: 1 run in the next 30 days: 2026-12-01T00:00:00Z",)


def test_a_schedule_that_is_later_moves_its_runs():
    found = forecast(stored(cron("30 2 * * *")), cron("30 3 * * *"), NOW)
    assert (found.move, found.appear, found.vanish) == (30, 0, 0)
    assert found.words(NOW)[0].startswith(
        "move: 30 runs in the next 30 days, 1 hour later: 2026-11-19T02:30:00Z → 2026-11-19T03:30:00Z, "
    )


def test_at_the_ends_of_the_window_a_run_may_have_no_partner():
    found = forecast(stored(cron("30 12 * * *")), cron("30 11 * * *"), NOW)  # today's run is given up
    assert (found.move, found.vanish, found.appear) == (29, 1, 0) or (found.move, found.vanish, found.appear) == (
        30,
        0,
        0,
    )
    total = found.move + found.vanish
    assert total == 30


def test_a_change_without_a_new_schedule_keeps_all_runs():
    found = forecast(stored(cron("30 2 * * *")), replace(cron("30 2 * * *"), priority=3), NOW)
    assert (found.stay, found.appear, found.vanish, found.move) == (30, 0, 0, 0)
    assert found.words(NOW) == ("30 runs in the next 30 days, as before",)


def test_what_both_schedules_have_stays():
    found = forecast(stored(every(hours=1)), every(minutes=30), NOW)
    assert (found.stay, found.appear, found.vanish, found.move) == (720, 720, 0, 0)


def test_another_time_zone_moves_runs_and_a_clock_change_moves_them_differently():
    found = forecast(stored(cron("30 2 * * *", "Europe/Berlin")), cron("30 2 * * *"), SPRING)
    assert found.move == 30
    assert found.shifts == (
        "1 hour later",
        "2 hours later (first at 2027-03-29T00:30:00Z)",
        "1 hour 30 minutes later (first at 2027-03-28T01:00:00Z)",  # 02:30 does not exist in that night
    )


@pytest.mark.parametrize(
    ("now", "expression"), [(SPRING, "30 2 * * *"), (datetime(2026, 10, 10, tzinfo=UTC), "30 2 * * *")]
)
def test_nights_when_clocks_change_are_named(now, expression):
    found = forecast(None, cron(expression, "Europe/Berlin"), now)
    assert found.notes
    assert found.words(now)[-1] == found.notes[-1]
    assert forecast(None, cron(expression), now).notes == ()


def test_a_schedule_of_every_second_is_not_expanded():
    began = time.process_time()
    found = forecast(None, every(seconds=1), NOW)
    assert time.process_time() - began < 5
    assert (found.appear, found.complete) == (MOST_INSTANTS, False)
    assert found.until == NOW + timedelta(seconds=MOST_INSTANTS)
    assert "about 2592000 in 30 days" in found.words(NOW)[0]


def test_a_fast_and_a_slow_schedule_are_compared_as_far_as_both_are_known():
    found = forecast(stored(every(seconds=1)), cron("* * * * *"), NOW)
    assert not found.complete
    assert found.until == NOW + timedelta(seconds=MOST_INSTANTS)
    assert found.stay == MOST_INSTANTS // 60
    assert found.vanish == MOST_INSTANTS - found.stay


def test_a_file_with_many_fast_jobs_is_bounded():
    found = forecasts([(None, every(seconds=1))] * 500, NOW)
    known = [each for each in found if each is not None]
    assert sum(each.appear for each in known) <= MOST_IN_ALL
    assert found[0] is not None
    assert found[-1] is None


def test_max_runs_ends_a_job():
    assert forecast(None, replace(cron("30 2 * * *"), max_runs=3), NOW).appear == 3
    record = stored(replace(every(hours=1), max_runs=10), planned=6, cursor=NOW + timedelta(hours=3))
    # Two of the six are planned and not yet due: they run, and then four more.
    found = forecast(record, replace(record.spec, max_runs=12), NOW)
    assert (found.stay, found.appear) == (6, 2)


def test_jobs_without_a_schedule_that_can_be_computed_have_no_runs():
    submitted = JobSpec(name="report", handler="report")
    code = replace(submitted, schedule=CustomSpec("shop.Tides"))
    for spec in (submitted, code, replace(submitted, schedule=OnceSpec(NOW - timedelta(days=1)))):
        assert forecast(None, spec, NOW).words(NOW) == ("no run is due in the next 30 days",)


def test_a_paused_job_is_marked():
    assert forecast(stored(every(hours=1), paused=Pause(NOW)), every(hours=2), NOW).paused


SPECS = st.one_of(
    st.none(),
    st.integers(1, 5000).map(lambda minutes: every(minutes=minutes)),
    st.tuples(st.integers(0, 59), st.integers(0, 23)).map(lambda at: cron(f"{at[0]} {at[1]} * * *", "Europe/Berlin")),
)


@given(SPECS, SPECS)
def test_every_instant_is_counted_once(old, new):
    found = forecast(None if old is None else stored(old), new, SPRING)
    before = forecast(None if old is None else stored(old), None, SPRING)
    after = forecast(None, new, SPRING)
    if found.complete:
        assert found.vanish + found.move + found.stay == before.vanish
        assert found.appear + found.move + found.stay == after.appear
        assert found.until == SPRING + WINDOW
