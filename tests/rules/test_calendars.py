"""Calendars and unions: what is excluded, against a brute-force oracle; bounds of the search; stored forms."""

from __future__ import annotations

import pickle
import re
import time as clock
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly import Calendar, Cron, Every, Once, Union
from duly.errors import InvalidSchedule
from duly.model import CustomSpec, JobSpec, ScheduleSpec
from duly.model.job import is_combined, only_in_code
from duly.rules.calendars import MOST_SPANS, calendar_of
from duly.rules.combined import closures, excluded_at, in_code
from duly.rules.schedules import bind, from_spec, latest, step

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def local(text: str, zone: str = "Europe/Berlin") -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


def days_of(schedule, count, after=NOW):
    return [f"{due.astimezone(BERLIN):%a %d %b}" for due in schedule.preview(count, after=after)]


class Hourly:
    """A user's schedule without previous_run."""

    def next_run(self, after: datetime) -> datetime:
        return after.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + HOUR


# --- what calendars exclude


def test_weekends_and_weekdays():
    daily = Cron("0 9 * * *", timezone="Europe/Berlin")
    assert days_of(daily.excluding(Calendar.weekends()), 4) == ["Thu 19 Nov", "Fri 20 Nov", "Mon 23 Nov", "Tue 24 Nov"]
    assert days_of(daily.excluding(Calendar.weekdays()), 3) == ["Sat 21 Nov", "Sun 22 Nov", "Sat 28 Nov"]


def test_days_are_those_of_the_schedules_zone_unless_the_calendar_has_its_own():
    late = Cron("30 23 * * *", timezone="America/New_York")  # 04:30 UTC of the next day
    friday = datetime(2026, 11, 20, 12, tzinfo=UTC)
    here = late.excluding(Calendar.weekends()).next_run(friday)
    assert here == local("2026-11-20T23:30", "America/New_York")
    in_utc = late.excluding(Calendar.weekends(timezone="UTC")).next_run(friday)
    assert in_utc == local("2026-11-22T23:30", "America/New_York")


def test_dates_ranges_and_times():
    calendar = Calendar.dates(
        "2026-12-24",
        date(2026, 12, 26),
        ("2026-12-28", date(2026, 12, 30)),
        "2027-01-01T00:00+01:00/2027-01-01T12:00+01:00",
        (local("2027-01-02T08:00"), local("2027-01-02T10:00")),
    )
    daily = Cron("0 9 * * *", timezone="Europe/Berlin").excluding(calendar)
    assert days_of(daily, 5, local("2026-12-23T12:00")) == [
        "Fri 25 Dec",
        "Sun 27 Dec",
        "Thu 31 Dec",
        "Sun 03 Jan",
        "Mon 04 Jan",
    ]


def test_the_end_of_a_time_range_is_not_part_of_it_and_the_last_date_is():
    window = Calendar.dates((NOW, NOW + HOUR))
    assert Every(HOUR).excluding(window).next_run(NOW - TICK) == NOW + HOUR
    one_day = Calendar.dates("2026-11-18/2026-11-18", timezone="UTC")
    assert Every(HOUR).excluding(one_day).next_run(NOW) == datetime(2026, 11, 19, tzinfo=UTC)


def test_hours_may_pass_midnight_and_belong_to_the_day_on_which_they_start():
    nights = Calendar.hours("22:00-06:00", weekdays=["fri"])
    schedule = Cron("0 * * * *", timezone="Europe/Berlin").excluding(nights)
    friday_evening = local("2026-11-20T20:30")
    assert [f"{due.astimezone(BERLIN):%a %H}" for due in schedule.preview(4, after=friday_evening)] == [
        "Fri 21",
        "Sat 06",
        "Sat 07",
        "Sat 08",
    ]
    saturday_night = local("2026-11-21T23:30")
    assert schedule.next_run(saturday_night) == local("2026-11-22T00:00")
    whole = Calendar.hours("00:00-24:00", weekdays=["saturday"])
    assert Every(HOUR).excluding(whole).next_run(datetime(2026, 11, 20, 23, tzinfo=UTC)) == datetime(
        2026, 11, 22, tzinfo=UTC
    )


def test_a_day_with_a_clock_change_is_excluded_as_a_whole():
    short, long = Calendar.dates("2026-03-29"), Calendar.dates("2026-10-25")
    hourly = Cron("0 * * * *", timezone="Europe/Berlin")
    assert hourly.excluding(short).next_run(local("2026-03-28T23:30")) == local("2026-03-30T00:00")
    assert hourly.excluding(long).next_run(local("2026-10-24T23:30")) == local("2026-10-26T00:00")
    assert local("2026-10-26T00:00") - local("2026-10-25T00:00") == DAY  # wall time; 25 hours have passed


def test_excluded_hours_in_a_gap_end_with_the_gap():
    window = Calendar.hours("01:00-02:30")  # 02:00 to 03:00 does not exist on 29 March
    every = Cron("*/15 * * * *", timezone="Europe/Berlin").excluding(window)
    assert every.next_run(local("2026-03-29T00:50")) == local("2026-03-29T03:00")


def test_hours_that_happen_twice_are_excluded_twice():
    window = Calendar.hours("02:00-02:30")
    every = Cron("*/15 * * * *", timezone="Europe/Berlin").excluding(window)
    found = every.preview(5, after=datetime(2026, 10, 25, 0, 0, tzinfo=UTC) - TICK)  # 02:00 summer time
    assert [f"{due:%H:%M}" for due in found] == ["00:30", "00:45", "01:30", "01:45", "02:00"]


def test_calendars_add_up():
    schedule = Cron("0 9 * * *", timezone="Europe/Berlin").excluding(Calendar.weekends(), Calendar.dates("2026-11-23"))
    again = Cron("0 9 * * *", timezone="Europe/Berlin").excluding(Calendar.weekends())
    again = again.excluding(Calendar.dates("2026-11-23"))
    assert schedule == again
    assert days_of(schedule, 3, local("2026-11-20T12:00")) == ["Tue 24 Nov", "Wed 25 Nov", "Thu 26 Nov"]


# --- unions


def test_a_union_is_due_when_a_part_is_and_once_where_several_are():
    union = Cron("0 9 * * 1-5") | Cron("0 12 * * 6") | Cron("0 9 * * *")
    assert union == Union(Cron("0 9 * * 1-5"), Cron("0 12 * * 6"), Cron("0 9 * * *"))
    found = union.preview(5, after=datetime(2026, 11, 20, 8, tzinfo=UTC))
    assert [f"{due:%a %H}" for due in found] == ["Fri 09", "Sat 09", "Sat 12", "Sun 09", "Mon 09"]
    assert union.previous_run(datetime(2026, 11, 21, 23, tzinfo=UTC)) == datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_an_instant_that_one_part_excludes_is_due_if_another_part_has_it():
    union = Cron("0 9 * * *").excluding(Calendar.weekends()) | Cron("0 9 * * 6")
    saturday = datetime(2026, 11, 21, 9, tzinfo=UTC)
    assert union.next_run(saturday - HOUR) == saturday
    assert excluded_at(union, saturday) is None
    assert excluded_at(union, saturday + DAY)[0] == saturday + DAY


def test_parts_of_a_union_have_one_jitter():
    assert (Every(60, jitter=5) | Every(90, jitter=5)).jitter == timedelta(seconds=5)
    with pytest.raises(InvalidSchedule, match="different jitter; give all of them the same"):
        Every(60, jitter=5) | Every(90)


@pytest.mark.parametrize("parts", [(), (Every(60),) * 51, ("0 9 * * *",), (Every,), (None,)])
def test_a_union_takes_1_to_50_schedules(parts):
    with pytest.raises(InvalidSchedule):
        Union(*parts)


# --- a user's own schedule


def test_own_schedules_can_be_combined_and_stay_code():
    own = Union(Hourly()).excluding(Calendar.weekends())
    friday = datetime(2026, 11, 20, 23, 30, tzinfo=UTC)
    assert own.next_run(friday) == datetime(2026, 11, 23, tzinfo=UTC)
    spec = bind(own, name="x", timezone="UTC")
    assert only_in_code(spec)
    assert in_code(own)
    assert not is_combined(spec)
    assert latest(own, friday - DAY, datetime(2026, 11, 22, tzinfo=UTC)) == datetime(2026, 11, 20, 23, tzinfo=UTC)
    with pytest.raises(InvalidSchedule, match="previous_run"):
        own.previous_run(friday)


# --- stored form


COMBINED = [
    Cron("H 9 * * *").excluding(Calendar.weekends()),
    Cron("0 9 * * 1-5", timezone="Asia/Tokyo", jitter=3) | Every(3600, jitter=3),
    (Cron("0 9 * * *") | Once(NOW)).excluding(
        Calendar.dates("2026-12-24/2027-01-01", labels={"2026-11-01": "All Saints"})
    ),
    Every(60).excluding(
        Calendar.hours("22:00-06:00", weekdays=("sat", "sun"), timezone="Europe/Berlin", name="nights")
    ),
    Cron("0 9 * * *").excluding(Calendar.weekends()) | Cron("0 12 * * 6"),
]


@pytest.mark.parametrize("schedule", COMBINED)
def test_a_spec_survives_every_store_and_computes_the_same(schedule):
    spec = bind(schedule, name="report", timezone="Europe/Berlin", end_at=None)
    assert is_combined(spec)
    job = JobSpec(name="report", handler="report", schedule=spec)
    for codec in (msgspec.json, msgspec.msgpack):
        stored = codec.decode(codec.encode(job), type=JobSpec)
        assert stored == job
        assert stored.digest() == job.digest()
        again = from_spec(stored.schedule)
        assert bind(again, name="another", timezone="UTC") == spec
        assert again.preview(50, after=NOW) == from_spec(spec).preview(50, after=NOW)
    assert pickle.loads(pickle.dumps(schedule)) == schedule


def test_nodes_of_0_1_0_read_a_combination_as_a_schedule_of_code():
    """They know four tags, and ignore fields that they do not know."""

    class OldCustom(msgspec.Struct, tag="custom"):
        kind: str
        jitter: timedelta = timedelta(0)

    for schedule in COMBINED:
        spec = bind(schedule, name="report", timezone="Europe/Berlin")
        old = msgspec.json.decode(msgspec.json.encode(spec), type=OldCustom)
        assert (old.kind, old.jitter) == (spec.kind, spec.jitter)


def test_a_custom_spec_of_0_1_0_keeps_its_digest():
    spec = CustomSpec("tides.Moon", timedelta(seconds=3))
    assert msgspec.json.decode(msgspec.json.encode(spec)) == {"type": "custom", "kind": "tides.Moon", "jitter": "PT3S"}
    assert msgspec.json.decode(msgspec.json.encode(spec), type=ScheduleSpec) == spec
    assert only_in_code(spec)


def test_job_bounds_apply_to_all_parts():
    end = NOW + 3 * DAY
    spec = bind(Every(DAY) | Cron("0 9 * * *"), name="x", timezone="UTC", start_at=NOW, end_at=end)
    found = from_spec(spec).preview(100, after=NOW - 30 * DAY)
    assert found[0] >= NOW
    assert found[-1] <= end
    assert from_spec(spec).next_run(end) is None


# --- the search


NEVER = [
    Cron("0 9 * * 6").excluding,
    Cron("0 9 * * 0,6").excluding,
    (Cron("0 9 * * 6") | Cron("0 12 * * 0")).excluding,
    Once(datetime(2026, 11, 21, 9, tzinfo=UTC)).excluding,
]


@pytest.mark.parametrize("excluding", NEVER)
def test_a_schedule_that_is_always_excluded_is_refused(excluding):
    with pytest.raises(InvalidSchedule, match="never runs: calendars exclude every due time; change one of them"):
        excluding(Calendar.weekends())


def test_everything_is_excluded_by_two_calendars_together():
    began = clock.perf_counter()
    with pytest.raises(InvalidSchedule, match="never runs"):
        Every(milliseconds=1).excluding(Calendar.weekends(), Calendar.weekdays())
    with pytest.raises(InvalidSchedule, match="never runs"):
        Cron("0 23 * * *").excluding(Calendar.hours("22:00-06:00"))
    assert clock.perf_counter() - began < 20


def test_a_zone_that_had_other_rules_long_ago_is_judged_by_the_present_ones():
    """Samoa was a day behind until 2011: what these two exclude together was everything then, and is not now."""
    calendars = Calendar.weekdays(timezone="Pacific/Apia"), Calendar.weekends(timezone="America/New_York")
    schedule = Cron("0 0 * * *").excluding(*calendars)
    assert schedule.next_run(datetime(2026, 3, 26, tzinfo=UTC)) == datetime(2026, 3, 28, tzinfo=UTC)


def test_a_fast_schedule_passes_a_long_blackout_at_once():
    year = Every(milliseconds=1).excluding(Calendar.dates("2027-01-01/2027-12-31"))
    assert year.next_run(datetime(2027, 1, 1, tzinfo=UTC)) == datetime(2028, 1, 1, tzinfo=UTC)
    assert year.previous_run(datetime(2027, 12, 1, tzinfo=UTC)) == datetime(2027, 1, 1, tzinfo=UTC) - timedelta(
        milliseconds=1
    )


def test_after_a_blackout_without_end_nothing_is_due():
    schedule = Cron("0 9 * * *").excluding(Calendar.dates("2027-01-01/9999-12-31"))
    assert schedule.next_run(datetime(2027, 1, 1, tzinfo=UTC)) is None
    assert schedule.previous_run(datetime(2100, 1, 1, tzinfo=UTC)) == datetime(2026, 12, 31, 9, tzinfo=UTC)


def test_a_past_once_runs_at_once_unless_it_is_excluded():
    at = NOW - DAY
    assert Once(at).excluding(Calendar.weekends()).first_run(NOW) == at
    assert Every(DAY).excluding(Calendar.weekends()).first_run(NOW) == NOW.replace(hour=0) + DAY


# --- properties, against brute force


zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"])
minutes = st.integers(0, 24 * 60 - 1).map(lambda number: time(number // 60, number % 60))
some_days = st.dates(date(2026, 3, 20), date(2026, 4, 10)) | st.dates(date(2026, 10, 20), date(2026, 11, 5))


@st.composite
def calendars(draw):
    zone = draw(zones)
    kind = draw(st.sampled_from(["weekends", "weekdays", "dates", "hours", "times"]))
    if kind in {"weekends", "weekdays"}:
        return getattr(Calendar, kind)(timezone=zone)
    if kind == "dates":
        ranges = draw(st.lists(st.tuples(some_days, st.integers(0, 5)), min_size=1, max_size=5))
        return Calendar.dates(*((first, first + DAY * more) for first, more in ranges), timezone=zone)
    if kind == "hours":
        pairs = draw(st.lists(st.tuples(minutes, minutes), min_size=1, max_size=2))
        weekdays = draw(st.lists(st.sampled_from(["mon", "wed", "sun"]), unique=True))
        return Calendar.hours(*(f"{a:%H:%M}-{b:%H:%M}" for a, b in pairs), weekdays=weekdays, timezone=zone)
    starts = draw(st.lists(st.tuples(some_days, minutes, st.integers(1, 5000)), min_size=1, max_size=4))
    spans = [(datetime.combine(day, at, UTC), timedelta(minutes=long)) for day, at, long in starts]
    return Calendar.dates(*((start, start + long) for start, long in spans), timezone=zone)


@st.composite
def bases(draw):
    zone = draw(zones)
    crons = ["0 * * * *", "*/20 * * * *", "30 2 * * *", "15 1-4 * * *", "0 0 * * *", "59 23 * * 5,6"]
    cron = st.sampled_from(crons).map(lambda text: Cron(text, timezone=zone))
    every = st.integers(7, 900).map(lambda number: Every(minutes=number))
    return draw(cron | every)


def is_excluded(calendar, at):
    """Written from the definition: by the local date and time of the instant, without any search."""
    spec = calendar.spec
    wall = at.astimezone(ZoneInfo(spec.timezone))
    day, now = wall.date(), wall.time()
    if wall.weekday() in spec.weekdays or any(span.first <= day <= span.last for span in spec.days):
        return True
    if any(span.start <= at < span.end for span in spec.times):
        return True
    for span in spec.hours:
        today, yesterday = day.weekday() in span.weekdays, (day - DAY).weekday() in span.weekdays
        if span.start < span.end:
            if today and span.start <= now < span.end:
                return True
        elif (today and now >= span.start) or (yesterday and now < span.end):
            return True
    return False


starts = st.sampled_from([datetime(2026, 3, 26, tzinfo=UTC), datetime(2026, 10, 22, tzinfo=UTC)])


@settings(max_examples=300, deadline=None)
@given(base=bases(), closed=st.lists(calendars(), min_size=1, max_size=3), start=starts)
def test_excluding_finds_what_brute_force_finds(base, closed, start):
    end = start + 12 * DAY
    expected = []
    due = base.next_run(start)
    while due is not None and due <= end:
        if not any(is_excluded(calendar, due) for calendar in closed):
            expected.append(due)
        due = base.next_run(due)
    try:
        schedule = base.excluding(*closed)
    except InvalidSchedule:
        assert not expected
        return
    found, at = [], start
    while (at := schedule.next_run(at)) is not None and at <= end:
        found.append(at)
    assert found == expected
    back, at = [], end
    while (at := schedule.previous_run(at)) is not None and at > start:
        back.append(at)
        at -= TICK
    assert back[::-1] == expected


@settings(max_examples=100, deadline=None)
@given(parts=st.lists(bases(), min_size=1, max_size=4), start=starts)
def test_a_union_finds_what_brute_force_finds(parts, start):
    end = start + 5 * DAY
    expected = set()
    for part in parts:
        due = part.next_run(start)
        while due <= end:
            expected.add(due)
            due = part.next_run(due)
    union, found, at = Union(*parts), [], start
    while (at := union.next_run(at)) is not None and at <= end:
        found.append(at)
    assert found == sorted(expected)
    assert union.previous_run(end) == (max(expected) if expected else union.previous_run(start))


@settings(max_examples=100, deadline=None)
@given(base=bases(), calendar=calendars(), start=starts)
def test_every_excluded_stretch_is_told_once_with_its_first_instant(base, calendar, start):
    end = start + 8 * DAY
    try:
        schedule = base.excluding(calendar)
    except InvalidSchedule:
        return
    told = [due for due, _ in closures(schedule, start, end)]
    assert len(told) == len(set(told))
    for due in told:
        assert is_excluded(calendar, due)
        assert step(base, due - TICK) == due


# --- words and errors


def test_descriptions():
    schedule = Cron("0 9 * * 1-5", timezone="Europe/Berlin").excluding(
        Calendar.weekends(), Calendar.dates("2026-12-24", "2026-12-31", name="shop"), Calendar.hours("22:00-06:00")
    )
    assert schedule.describe() == (
        "at 09:00 on Monday to Friday, Europe/Berlin, except weekends, 2 dates of shop, 22:00-06:00"
    )
    assert (Cron("0 9 * * 1-5") | Every(60)).describe() == "at 09:00 on Monday to Friday; or every minute"
    assert repr(Cron("0 9 * * *").excluding(Calendar.weekends())) == (
        "Cron('0 9 * * *').excluding(<Calendar weekends: weekends>)"
    )


def test_an_excluded_instant_is_told_with_its_calendar():
    christmas = Calendar.dates(labels={"2026-12-25": "Christmas Day"}, name="de")
    schedule = Cron("0 9 * * *", timezone="Europe/Berlin").excluding(christmas)
    due, closed = excluded_at(schedule, local("2026-12-25T09:00"))
    assert (due, str(closed)) == (local("2026-12-25T09:00"), "excluded: Christmas Day (calendar de)")
    assert excluded_at(schedule, local("2026-12-25T10:00")) is None
    assert excluded_at(Cron("0 9 * * *"), local("2026-12-25T09:00")) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Calendar.dates, "calendar 'dates' excludes nothing"),
        (lambda: Calendar.dates("tomorrow"), "'tomorrow' is not a date"),
        (lambda: Calendar.dates(7), "7 is not a date"),
        (lambda: Calendar.dates("2026-12-24/2026-12-20"), "ends before it begins; swap the dates"),
        (lambda: Calendar.dates("2026-12-24T10:00/2026-12-24T12:00"), "without a time zone; add an offset"),
        (lambda: Calendar.dates("2026-12-24/2026-12-24T12:00"), "has a date and a time"),
        (lambda: Calendar.dates("2026-12-24T10:00Z/2026-12-24T10:00Z"), "is empty; its end must be later"),
        (lambda: Calendar.hours("25:00-26:00"), "is not a range of hours; write for example 22:00-06:00"),
        (lambda: Calendar.hours("22:00"), "is not a range of hours"),
        (lambda: Calendar.hours(8), "is not a range of hours"),
        (lambda: Calendar.hours("22:00-06:00", weekdays=["someday"]), "'someday' is not a day of the week"),
        (lambda: Calendar.weekends(timezone="Europe/Berlun"), "Europe/Berlin"),
        (lambda: Every(60).excluding(), "0 calendars; exclude 1 to 20"),
        (lambda: Every(60).excluding("weekends"), "'weekends' is not a calendar; use for example Calendar.weekends()"),
        (lambda: Calendar.dates(*[date(2026, 1, 1)] * (MOST_SPANS + 1)), "2001 dates; at most 2000 are possible"),
        (lambda: calendar_of({}), "give exactly one of weekends"),
        (lambda: calendar_of({"weekends": True, "hours": []}), "give exactly one of weekends"),
        (lambda: calendar_of({"weekends": True, "on": ["sat"]}), "'on' does not belong to weekends"),
        (lambda: calendar_of({"weekends": "yes"}), "write weekends = true"),
        (lambda: Calendar.dates("2026-12-24", name=""), "name of a calendar"),
    ],
)
def test_errors_name_the_value_and_the_way_out(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


# --- sources


ICS = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//test//EN
BEGIN:VEVENT
UID:1
DTSTAMP:20260101T000000Z
DTSTART;VALUE=DATE:20261224
DTEND;VALUE=DATE:20261227
SUMMARY:Christmas
END:VEVENT
BEGIN:VEVENT
UID:2
DTSTAMP:20260101T000000Z
DTSTART;TZID=Europe/Berlin:20260106T140000
DTEND;TZID=Europe/Berlin:20260106T160000
RRULE:FREQ=WEEKLY;BYDAY=TU
SUMMARY:Maintenance
END:VEVENT
END:VCALENDAR
"""


def test_an_ical_file_with_days_times_and_recurrences(tmp_path):
    path = tmp_path / "closed.ics"
    path.write_text(ICS)
    calendar = Calendar.ical(path, years=[2026])
    assert calendar.spec.name == "closed"
    assert calendar.spec.until == date(2026, 12, 31)
    schedule = Cron("0 15 * * *", timezone="Europe/Berlin").excluding(calendar)
    assert days_of(schedule, 3, local("2026-11-23T12:00")) == ["Mon 23 Nov", "Wed 25 Nov", "Thu 26 Nov"]
    assert days_of(schedule, 2, local("2026-12-23T12:00")) == ["Wed 23 Dec", "Sun 27 Dec"]
    assert str(excluded_at(schedule, local("2026-12-25T15:00"))[1]) == "excluded: Christmas (calendar closed)"
    path.unlink()  # its content is stored with the definition
    spec = bind(schedule, name="x", timezone="UTC")
    assert from_spec(spec).preview(9, after=NOW) == schedule.preview(9, after=NOW)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "cannot be read"),
        (ICS.replace("FREQ=WEEKLY;BYDAY=TU", "FREQ=SECONDLY"), "recurs secondly"),
        (ICS.replace("FREQ=WEEKLY;BYDAY=TU", "FREQ=DAILY;BYHOUR=1,2,3"), "several times a day"),
        ("BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\nEND:VCALENDAR\n", "excludes nothing"),
        ("x" * 2_000_000, "larger than 1 MB"),
    ],
)
def test_an_ical_file_that_is_refused(text, message):
    with pytest.raises(InvalidSchedule, match=message):
        Calendar.ical(text, years=[2026])


def test_an_ical_file_that_is_missing():
    with pytest.raises(InvalidSchedule, match="cannot be read: No such file"):
        Calendar.ical(Path("missing.ics"))


def test_public_holidays_are_looked_up_once():
    calendar = Calendar.holidays("DE", subdivision="BY", years=[2026, 2027])
    assert calendar.spec.name == "de-by"
    assert calendar.spec.until == date(2027, 12, 31)
    assert {span.first for span in calendar.spec.days} >= {date(2026, 1, 6), date(2026, 12, 25), date(2027, 1, 1)}
    schedule = Cron("0 9 * * *", timezone="Europe/Berlin").excluding(calendar)
    _, closed = excluded_at(schedule, local("2026-12-25T09:00"))
    assert closed.calendar == "de-by"
    assert closed.reason
    this_year = datetime.now(UTC).year
    assert Calendar.holidays("DE").spec.until == date(this_year + 5, 12, 31)


@pytest.mark.parametrize(("country", "subdivision"), [("XX", None), ("DE", "XX"), ("", None)])
def test_holidays_of_an_unknown_place(country, subdivision):
    with pytest.raises(InvalidSchedule, match="no public holidays are known"):
        Calendar.holidays(country, subdivision=subdivision, years=[2026])


@pytest.mark.parametrize("years", [[], [1800], [2300], [1950, 2150]])
def test_years_are_bounded(years):
    with pytest.raises(InvalidSchedule, match="give up to 50 years"):
        Calendar.holidays("DE", years=years)
