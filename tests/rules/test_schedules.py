"""Schedules as values: bounds, intervals, single instants, binding to plain data, and users' own objects."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.errors import InvalidSchedule
from duly.model import CronSpec, CustomSpec, Dst, EverySpec, OnceSpec, ScheduleSpec
from duly.rules.schedules import Cron, Every, Once, Schedule, bind, from_spec, latest, ready_at, step

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
NAIVE = NOW.replace(tzinfo=None)
TICK = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)

VALUES = [
    Cron("30 2 * * *", timezone="Europe/Berlin", dst="both", start_at=NOW, end_at=NOW + DAY, jitter=1.5),
    Cron("@daily"),
    Every(seconds=15),
    Every(0.5, start_at=NOW, jitter=3),
    Once(NOW, jitter=60),
]


class Fridays:
    """A user's schedule, with nothing but next_run."""

    jitter = 30

    def next_run(self, after: datetime) -> datetime | None:
        day = after.astimezone(UTC).replace(hour=17, minute=0, second=0, microsecond=0)
        while day <= after or day.weekday() != 4:
            day += DAY
        return day


class Broken:
    """Returns whatever it was made with."""

    def __init__(self, answer, previous=None):
        self.answer = answer
        if previous is not None:
            self.previous_run = lambda at: previous

    def next_run(self, after):
        return self.answer


# --- all values


@pytest.mark.parametrize("schedule", VALUES, ids=repr)
def test_a_value_is_frozen_hashable_and_equal_to_its_copies(schedule):
    twins = [copy.copy(schedule), copy.deepcopy(schedule), pickle.loads(pickle.dumps(schedule))]
    assert {schedule, *twins} == {schedule}
    assert all(twin.next_run(NOW) == schedule.next_run(NOW) for twin in twins)
    with pytest.raises(AttributeError):
        schedule.jitter = timedelta(1)
    assert not hasattr(schedule, "__dict__")
    assert isinstance(schedule, Schedule)


@pytest.mark.parametrize("schedule", VALUES, ids=repr)
def test_a_repr_can_be_typed(schedule):
    import datetime as dt

    assert eval(repr(schedule), {"Cron": Cron, "Every": Every, "Once": Once, "datetime": dt}) == schedule


def test_reprs_leave_defaults_out():
    assert repr(Cron("0  0 * * *", timezone=ZoneInfo("Asia/Tokyo"))) == "Cron('0 0 * * *', timezone='Asia/Tokyo')"
    assert repr(Cron("0 0 * * *", dst="skip", jitter=5)) == "Cron('0 0 * * *', dst='skip', jitter=5)"
    assert repr(Every(minutes=5)) == "Every(seconds=300)"
    assert repr(Every(milliseconds=1500)) == "Every(seconds=1.5)"


@pytest.mark.parametrize("schedule", VALUES, ids=repr)
def test_naive_instants_are_refused_by_name(schedule):
    with pytest.raises(InvalidSchedule, match="after is a naive datetime"):
        schedule.next_run(NAIVE)
    with pytest.raises(InvalidSchedule, match="at is a naive datetime"):
        schedule.previous_run(NAIVE)
    with pytest.raises(ValueError, match="naive"):
        schedule.first_run(NAIVE)
    with pytest.raises(InvalidSchedule, match="not a datetime"):
        schedule.next_run("2026-11-15")


@pytest.mark.parametrize("schedule", [*VALUES, Cron("* * * * *", timezone="Pacific/Kiritimati")], ids=repr)
def test_the_ends_of_the_calendar_are_no_errors(schedule):
    far_west, far_east = timezone(-timedelta(hours=12)), timezone(timedelta(hours=14))
    assert schedule.next_run(LAST) is None
    assert schedule.next_run(datetime.max.replace(tzinfo=far_west)) is None
    assert schedule.previous_run(FIRST) is None or isinstance(schedule, Every)
    schedule.previous_run(datetime.min.replace(tzinfo=far_east))
    assert schedule.next_run(FIRST) is not None
    assert schedule.preview(3, after=LAST - 5 * DAY) is not None


def test_any_zone_of_the_argument_gives_the_same_answer():
    schedule = Cron("0 9 * * *", timezone="Asia/Tokyo")
    elsewhere = NOW.astimezone(ZoneInfo("America/New_York"))
    assert schedule.next_run(elsewhere) == schedule.next_run(NOW) == datetime(2026, 11, 16, 0, 0, tzinfo=UTC)
    assert schedule.next_run(elsewhere).tzinfo is UTC


@pytest.mark.parametrize("jitter", [-1, -timedelta(seconds=1), float("nan"), float("inf"), "5", None, True, 10**30])
def test_a_jitter_is_a_duration(jitter):
    for make in (
        lambda: Cron("* * * * *", jitter=jitter),
        lambda: Every(5, jitter=jitter),
        lambda: Once(NOW, jitter=jitter),
    ):
        with pytest.raises(InvalidSchedule, match="jitter") as caught:
            make()
        assert caught.value.field == "jitter"


def test_preview_stops_where_the_schedule_does():
    assert Once(NOW).preview(after=NOW - DAY) == [NOW]
    assert Once(NOW).preview(after=NOW) == []
    assert Every(60).preview(0, after=NOW) == []
    assert len(Every(60).preview(after=NOW)) == 5
    assert Every(60, end_at=NOW + 2 * MINUTE).preview(after=NOW) == [NOW + MINUTE, NOW + 2 * MINUTE]


# --- cron


def test_without_a_zone_it_computes_in_utc():
    assert Cron("0 9 * * *").timezone is None
    assert Cron("0 9 * * *").next_run(NOW) == datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
    assert Cron("0 9 * * *", timezone=UTC).timezone == "UTC"


@pytest.mark.parametrize(
    ("timezone", "hint"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("New York", "America/New_York"),
        ("", "IANA"),
        ("America", "IANA|did you mean"),
        ("../../etc/passwd", "IANA"),
        ("/etc/passwd", "IANA"),
        ("a\x00b", "IANA"),
        ("x" * 5000, "IANA"),
        ("\ud800", "IANA"),
        (5, "IANA"),
        (timezone(timedelta(hours=1)), "IANA"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_nearest(timezone, hint):
    with pytest.raises(InvalidSchedule, match="unknown time zone") as caught:
        Cron("* * * * *", timezone=timezone)
    assert caught.value.field == "timezone"
    assert any(part in caught.value.hint for part in hint.split("|"))


def test_a_zone_without_a_name_is_refused():
    from importlib import resources

    with resources.files("tzdata.zoneinfo").joinpath("UTC").open("rb") as file:
        unnamed = ZoneInfo.from_file(file)
    with pytest.raises(InvalidSchedule, match="name"):
        Cron("* * * * *", timezone=unnamed)


def test_an_unknown_policy_is_refused():
    with pytest.raises(InvalidSchedule, match="'cron', 'skip', 'both'") as caught:
        Cron("* * * * *", dst="twice")
    assert caught.value.field == "dst"
    assert Cron("* * * * *", dst=Dst.SKIP).dst is Dst.SKIP


def test_bounds_are_included():
    schedule = Cron("* * * * *", start_at=NOW, end_at=NOW + 2 * MINUTE)
    assert schedule.next_run(NOW - DAY) == NOW
    assert schedule.next_run(NOW) == NOW + MINUTE
    assert schedule.next_run(NOW + MINUTE) == NOW + 2 * MINUTE
    assert schedule.next_run(NOW + 2 * MINUTE) is None
    assert schedule.previous_run(NOW + DAY) == NOW + 2 * MINUTE
    assert schedule.previous_run(NOW) == NOW
    assert schedule.previous_run(NOW - TICK) is None
    assert schedule.first_run(NOW - DAY) == NOW


def test_bounds_may_hold_nothing():
    schedule = Cron("0 0 1 1 *", start_at=NOW, end_at=NOW + DAY)
    assert schedule.next_run(NOW - DAY) is None
    assert schedule.previous_run(LAST) is None


@pytest.mark.parametrize("make", [lambda **b: Cron("* * * * *", **b), lambda **b: Every(5, **b)])
def test_bounds_are_checked(make):
    with pytest.raises(InvalidSchedule, match="before start_at") as caught:
        make(start_at=NOW, end_at=NOW - TICK)
    assert caught.value.field == "end_at"
    with pytest.raises(InvalidSchedule, match="start_at is a naive"):
        make(start_at=NAIVE)
    with pytest.raises(InvalidSchedule, match="end_at is a naive"):
        make(end_at=NAIVE)
    assert make(start_at=NOW, end_at=NOW).end_at == NOW


@pytest.mark.parametrize(
    ("expression", "at", "expected"),
    [
        ("30 2 * * *", "2026-11-15T02:30:00", "2026-11-15T02:30:00"),
        ("30 2 * * *", "2026-11-15T02:29:59.999999", "2026-11-14T02:30:00"),
        ("*/15 * * * *", "2026-11-15T12:14:00", "2026-11-15T12:00:00"),
        ("0 9 * * MON-FRI", "2026-11-15T12:00:00", "2026-11-13T09:00:00"),
        ("0 0 L * *", "2026-11-15T12:00:00", "2026-10-31T00:00:00"),
        ("0 0 LW * *", "2026-11-15T12:00:00", "2026-10-30T00:00:00"),
        ("0 0 * * MON#2", "2026-11-15T12:00:00", "2026-11-09T00:00:00"),
        ("0 0 29 2 *", "2104-02-28T12:00:00", "2096-02-29T00:00:00"),
        ("59 59 23 31 12 *", "2026-11-15T12:00:00", "2025-12-31T23:59:59"),
        ("10,50 30 * * * *", "2026-11-15T12:30:20.5", "2026-11-15T12:30:10"),
        ("10,50 30 * * * *", "2026-11-15T12:30:05", "2026-11-15T11:30:50"),
    ],
)
def test_the_latest_instant_not_after(expression, at, expected):
    found = Cron(expression).previous_run(datetime.fromisoformat(at).replace(tzinfo=UTC))
    assert found == datetime.fromisoformat(expected).replace(tzinfo=UTC)


def test_a_long_absence_costs_one_question():
    calls = 0

    class Counting:
        fixed = False

        def at_or_after(self, wall):
            raise AssertionError

        def at_or_before(self, wall):
            nonlocal calls
            calls += 1
            return wall.replace(second=0, microsecond=0)

    from duly.rules.zones import last_until

    assert last_until(Counting(), "Europe/Berlin", Dst.CRON, NAIVE) == NAIVE
    assert calls == 1


def test_note_is_none_where_clocks_do_not_change():
    assert Cron("30 2 * * *").note(datetime(2026, 3, 8, 2, 30, tzinfo=UTC)) is None
    with pytest.raises(InvalidSchedule, match="naive"):
        Cron("30 2 * * *").note(NAIVE)


# --- every


@pytest.mark.parametrize(
    ("schedule", "interval"),
    [
        (Every(90), timedelta(seconds=90)),
        (Every(0.25), timedelta(milliseconds=250)),
        (Every(timedelta(hours=2)), timedelta(hours=2)),
        (Every(weeks=1, days=1, hours=1, minutes=1, seconds=1, milliseconds=1), timedelta(8, 3661, 1000)),
        (Every(minutes=1.5), timedelta(seconds=90)),
        (Every(milliseconds=1), timedelta(milliseconds=1)),
        (Every(hours=1, minutes=-15), timedelta(minutes=45)),
    ],
)
def test_intervals(schedule, interval):
    assert schedule.interval == interval


@pytest.mark.parametrize(
    "make",
    [
        Every,
        lambda: Every(0),
        lambda: Every(-5),
        lambda: Every(timedelta(0)),
        lambda: Every(timedelta(microseconds=999)),
        lambda: Every(seconds=0.0005),
        lambda: Every(seconds=-1),
        lambda: Every(float("nan")),
        lambda: Every(float("inf")),
        lambda: Every(True),
        lambda: Every("5m"),
        lambda: Every(minutes="5"),
        lambda: Every(10**400),
        lambda: Every(days=10**9),
        lambda: Every(days=999_999_999, weeks=100),
        lambda: Every(5, seconds=5),
    ],
)
def test_what_is_no_interval_is_refused(make):
    with pytest.raises(InvalidSchedule) as caught:
        make()
    assert caught.value.hint


def test_the_value_refused_is_named():
    for value in (-5, 0.0001, timedelta(0), "5m"):
        with pytest.raises(InvalidSchedule) as caught:
            Every(value)
        assert repr(value) in str(caught.value)


def test_it_is_anchored_to_the_epoch():
    schedule = Every(minutes=7)
    due = schedule.next_run(NOW)
    assert (due - datetime(1970, 1, 1, tzinfo=UTC)) % timedelta(minutes=7) == timedelta(0)
    assert Every(days=1).next_run(NOW) == datetime(2026, 11, 16, tzinfo=UTC)
    assert Every(days=1).next_run(datetime(1960, 5, 5, 5, tzinfo=UTC)) == datetime(1960, 5, 6, tzinfo=UTC)


def test_it_is_anchored_to_its_start():
    start = NOW + timedelta(seconds=7)
    schedule = Every(seconds=10, start_at=start, end_at=start + timedelta(seconds=20))
    assert schedule.preview(9, after=NOW - DAY) == [start, start + 10 * (MINUTE / 60), start + 20 * (MINUTE / 60)]
    assert schedule.next_run(start - TICK) == start
    assert schedule.previous_run(start - TICK) is None
    assert schedule.previous_run(start) == start
    assert schedule.previous_run(NOW + DAY) == start + timedelta(seconds=20)


def test_a_start_after_the_end_of_a_step_is_none():
    schedule = Every(seconds=10, start_at=NOW, end_at=NOW + timedelta(seconds=5))
    assert schedule.next_run(NOW) is None
    assert schedule.next_run(NOW - TICK) == NOW


@settings(derandomize=True, max_examples=300, deadline=None, database=None)
@given(
    st.integers(1000, 10**15),
    st.none() | st.integers(-(10**16), 10**16),
    st.integers(-(10**16), 10**16),
)
def test_no_interval_drifts(interval, anchor, after):
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    start = None if anchor is None else epoch + anchor * TICK
    schedule = Every(interval * TICK, start_at=start)
    moment = epoch + after * TICK
    due = schedule.preview(5, after=moment)
    for earlier, later in pairwise(due):
        assert later - earlier == interval * TICK
    for instant in due:
        assert instant > moment
        assert (instant - (start or epoch)) % (interval * TICK) == timedelta(0)
        assert schedule.previous_run(instant) == instant
    if due and (start is None or due[0] > start):
        assert schedule.previous_run(due[0] - TICK) == due[0] - interval * TICK
        assert due[0] - interval * TICK <= moment


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Every(15), "every 15 seconds"),
        (Every(minutes=1), "every minute"),
        (Every(hours=1, minutes=30), "every 1 hour 30 minutes"),
        (Every(weeks=2), "every 2 weeks"),
        (Every(weeks=1), "every week"),
        (Every(days=10), "every 10 days"),
        (Every(milliseconds=1500), "every 1 second 500 milliseconds"),
        (Every(10, start_at=NOW), "every 10 seconds from 2026-11-15T12:00:00Z"),
        (
            Every(10, start_at=NOW, end_at=NOW + DAY + TICK, jitter=2),
            "every 10 seconds from 2026-11-15T12:00:00Z until 2026-11-16T12:00:00.000001Z, up to 2 seconds later",
        ),
        (Once(NOW), "once at 2026-11-15T12:00:00Z"),
        (Once(NOW, jitter=60), "once at 2026-11-15T12:00:00Z, up to 1 minute later"),
    ],
)
def test_schedules_in_plain_words(schedule, words):
    assert schedule.describe() == words


# --- once


def test_once_is_due_once():
    schedule = Once(NOW.astimezone(ZoneInfo("Asia/Tokyo")))
    assert schedule.at.tzinfo is UTC
    assert schedule.next_run(NOW - TICK) == NOW
    assert schedule.next_run(NOW) is None
    assert schedule.previous_run(NOW) == NOW
    assert schedule.previous_run(NOW - TICK) is None


def test_once_runs_even_if_registered_late():
    assert Once(NOW).first_run(NOW + DAY) == NOW
    assert Once(NOW).first_run(NOW - DAY) == NOW
    assert Every(60).first_run(NOW) == NOW + MINUTE
    assert Cron("* * * * *").first_run(NOW) == NOW + MINUTE


@pytest.mark.parametrize("at", [NAIVE, "2026-11-15", None, NOW.date()])
def test_once_needs_an_aware_instant(at):
    with pytest.raises(InvalidSchedule, match="at is"):
        Once(at)


# --- binding


def test_binding_fills_in_name_and_zone():
    spec = bind(Cron("H H * * *", jitter=5), name="nightly_report", timezone="Europe/Berlin")
    assert spec == CronSpec("3 17 * * *", "Europe/Berlin", jitter=timedelta(seconds=5))
    own = bind(Cron("@daily", timezone="Asia/Tokyo", dst="skip"), name="x", timezone="Europe/Berlin")
    assert own == CronSpec("@daily", "Asia/Tokyo", Dst.SKIP)
    assert bind(Every(60), name="x", timezone="UTC") == EverySpec(timedelta(seconds=60))
    assert bind(Once(NOW), name="x", timezone="UTC") == OnceSpec(NOW)


def test_binding_refuses_an_unknown_default_zone():
    with pytest.raises(InvalidSchedule, match="unknown time zone"):
        bind(Cron("@daily"), name="x", timezone="Mars/Olympus")


def test_bounds_of_the_job_are_merged_in():
    spec = bind(Cron("@daily", start_at=NOW), name="x", timezone="UTC", start_at=NOW, end_at=NOW + DAY)
    assert (spec.start_at, spec.end_at) == (NOW, NOW + DAY)
    assert bind(Every(5), name="x", timezone="UTC", start_at=NOW).start_at == NOW
    assert bind(Once(NOW), name="x", timezone="UTC", start_at=NOW, end_at=NOW) == OnceSpec(NOW)


@pytest.mark.parametrize(
    ("schedule", "bounds", "message"),
    [
        (Cron("@daily", start_at=NOW), {"start_at": NOW + DAY}, "one place"),
        (Every(5, end_at=NOW), {"end_at": NOW + DAY}, "one place"),
        (Every(5, end_at=NOW), {"start_at": NOW + DAY}, "before start_at"),
        (Once(NOW), {"start_at": NOW + DAY}, "outside"),
        (Once(NOW), {"end_at": NOW - DAY}, "outside"),
        (Fridays(), {"start_at": NOW}, "cannot bound"),
        (Every(5), {"start_at": NAIVE}, "naive"),
    ],
)
def test_bounds_that_contradict_are_refused(schedule, bounds, message):
    with pytest.raises(InvalidSchedule, match=message):
        bind(schedule, name="x", timezone="UTC", **bounds)


def test_a_users_object_is_bound_by_its_class():
    spec = bind(Fridays(), name="x", timezone="UTC")
    assert spec == CustomSpec(f"{__name__}.Fridays", timedelta(seconds=30))
    assert bind(Broken(None), name="x", timezone="UTC").jitter == timedelta(0)
    with pytest.raises(InvalidSchedule, match=r"Fridays.*own code"):
        from_spec(spec)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("* * * * *", "Cron("),
        (60, "Every("),
        (DAY, "Every("),
        (NOW, "Once("),
        (None, "next_run"),
        (Fridays, "next_run"),
    ],
)
def test_what_is_no_schedule_is_refused_with_what_was_meant(given, hint):
    with pytest.raises(InvalidSchedule, match="not a schedule") as caught:
        bind(given, name="x", timezone="UTC")
    assert hint in caught.value.hint


INSTANTS = st.none() | st.integers(0, 10**15).map(lambda n: datetime(1970, 1, 1, tzinfo=UTC) + n * TICK)
JITTERS = st.integers(0, 10**9).map(lambda n: n * TICK)


@st.composite
def schedules(draw):
    bounds = sorted(filter(None, [draw(INSTANTS), draw(INSTANTS)]))
    named = dict(zip(["start_at", "end_at"], bounds, strict=False))
    match draw(st.integers(0, 2)):
        case 0:
            expression = draw(
                st.sampled_from(["H H * * *", "@daily", "*/5 H(1-5) * * MON-fri", "0 0 L * *", "1 2 3 4 5 6"])
            )
            zone = draw(st.sampled_from([None, "UTC", "America/New_York"]))
            return Cron(expression, timezone=zone, dst=draw(st.sampled_from(Dst)), jitter=draw(JITTERS), **named)
        case 1:
            return Every(draw(st.integers(1000, 10**12)) * TICK, jitter=draw(JITTERS), **named)
        case _:
            return Once(draw(INSTANTS) or NOW, jitter=draw(JITTERS))


@settings(derandomize=True, max_examples=200, deadline=None, database=None)
@given(schedules(), st.text(min_size=1, max_size=10))
def test_a_spec_survives_the_store_and_comes_back_as_itself(schedule, name):
    spec = bind(schedule, name=name, timezone="Europe/Berlin")
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(spec), type=ScheduleSpec)
    assert stored == spec
    again = from_spec(stored)
    assert bind(again, name="another", timezone="Asia/Tokyo") == spec
    if not isinstance(schedule, Cron) or (schedule.timezone and "H" not in schedule.expression):
        assert again == schedule


def test_equal_specs_share_one_schedule():
    spec = bind(Cron("@daily"), name="x", timezone="UTC")
    assert from_spec(spec) is from_spec(CronSpec("@daily", "UTC"))


# --- jitter


def test_without_jitter_it_is_ready_when_due():
    assert ready_at("uid", NOW, timedelta(0)) is NOW


def test_jitter_is_steady_and_spread():
    jitter = timedelta(seconds=100)
    offsets = [(ready_at(f"uid-{n}", NOW, jitter) - NOW) / jitter for n in range(1000)]
    assert all(0 <= offset < 1 for offset in offsets)
    assert 0.45 < sum(offsets) / len(offsets) < 0.55
    assert ready_at("uid", NOW, jitter) == NOW + timedelta(seconds=63, microseconds=348906)  # on every machine
    assert len({ready_at("uid", NOW + n * MINUTE, jitter) - n * MINUTE for n in range(50)}) == 50


def test_jitter_beyond_the_calendar_is_none():
    assert ready_at("uid", LAST, DAY) == LAST


# --- users' objects


def test_any_object_with_next_run_is_a_schedule():
    assert isinstance(Fridays(), Schedule)
    assert not isinstance(object(), Schedule)


def test_a_step_is_in_utc():
    berlin = Broken((NOW + DAY).astimezone(ZoneInfo("Europe/Berlin")))
    assert step(berlin, NOW) == NOW + DAY
    assert step(berlin, NOW).tzinfo is UTC
    assert step(Broken(None), NOW) is None
    assert step(Fridays(), NOW) == datetime(2026, 11, 20, 17, 0, tzinfo=UTC)
    assert step(Every(60), NOW) == NOW + MINUTE


@pytest.mark.parametrize("answer", [NAIVE + DAY, "tomorrow", 5, NOW, NOW - DAY, (NOW + DAY).date()])
def test_a_broken_object_is_named_with_what_it_said(answer):
    with pytest.raises(InvalidSchedule) as caught:
        step(Broken(answer), NOW)
    assert f"{__name__}.Broken" in str(caught.value)
    assert repr(answer) in str(caught.value)


@pytest.mark.parametrize("schedule", [Every(60), Cron("* * * * *"), Once(NOW)], ids=repr)
def test_the_latest_in_a_range_includes_both_ends(schedule):
    assert latest(schedule, NOW, NOW) == NOW
    assert latest(schedule, NOW - DAY, NOW) == NOW
    assert latest(schedule, NOW + TICK, NOW + MINUTE / 2) is None


def test_the_latest_of_a_users_object_is_found_by_stepping():
    friday = datetime(2026, 11, 20, 17, 0, tzinfo=UTC)
    assert latest(Fridays(), NOW, NOW + 30 * DAY) == friday + 21 * DAY
    assert latest(Fridays(), friday, friday) == friday
    assert latest(Fridays(), NOW, friday - TICK) is None
    assert latest(Fridays(), NOW, NOW + 300 * DAY, budget=3) == friday + 14 * DAY


def test_the_latest_of_a_users_object_may_be_known_to_it():
    assert latest(Broken(None, previous=NOW), NOW - DAY, NOW + DAY) == NOW
    assert latest(Broken(None, previous=NOW), NOW + TICK, NOW + DAY) is None
    with pytest.raises(InvalidSchedule, match="later"):
        latest(Broken(None, previous=NOW + 2 * DAY), NOW, NOW + DAY)
    with pytest.raises(InvalidSchedule, match="aware"):
        latest(Broken(None, previous=NAIVE), NOW, NOW + DAY)
