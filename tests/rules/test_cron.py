"""Cron expressions: what is read, what is refused and why, what `H` chooses, how it is told in words."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, date, datetime, timedelta

import pytest
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st

from duly.errors import InvalidSchedule
from duly.rules.cron import DAY, FIELDS, MAX_ITEMS, MAX_LENGTH, MINUTE, Hashed, name_hash, read, resolve
from duly.rules.schedules import Cron

START = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)  # a Sunday


def days(expression: str, n: int = 4) -> list[str]:
    return [f"{due:%m-%d %H:%M}" for due in Cron(expression).preview(n, after=START)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("30 2 * * *", ["11-16 02:30", "11-17 02:30", "11-18 02:30", "11-19 02:30"]),
        ("*/15 * * * *", ["11-15 12:15", "11-15 12:30", "11-15 12:45", "11-15 13:00"]),
        ("0 0 1 jan,Jul *", ["01-01 00:00", "07-01 00:00", "01-01 00:00", "07-01 00:00"]),
        ("0 9 * * mon-FRI", ["11-16 09:00", "11-17 09:00", "11-18 09:00", "11-19 09:00"]),
        ("0 0 * * 7", ["11-22 00:00", "11-29 00:00", "12-06 00:00", "12-13 00:00"]),
        ("0 0 * * 0", ["11-22 00:00", "11-29 00:00", "12-06 00:00", "12-13 00:00"]),
        ("0 0 * * SAT-SUN", ["11-21 00:00", "11-22 00:00", "11-28 00:00", "11-29 00:00"]),
        ("0 0 * * FRI-MON", ["11-16 00:00", "11-20 00:00", "11-21 00:00", "11-22 00:00"]),
        ("0 0 * * FRI-MON/2", ["11-20 00:00", "11-22 00:00", "11-27 00:00", "11-29 00:00"]),
        ("0 0 1 NOV-FEB *", ["12-01 00:00", "01-01 00:00", "02-01 00:00", "11-01 00:00"]),
        ("0 0 L * *", ["11-30 00:00", "12-31 00:00", "01-31 00:00", "02-28 00:00"]),
        ("0 0 lw * *", ["11-30 00:00", "12-31 00:00", "01-29 00:00", "02-26 00:00"]),
        ("0 0 * * 5L", ["11-27 00:00", "12-25 00:00", "01-29 00:00", "02-26 00:00"]),
        ("0 0 * * friL", ["11-27 00:00", "12-25 00:00", "01-29 00:00", "02-26 00:00"]),
        ("0 0 * * MON#2", ["12-14 00:00", "01-11 00:00", "02-08 00:00", "03-08 00:00"]),
        ("0 0 * * 7#1", ["12-06 00:00", "01-03 00:00", "02-07 00:00", "03-07 00:00"]),
        ("5/20 * * * *", ["11-15 12:05", "11-15 12:25", "11-15 12:45", "11-15 13:05"]),
        ("0 10-14/2 * * ?", ["11-15 14:00", "11-16 10:00", "11-16 12:00", "11-16 14:00"]),
        ("0 0 ? * MON", ["11-16 00:00", "11-23 00:00", "11-30 00:00", "12-07 00:00"]),
        ("\t0  0\t1 * *  ", ["12-01 00:00", "01-01 00:00", "02-01 00:00", "03-01 00:00"]),
        ("00 05 * * *", ["11-16 05:00", "11-17 05:00", "11-18 05:00", "11-19 05:00"]),
        ("@hourly", ["11-15 13:00", "11-15 14:00", "11-15 15:00", "11-15 16:00"]),
        ("@daily", ["11-16 00:00", "11-17 00:00", "11-18 00:00", "11-19 00:00"]),
        ("@Midnight", ["11-16 00:00", "11-17 00:00", "11-18 00:00", "11-19 00:00"]),
        ("@weekly", ["11-22 00:00", "11-29 00:00", "12-06 00:00", "12-13 00:00"]),
        ("@monthly", ["12-01 00:00", "01-01 00:00", "02-01 00:00", "03-01 00:00"]),
        ("@yearly", ["01-01 00:00"] * 4),
        ("@annually", ["01-01 00:00"] * 4),
    ],
)
def test_an_expression_is_due_when_its_fields_say(expression, expected):
    assert days(expression) == expected


def test_six_fields_begin_with_seconds():
    due = Cron("*/20 0 12 * * *").preview(4, after=START)
    assert [f"{at:%d %H:%M:%S}" for at in due] == ["15 12:00:20", "15 12:00:40", "16 12:00:00", "16 12:00:20"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 13 * FRI", ["11-20 00:00", "11-27 00:00", "12-04 00:00", "12-11 00:00"]),  # neither has a star: or
        ("0 0 */13 * FRI", ["11-27 00:00", "01-01 00:00"]),  # a star: and
        ("0 0 1 * */2", ["12-01 00:00", "04-01 00:00", "05-01 00:00", "06-01 00:00"]),
    ],
)
def test_day_fields_combine_as_in_debian(expression, expected):
    assert days(expression, len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "field", "position", "hint"),
    [
        ("61 * * * *", "minute", 0, "0 to 59"),
        ("0 24 * * *", "hour", 2, "midnight is hour 0"),
        ("0 0 32 * *", "day-of-month", 4, "1 to 31"),
        ("0 0 0 * *", "day-of-month", 4, "1 to 31"),
        ("0 0 * 13 *", "month", 6, "1 to 12"),
        ("0 0 * * 8", "day-of-week", 8, "0 to 7"),
        ("60 0 0 * * *", "second", 0, "0 to 59"),
        ("0 0 60 * * *", "hour", 4, "0 to 23"),
        ("1,2,77 * * * *", "minute", 4, "0 to 59"),
        ("10-70 * * * *", "minute", 3, "0 to 59"),
        ("  61 * * * *", "minute", 2, "0 to 59"),
        ("*/0 * * * *", "minute", 2, "1 or more"),
        ("*/90 * * * *", "minute", 2, "Every(minutes=90)"),
        ("0 */25 * * *", "hour", 4, "Every(hours=25)"),
        ("0 0 * */13 *", "month", 8, "at most 12"),
        ("*/x * * * *", "minute", 2, "*/15"),
        ("*/ * * * *", "minute", 2, "*/15"),
        ("*/5/5 * * * *", "minute", 4, "one step"),
        ("/5 * * * *", "minute", 0, "*/5"),
        ("1,,2 * * * *", "minute", 2, "comma"),
        ("1, * * * *", "minute", 2, "comma"),
        ("5- * * * *", "minute", 2, "missing"),
        ("-5 * * * *", "minute", 0, "missing"),
        ("1-2-3 * * * *", "minute", 4, "first-last"),
        ("50-10 * * * *", "minute", 0, "50-59,0-10"),
        ("0 22-2 * * *", "hour", 2, "22-23,0-2"),
        ("*5 * * * *", "minute", 0, "*"),
        ("5* * * * *", "minute", 0, "stands alone"),
        ("? * * * *", "minute", 0, "day fields"),
        ("0 0 1,? * *", "day-of-month", 6, "day fields"),
        ("0 0 15W * *", "day-of-month", 4, "LW"),
        ("0 0 L-3 * *", "day-of-month", 4, "not supported"),
        ("0 0 L/2 * *", "day-of-month", 4, "leave the step out"),
        ("0 0 * * L", "day-of-week", 8, "5L"),
        ("0 0 * * 9L", "day-of-week", 8, "0 to 7"),
        ("0 0 * * MON#6", "day-of-week", 12, "#1 to #5"),
        ("0 0 * * MON#", "day-of-week", 12, "#1 to #5"),
        ("0 0 * * MON#1#2", "day-of-week", 12, "#1 to #5"),
        ("0 0 * * #2", "day-of-week", 8, "missing"),
        ("0 0 * * MONDAY", "day-of-week", 8, "write MON"),
        ("0 0 * MON *", "month", 6, "day-of-week"),
        ("0 0 * * JAN", "day-of-week", 8, "month"),
        ("0 0 * * FRI-XYZ", "day-of-week", 12, "SUN to SAT"),
        ("0 0 * * ſUN", "day-of-week", 8, "SUN"),
        ("٣ * * * *", "minute", 0, "digits 0 to 9"),
        ("*/٣ * * * *", "minute", 2, "digits 0 to 9"),
        ("² * * * *", "minute", 0, "digits 0 to 9"),
        ("0\x00 * * * *", "minute", 0, "control"),
        ("0 0 * * *\n", "day-of-week", 8, "control"),
        ("0~30 * * * *", "minute", 0, "H"),
        ("9" * 200 + " * * * *", "minute", 0, "0 to 59"),
        ("H( * * * *", "minute", 0, "H(0-29)"),
        ("HX * * * *", "minute", 0, "H(0-29)"),
        ("H() * * * *", "minute", 0, "H(0-29)"),
        ("H(5) * * * *", "minute", 0, "H(0-29)"),
        ("H(0-60) * * * *", "minute", 4, "0 to 59"),
        ("H(9-3) * * * *", "minute", 0, "H(3-9)"),
        ("H/0 * * * *", "minute", 2, "1 or more"),
        ("0 0 30 2 *", "day-of-month", 4, "29 days"),
        ("0 0 31 4,6,9,11 *", "day-of-month", 4, "30 days"),
        ("0 0 0 31 2 *", "day-of-month", 6, "29 days"),
        ("0 0 30-31 FEB */2", "day-of-month", 4, "29 days"),
        ("0 0 */30 2 SUN#5", "day-of-week", 11, "loosen"),
        ("0 0 H(29-31) 2 *", "day-of-month", 4, "29 days"),
        ("0 0 31 H *", "day-of-month", 4, "29 days"),
        ("", None, 0, "minute hour"),
        ("   ", None, 3, "minute hour"),
        ("* * * *", None, 7, "minute hour"),
        ("* * * * * * *", None, 12, "start_at"),
        ("* * * * * * * *", None, 12, "minute hour"),
        ("@dayly", None, 0, "@daily"),
        ("@sometimes", None, 0, "@hourly"),
        ("@reboot", None, 0, "starts"),
        ("@every 5m", None, 0, "Every"),
        ("@daily 5", None, 7, "alone"),
        ("*" * 300, None, 256, "256"),
        (",".join("1" * 101) + " * * * *", "minute", 0, "ranges"),
        ("* * * * " + ",".join("1" * 97), "day-of-week", 8, "ranges"),
    ],
)
def test_an_error_names_the_field_the_place_and_the_way_out(expression, field, position, hint):
    with pytest.raises(InvalidSchedule) as caught:
        Cron(expression)
    error = caught.value
    assert (error.field, error.position, error.expression) == (field, position, expression)
    assert hint in error.hint
    assert error.hint in str(error)


@pytest.mark.parametrize("expression", [None, 5, b"* * * * *", ["*"], object()])
def test_only_text_is_an_expression(expression):
    with pytest.raises(InvalidSchedule, match="text"):
        Cron(expression)


def test_as_many_characters_and_items_as_allowed():
    longest = "0 0 * * *".ljust(MAX_LENGTH)
    fullest = ",".join(["1"] * (MAX_ITEMS - 4)) + " * * * *"
    assert Cron(longest) == Cron("0 0 * * *")
    assert Cron(fullest).next_run(START) == START + timedelta(minutes=1)


@pytest.mark.parametrize("expression", ["0 0 29 2 *", "0 0 31 * *", "0 0 30 2 MON", "0 0 31 4 5L", "0 0 * 2 MON#5"])
def test_what_is_rare_is_not_impossible(expression):
    assert Cron(expression).next_run(START) is not None


def test_the_rarest_days_are_found():
    assert Cron("0 0 29 2 *").next_run(datetime(2096, 3, 1, tzinfo=UTC)) == datetime(2104, 2, 29, tzinfo=UTC)
    # The fifth Monday of a February: a leap year that begins it on a Monday, forty years apart around 2100.
    fifth = Cron("0 0 * 2 MON#5")
    assert fifth.next_run(datetime(2072, 3, 1, tzinfo=UTC)) == datetime(2112, 2, 29, tzinfo=UTC)
    assert fifth.previous_run(datetime(2112, 2, 28, tzinfo=UTC)) == datetime(2072, 2, 29, tzinfo=UTC)


# --- H


@pytest.mark.parametrize(
    ("expression", "pattern"),
    [
        ("H * * * *", r"\d+ \* \* \* \*"),
        ("H/15 * * * *", r"(\d|1[0-4])-59/15 \* \* \* \*"),
        ("H(0-29)/10 * * * *", r"\d-29/10 \* \* \* \*"),
        ("h h * * *", r"\d+ \d+ \* \* \*"),
        ("0 H(1-5) * * MON", r"0 [1-5] \* \* MON"),
        ("H H H * * *", r"\d+ \d+ \d+ \* \* \*"),
        ("0 0 H * *", r"0 0 ([1-9]|1\d|2[0-8]) \* \*"),
        ("0 0 1 H *", r"0 0 1 \d+ \*"),
        ("0 0 * * H", r"0 0 \* \* [0-6]"),
        ("0 0 * * H(MON-FRI)", r"0 0 \* \* [1-5]"),
        ("H,30 * * * *", r"\d+,30 \* \* \* \*"),
    ],
)
def test_h_becomes_a_number_from_the_name(expression, pattern):
    for name in ("nightly", "hourly", "x", "käse"):
        assert re.fullmatch(pattern, resolve(read(expression), name))


def test_h_is_the_same_everywhere_and_for_ever():
    assert resolve(read("H H H * H"), "nightly_report") == "3 17 20 * 0"


def test_a_thousand_jobs_spread_over_the_hour():
    minutes = Counter(resolve(read("H 2 * * *"), f"job-{n}").split()[0] for n in range(1000))
    assert len(minutes) == 60
    assert max(minutes.values()) < 40  # 16.7 on average


def test_fields_are_hashed_independently():
    pairs = {(name_hash(f"job-{n}", MINUTE) % 24, name_hash(f"job-{n}", DAY) % 24) for n in range(1000)}
    assert len(pairs) > 400


def test_without_h_the_text_stays():
    assert resolve(read("@daily"), "x") == "@daily"
    assert resolve(read("0  0 * * mon"), "x") == "0 0 * * mon"


# --- words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("* * * * * *", "every second"),
        ("*/15 * * * *", "every 15 minutes"),
        ("*/7 * * * *", "every 7 minutes, counted from the start of each hour"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("30 * * * * *", "at second 30 of every minute"),
        ("*/10 30 * * * *", "every 10 seconds, at minute 30 past every hour"),
        ("0 * * * *", "every hour"),
        ("0 */2 * * *", "every 2 hours"),
        ("30 * * * *", "at minute 30 past every hour"),
        ("5,20 * * * *", "at minutes 5 and 20 past every hour"),
        ("7/15 * * * *", "at minutes 7, 22, 37 and 52 past every hour"),
        ("0-29 * * * *", "every minute from 0 to 29"),
        ("5 */2 * * *", "at minute 5 past every 2nd hour"),
        ("0-29 8-18/3 * * *", "every minute from 0 to 29 past every 3rd hour from 08:00 to 18:00 every day"),
        ("30 2 * * *", "at 02:30 every day"),
        ("15 30 2 * * *", "at 02:30:15 every day"),
        ("0 8,12,16 * * *", "at 08:00, 12:00 and 16:00 every day"),
        ("* 2 * * *", "every minute from 02:00 to 02:59"),
        ("*/15 9-17 * * MON-FRI", "every 15 minutes from 09:00 to 17:59 on Monday to Friday"),
        ("*/15 */2 * * *", "every 15 minutes during every 2nd hour"),
        ("0 9 * * 1-5", "at 09:00 on Monday to Friday"),
        ("0 9 * * fri-mon", "at 09:00 on Friday to Monday"),
        ("0 9 * * MON,WED,FRI", "at 09:00 on Monday, Wednesday and Friday"),
        ("0 9 * * 7", "at 09:00 on Sunday"),
        ("0 9 * * */2", "at 09:00 on Sunday, Tuesday, Thursday and Saturday"),
        ("0 9 * * 5L", "at 09:00 on the last Friday of the month"),
        ("0 9 * * MON#2", "at 09:00 on the 2nd Monday of the month"),
        ("0 9 * 3 MON#1", "at 09:00 on the 1st Monday of March"),
        ("0 9 * 1,7 MON", "at 09:00 on Monday in January and July"),
        ("0 0 1,15 * *", "at 00:00 on the 1st and the 15th of the month"),
        ("0 0 1-7 * *", "at 00:00 on the 1st to the 7th of the month"),
        ("0 0 */2 * *", "at 00:00 on every 2nd day from the 1st of the month"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 LW * *", "at 00:00 on the last weekday of the month"),
        ("0 0 25 12 *", "at 00:00 on the 25th of December"),
        ("0 0 1 */3 *", "at 00:00 on the 1st of January, April, July and October"),
        ("0 0 * 1-3 *", "at 00:00 every day in January to March"),
        ("*/5 * * 2 *", "every 5 minutes in February"),
        ("0 0 1 * MON", "at 00:00 on the 1st of the month or on Monday"),
        ("0 0 */2 * MON", "at 00:00 on every 2nd day from the 1st of the month if it is Monday"),
        ("H * * * *", "at a minute chosen from the job's name past every hour"),
        ("H 2 * * *", "at a minute chosen from the job's name past 02:00 every day"),
        ("H(0-29) 2 * * *", "at a minute from 0 to 29 chosen from the job's name past 02:00 every day"),
        ("H/15 * * * *", "every 15 minutes from a minute chosen from the job's name"),
        ("H H * * *", "at a time chosen from the job's name every day"),
        ("H H(1-5) * * *", "at a time between 01:00 and 05:59 chosen from the job's name every day"),
        ("30 H * * *", "at minute 30 past an hour chosen from the job's name every day"),
        ("30 H/6 * * *", "at minute 30 past every 6th hour from an hour chosen from the job's name every day"),
        ("0 0 H * *", "at 00:00 on a day (1st to 28th, chosen from the job's name) of the month"),
        ("0 0 * * H(1-5)", "at 00:00 on a day of the week from Monday to Friday chosen from the job's name"),
        ("0 0 1 H *", "at 00:00 on the 1st of a month chosen from the job's name"),
        ("@hourly", "every hour"),
        ("@yearly", "at 00:00 on the 1st of January"),
    ],
)
def test_an_expression_in_plain_words(expression, words):
    assert Cron(expression).describe() == words


def test_words_for_zone_bounds_policy_and_jitter():
    schedule = Cron(
        "30 2 * * *", timezone="Europe/Berlin", dst="skip", start_at=START, end_at=START + timedelta(days=9), jitter=90
    )
    assert schedule.describe() == (
        "at 02:30 every day, Europe/Berlin, left out where clocks skip it, from 2026-11-15T12:00:00Z, "
        "until 2026-11-24T12:00:00Z, up to 1 minute 30 seconds later"
    )
    assert Cron("*/5 * * * *", dst="both").describe() == "every 5 minutes"


# --- anything at all

SIGNS = st.text("0123456789*/-,#?LWHJANSUMONFRI() \t@", max_size=40)
WORDS = st.lists(
    st.sampled_from([*"*?HL1", "*/5", "LW", "5L", "MON#2", "H(1-5)", "1-5/2", "FRI-MON", "0,30"]), max_size=7
)


@settings(derandomize=True, max_examples=600, deadline=None, database=None)
@given(st.one_of(st.text(max_size=300), SIGNS, WORDS.map(" ".join)))
@example("*/1 " * 5)
@example("H " * 5)
@example(",".join("*" * 90) + " * * * *")
def test_any_text_is_read_or_refused_with_a_reason(text):
    try:
        expression = read(text)
    except InvalidSchedule as refused:
        error = refused
    else:
        check_read(text, expression)
        return
    assert error.hint
    assert error.position in range(len(text) + 1)


def check_read(text, expression):
    assert len(text) <= MAX_LENGTH
    assert sum(map(len, expression.fields)) <= MAX_ITEMS + 1  # the seconds that were not given
    schedule = Cron(text)
    assert schedule.next_run(START) > START
    assert schedule.describe()
    bound = read(resolve(expression, "some job"))
    assert not any(isinstance(item, Hashed) for items in bound.fields for item in items)


@st.composite
def plain_expressions(draw):
    def number(low, high):
        first = draw(st.integers(low, high))
        last = draw(st.integers(min(first + 1, high), high))
        step = draw(st.integers(1, high - low + 1))
        stepped = f"{first}-{last}/{step}" if first < last else str(first)  # cronsim takes 5-5/2 for 5/2
        return draw(st.sampled_from(["*", f"*/{step}", str(first), f"{first}-{last}", stepped]))

    return " ".join(number(field.low, field.high) for field in FIELDS[1:])


@settings(derandomize=True, max_examples=150, deadline=None, database=None)
@given(plain_expressions(), st.integers(-(10**9), 10**9).map(lambda seconds: START + timedelta(seconds=seconds)))
def test_in_utc_it_is_what_cronsim_says(expression, after):
    try:
        schedule = Cron(expression)
    except InvalidSchedule:
        return
    simulation = CronSim(expression, after)
    assert schedule.preview(5, after=after) == [next(simulation) for _ in range(5)]
    backwards = CronSim(expression, after + timedelta(seconds=1), reverse=True)
    assert schedule.previous_run(after) == next(backwards)


def test_every_weekday_begins_some_month_of_every_length():
    from duly.rules.cron import _LENGTHS, _months_of

    for month, lengths in _LENGTHS.items():
        for length in lengths:
            firsts = _months_of(length, month)
            assert {first.weekday() for first in firsts} == set(range(7))
            assert all(isinstance(first, date) and first.month == month for first in firsts)
