"""Clock changes: tables of known nights, and properties against the oracle over many zones, years and expressions."""

from __future__ import annotations

import struct
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from io import BytesIO
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import cron_oracle
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from duly.errors import InvalidSchedule
from duly.rules.schedules import Cron
from duly.rules.zones import _stretches

TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

ALL_ZONES = sorted(available_timezones())
ODD_ZONES = [
    "Africa/Casablanca",  # winter time only in Ramadan
    "America/Godthab",  # changes at 22:00 the evening before
    "America/New_York",
    "America/Sao_Paulo",  # changed at midnight, when it did
    "America/St_Johns",  # changed at 00:01 until 2011
    "Antarctica/Troll",  # two hours
    "Asia/Gaza",
    "Asia/Kathmandu",  # a quarter of an hour, once
    "Asia/Pyongyang",
    "Australia/Lord_Howe",  # half an hour
    "Europe/Berlin",
    "Europe/Dublin",  # negative summer time
    "Pacific/Apia",  # skipped a day
    "Pacific/Chatham",
    "UTC",
]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def walk(schedule: Cron, low: datetime, high: datetime) -> list[datetime]:
    """What next_run finds from `low` to before `high`."""
    found = []
    due = schedule.next_run(low - TICK)
    while due is not None and due < high:
        found.append(due)
        due = schedule.next_run(due)
    return found


def walk_back(schedule: Cron, low: datetime, high: datetime) -> list[datetime]:
    """What previous_run finds from `low` to before `high`, in order of time."""
    found = []
    due = schedule.previous_run(high - TICK)
    while due is not None and due >= low:
        found.append(due)
        due = schedule.previous_run(due - TICK)
    return found[::-1]


def local(schedule: Cron, low: str, high: str) -> list[str]:
    zone = ZoneInfo(schedule.timezone or "UTC")
    return [f"{due.astimezone(zone):%d %H:%M%z}" for due in walk(schedule, utc(low), utc(high))]


# --- the two nights of New York in 2026: 8 March, 02:00 becomes 03:00; 1 November, 02:00 becomes 01:00 again

SPRING = ("2026-03-07T12:00", "2026-03-09T12:00")
AUTUMN = ("2026-10-31T12:00", "2026-11-02T12:00")


@pytest.mark.parametrize(
    ("expression", "dst", "night", "expected"),
    [
        ("30 2 * * *", "cron", SPRING, ["08 03:00-0400", "09 02:30-0400"]),
        ("30 2 * * *", "both", SPRING, ["08 03:00-0400", "09 02:30-0400"]),
        ("30 2 * * *", "skip", SPRING, ["09 02:30-0400"]),
        ("0,20,40 2 * * *", "cron", SPRING, ["08 03:00-0400", "09 02:00-0400", "09 02:20-0400", "09 02:40-0400"]),
        ("0 2,3 * * *", "cron", SPRING, ["08 03:00-0400", "09 02:00-0400", "09 03:00-0400"]),
        ("10 30 2 * * *", "cron", SPRING, ["08 03:00-0400", "09 02:30-0400"]),
        ("*/30 2 * * *", "cron", SPRING, ["09 02:00-0400", "09 02:30-0400"]),
        ("30 1 * * *", "cron", AUTUMN, ["01 01:30-0400", "02 01:30-0500"]),
        ("30 1 * * *", "skip", AUTUMN, ["01 01:30-0400", "02 01:30-0500"]),
        ("30 1 * * *", "both", AUTUMN, ["01 01:30-0400", "01 01:30-0500", "02 01:30-0500"]),
        ("0 0-3 1 * *", "cron", AUTUMN, ["01 00:00-0400", "01 01:00-0400", "01 02:00-0500", "01 03:00-0500"]),
    ],
)
def test_fixed_times_in_new_york(expression, dst, night, expected):
    assert local(Cron(expression, timezone="America/New_York", dst=dst), *night) == expected


def test_the_instant_after_a_gap_is_due_until_it_is_reached():
    schedule, change = Cron("30 2 * * *", timezone="America/New_York"), utc("2026-03-08T07:00")
    assert schedule.next_run(change - TICK) == change
    assert schedule.next_run(change) == utc("2026-03-09T06:30")
    assert schedule.previous_run(change) == change
    assert schedule.previous_run(change - TICK) == utc("2026-03-07T07:30")


@pytest.mark.parametrize("dst", ["cron", "skip", "both"])
def test_wildcards_follow_real_time(dst):
    for expression, pace in (("*/15 * * * *", HOUR / 4), ("0 * * * *", HOUR), ("7 */1 * * *", HOUR)):
        schedule = Cron(expression, timezone="America/New_York", dst=dst)
        for low, high in (SPRING, AUTUMN):
            due = walk(schedule, utc(low), utc(high))
            assert {later - earlier for earlier, later in pairwise(due)} == {pace}
            assert len(due) == 2 * DAY // pace


@pytest.mark.parametrize(
    ("zone", "expression", "low", "expected"),
    [
        # Half an hour: 02:00 becomes 02:30 on 4 October 2026, and 01:30 on 5 April.
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T14:00", ["04 02:30+1100", "05 02:15+1100"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T10:00", ["05 01:45+1100", "06 01:45+1030"]),
        ("Australia/Lord_Howe", "15 1 * * *", "2026-04-04T10:00", ["05 01:15+1100", "06 01:15+1030"]),
        # Two hours: 01:00 becomes 03:00 on 29 March 2026, and 03:00 becomes 01:00 on 25 October.
        ("Antarctica/Troll", "0 1,2 * * *", "2026-03-28T20:00", ["29 03:00+0200", "30 01:00+0200", "30 02:00+0200"]),
        ("Antarctica/Troll", "30 1,2 25 * *", "2026-10-24T20:00", ["25 01:30+0200", "25 02:30+0200"]),
        # Offsets in quarters: 02:45 becomes 03:45 on 27 September 2026.
        ("Pacific/Chatham", "0 3 * * *", "2026-09-26T08:00", ["27 03:45+1345", "28 03:00+1345"]),
        # The whole of 30 December 2011 was skipped.
        ("Pacific/Apia", "30 2 * * *", "2011-12-29T14:00", ["31 00:00+1400", "31 02:30+1400"]),
        ("Pacific/Apia", "30 2 30 12 *", "2011-12-29T12:00", ["31 00:00+1400"]),
        # One minute past midnight: 00:01 became 01:01 on 14 March 2010, and 23:01 of the day before on 7 November.
        ("America/St_Johns", "30 0 14 * *", "2010-03-13T12:00", ["14 01:01-0230"]),
        ("America/St_Johns", "0 0 * * *", "2010-11-06T12:00", ["07 00:00-0230", "08 00:00-0330"]),
        ("America/St_Johns", "30 23 * * *", "2010-11-06T12:00", ["06 23:30-0230", "07 23:30-0330"]),
        # Irish standard time is the summer time.
        ("Europe/Dublin", "30 1 * * *", "2026-03-28T12:00", ["29 02:00+0100", "30 01:30+0100"]),
        ("Europe/Dublin", "30 1 * * *", "2026-10-24T12:00", ["25 01:30+0100", "26 01:30+0000"]),
        # A new offset once: 1 January 1986 began at 00:15.
        ("Asia/Kathmandu", "5 0 * * *", "1985-12-31T12:00", ["01 00:15+0545", "02 00:05+0545"]),
        # Ramadan: clocks go back on 15 February 2026 and forward again on 22 March.
        ("Africa/Casablanca", "30 2 * * *", "2026-02-14T12:00", ["15 02:30+0100", "16 02:30+0000"]),
        ("Africa/Casablanca", "30 2 * * *", "2026-03-21T12:00", ["22 03:00+0100", "23 02:30+0100"]),
    ],
)
def test_known_nights_elsewhere(zone, expression, low, expected):
    high = (utc(low) + 46 * HOUR).isoformat()
    assert local(Cron(expression, timezone=zone), low, high) == expected


def test_a_repetition_over_the_turn_of_the_year_is_not_due_twice():
    # In Niamey clocks went back by 68 minutes at 23:51:32 UTC on the last day of 1911. Years are looked up one by one.
    low, high = utc("1911-12-31T12:00"), utc("1912-01-01T20:00")
    first, second = utc("1911-12-31T23:21:32"), utc("1912-01-01T00:30")
    assert walk(Cron("30 23 * * *", timezone="Africa/Niamey"), low, high) == [first]
    assert walk_back(Cron("30 23 * * *", timezone="Africa/Niamey"), low, high) == [first]
    both = Cron("30 23 * * *", timezone="Africa/Niamey", dst="both")
    assert walk(both, low, high) == walk_back(both, low, high) == [first, second]
    assert both.note(first) == "23:30 happens twice that day; this is the first"
    assert both.note(second) == "23:30 happens twice that day; this is the second"


def test_a_time_that_is_always_skipped_is_never_due():
    # The second Sunday of March is when New York's clocks go forward.
    schedule = Cron("30 2 8-14 3 */7", timezone="America/New_York", dst="skip")
    assert schedule.next_run(utc("2026-01-01")) is None
    assert schedule.previous_run(utc("2026-01-01")) == utc("2006-03-12T07:30")  # it was in April before


def test_offsets_of_odd_seconds():
    # Liberia kept 44 minutes and 30 seconds behind UTC until 1972.
    schedule = Cron("0 12 * * *", timezone="Africa/Monrovia")
    assert schedule.preview(2, after=utc("1972-01-05T20:00")) == [utc("1972-01-06T12:44:30"), utc("1972-01-07T12:00")]


# --- notes


@pytest.mark.parametrize(
    ("zone", "expression", "dst", "instant", "note"),
    [
        (
            "America/New_York",
            "30 2 * * *",
            "cron",
            "2026-03-08T07:00",
            "02:30 does not exist that day (clocks go forward)",
        ),
        ("America/New_York", "30 2 * * *", "cron", "2026-03-09T06:30", None),
        (
            "America/New_York",
            "30 1 * * *",
            "cron",
            "2026-11-01T05:30",
            "01:30 happens twice that day; this is the first",
        ),
        ("America/New_York", "30 1 * * *", "cron", "2026-11-01T06:30", None),  # not due
        (
            "America/New_York",
            "30 1 * * *",
            "both",
            "2026-11-01T06:30",
            "01:30 happens twice that day; this is the second",
        ),
        (
            "America/New_York",
            "15 * * * *",
            "cron",
            "2026-11-01T06:15",
            "01:15 happens twice that day; this is the second",
        ),
        ("America/New_York", "0 * * * *", "cron", "2026-03-08T07:00", None),  # due at 03:00 anyway
        ("America/New_York", "30 0 * * *", "cron", "2026-11-01T04:30", None),
        (
            "Pacific/Apia",
            "30 2 * * *",
            "cron",
            "2011-12-30T10:00",
            "2011-12-30 02:30 does not exist (clocks go forward)",
        ),
        ("UTC", "30 2 * * *", "cron", "2026-03-08T02:30", None),
    ],
)
def test_a_note_tells_what_clocks_have_to_do_with_it(zone, expression, dst, instant, note):
    assert Cron(expression, timezone=zone, dst=dst).note(utc(instant)) == note


# --- against the oracle


@lru_cache(maxsize=4096)
def changes(zone: str, year: int) -> list[datetime]:
    """The days of a year in which the zone's offset changes, found by looking every day at noon and midnight."""
    tz = ZoneInfo(zone)
    steps = [datetime(year, 1, 1, tzinfo=UTC) + n * DAY / 2 for n in range(732)]
    offsets = [step.astimezone(tz).utcoffset() for step in steps]
    return [step for step, before, after in zip(steps, offsets, offsets[1:], strict=False) if before != after]


ZONES = st.one_of(st.sampled_from(ODD_ZONES), st.sampled_from(ALL_ZONES))


@st.composite
def nights(draw, env=timedelta(hours=30)):
    """A zone and a window around a clock change, or around any day if there was none that year."""
    zone, year = draw(ZONES), draw(st.integers(1975, 2060))
    centre = draw(st.sampled_from(changes(zone, year) or [datetime(year, 6, 1, tzinfo=UTC)]))
    return zone, centre - env, centre + env + DAY / 2


def field(low, high, *rest):
    number = st.integers(low, high)
    span = st.tuples(number, number).map(sorted)
    one = st.one_of(
        number.map(str),
        span.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.tuples(span, st.integers(1, 30)).map(lambda parts: f"{parts[0][0]}-{parts[0][1]}/{min(parts[1], high)}"),
        st.tuples(number, st.integers(1, 30)).map(lambda parts: f"{parts[0]}/{min(parts[1], high)}"),
        *map(st.just, rest),
    )
    return st.lists(one, min_size=1, max_size=3).map(",".join)


EACH = st.just("*")
EXPRESSIONS = st.tuples(
    st.one_of(field(0, 59), field(0, 59), EACH, st.sampled_from(["*/5", "*/7", "*/30", "*/15,3"])),
    st.one_of(field(0, 23), field(0, 4), field(0, 4), EACH, st.sampled_from(["*/2", "*/3"])),
    st.one_of(EACH, EACH, EACH, field(1, 31, "L", "LW"), st.sampled_from(["*/2", "*/3", "?"])),
    st.one_of(EACH, EACH, EACH, EACH, field(1, 12, "MAR-NOV", "OCT-MAR"), st.just("*/2")),
    st.one_of(
        EACH, EACH, EACH, field(0, 7, "SUN", "sat-mon", "0L", "SUN#2", "5-1", "FRI#5"), st.sampled_from(["*/2", "?"])
    ),
).map(" ".join)
POLICIES = st.sampled_from(["cron", "skip", "both"])


def built(expression, zone, dst) -> Cron:
    try:
        return Cron(expression, timezone=zone, dst=dst)
    except InvalidSchedule:
        assume(condition=False)
        raise


@settings(derandomize=True, max_examples=900, deadline=None, database=None)
@given(nights(), EXPRESSIONS, POLICIES)
def test_it_is_due_exactly_when_the_oracle_says(night, expression, dst):
    zone, low, high = night
    schedule = built(expression, zone, dst)
    expected = cron_oracle.due(expression, zone, dst, low, high)
    assert walk(schedule, low, high) == expected
    assert walk_back(schedule, low, high) == expected
    for instant in expected[-20:]:
        assert schedule.next_run(instant - TICK) == instant


@settings(derandomize=True, max_examples=150, deadline=None, database=None)
@given(nights(env=timedelta(hours=1)), EXPRESSIONS, POLICIES, st.sampled_from(["*", "*/20", "5", "30,59"]))
def test_seconds_are_due_exactly_when_the_oracle_says(night, expression, dst, seconds):
    zone, low, high = night
    schedule = built(f"{seconds} {expression}", zone, dst)
    expected = cron_oracle.due(f"{seconds} {expression}", zone, dst, low, high)
    assert schedule.preview(500, after=low - TICK)[: len(expected)] == expected[:500]
    assert not expected or schedule.previous_run(high - TICK) == expected[-1]


@pytest.mark.parametrize("zone", ALL_ZONES[::7] + ODD_ZONES)
def test_the_changes_of_a_zone_match_the_oracle(zone):
    for year in (1981, 2011, 2026):
        for centre in changes(zone, year):
            low, high = centre - 6 * HOUR, centre + 20 * HOUR
            for expression in ("20,40 0-5,22-23 * * *", "10,50 * * * *"):
                expected = cron_oracle.due(expression, zone, "cron", low, high)
                assert walk(Cron(expression, timezone=zone), low, high) == expected


@settings(derandomize=True, max_examples=600, deadline=None, database=None)
@given(
    ZONES,
    EXPRESSIONS,
    POLICIES,
    st.integers(-(10**9) * 10**6, 4 * 10**9 * 10**6),  # 1938 to 2096, to the microsecond
)
def test_next_and_previous_agree(zone, expression, dst, micros):
    schedule = built(expression, zone, dst)
    after = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    due = schedule.preview(20, after=after)
    assert all(earlier < later for earlier, later in zip([after, *due], due, strict=False))
    assert all(instant.tzinfo is UTC for instant in due)
    for instant in due[:5]:
        assert schedule.previous_run(instant) == instant
    if due:
        before = schedule.previous_run(due[0] - TICK)
        assert before is None or (before <= after and schedule.next_run(before) == due[0])


# --- the stretches themselves, against the data they come from


def raw_changes(data: bytes) -> list[tuple[int, int, int]]:
    """(instant, offset before, offset after) of every change in a TZif file, read from its 64-bit part."""

    def header(at: int) -> tuple[int, ...]:
        return struct.unpack_from(">6l", data, at + 20)

    isut, isstd, leap, times, types, chars = header(0)
    second = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    _, _, _, times, types, _ = header(second)
    at = second + 44
    instants = struct.unpack_from(f">{times}q", data, at)
    kinds = data[at + 8 * times : at + 9 * times]
    offsets = [struct.unpack_from(">l", data, at + 9 * times + 6 * kind)[0] for kind in range(types)]
    befores = [offsets[0], *(offsets[kind] for kind in kinds)]
    found = zip(instants, befores, befores[1:], strict=False)
    return [change for change in found if change[1] != change[2]]


@pytest.mark.parametrize(
    "zone", sorted({*ALL_ZONES[::23], *ODD_ZONES, "Africa/Freetown", "America/Noronha"} - {"localtime"})
)
def test_every_change_in_the_data_is_found(zone):
    data = resources.files("tzdata.zoneinfo").joinpath(*zone.split("/")).read_bytes()
    tz = ZoneInfo.from_file(BytesIO(data))
    expected = [change for change in raw_changes(data) if change[0] > -2_208_988_800]  # from 1900 on
    years = {datetime.fromtimestamp(change[0], UTC).year for change in expected}
    found = [
        (
            int(stretch.start.replace(tzinfo=UTC).timestamp()),
            *map(timedelta.total_seconds, (stretch.before, stretch.offset)),
        )
        for year in sorted(years)
        for stretch in _stretches(tz, year)
        if stretch.before != stretch.offset
    ]
    missing = set(expected) - set(found)
    assert not missing
    last = expected[-1][0] if expected else 0
    assert found[: bisect_right([at for at, *_ in found], last)] == expected
