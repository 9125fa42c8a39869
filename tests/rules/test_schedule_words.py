"""Schedules in words: whatever Duly prints is read back as the same schedule."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from duly.errors import InvalidSchedule
from duly.model import Dst
from duly.rules import describe
from duly.rules.cron import FIELDS, expand, read
from duly.rules.durations import seconds_of
from duly.rules.schedule_text import interval_of, schedule_from
from duly.rules.schedule_words import LONGEST, expression_of, is_words
from duly.rules.schedules import Cron, Every, Once

NOW = datetime(2027, 3, 14, 2, 30, tzinfo=UTC)

# Expressions of every kind that the grammar of cron has.
EXPRESSIONS = [
    *("* * * * *", "*/15 * * * *", "*/7 * * * *", "0 * * * *", "0 */2 * * *", "0 */5 * * *", "30 2 * * *"),
    *("0 9-17 * * *", "*/10 9-17 * * *", "*/10 8-9,13-14 * * *", "*/10 */2 * * *", "5 * * * *", "5,20 * * * *"),
    *("5-35 * * * *", "5-59/7 * * * *", "1,2,30-59/3 9,17 * * *", "15 9-17/2 * * *", "10 */3 * * *"),
    *("0 9 * * 1-5", "0 9 * * MON,WED,FRI", "0 0 1 * *", "0 0 1,15 * *", "0 0 */2 * *", "0 0 5-10 * *"),
    *("0 0 5-25/4 * *", "0 0 L * *", "0 0 LW * *", "0 0 * * 5L", "0 0 * * MON#2", "0 0 1 1 *", "0 0 * 6-8 *"),
    *("0 0 * */3 1", "0 0 13 * 5", "0 0 */2 * 1", "0 0 1-7 * */7", "0 0 * 3,11 5L", "0 0 * 1,2 MON#1,FRI"),
    *("30 0 2 * * *", "*/10 * * * * *", "30 * * * * *", "*/10 */5 * * * *", "15,45 */5 9-17 * * *", "1-40 * 3 * * *"),
    *("H H * * *", "H H(1-5) * * *", "H * * * *", "H/15 * * * *", "H(0-29)/10 * * * *", "0 H * * *", "0 0 H * *"),
    *("0 0 H/9 * *", "0 0 1 H *", "0 0 * * H", "15 H(3-9)/2 * * *", "@daily", "@weekly", "@yearly"),
]


def same(first: str, second: str) -> bool:
    """Whether two expressions are due at the same times and treat changes of the clock alike."""
    one, other = read(first), read(second)
    stars = [[type(fields[index][0]).__name__ == "Star" for index in (3, 5)] for fields in (one.fields, other.fields)]
    plain = all(any(expand(item, field) for item in items) for items, field in zip(one.fields, FIELDS, strict=True))
    if plain and not one.hashed:
        values = [
            [
                {value % 7 if field.name == "day-of-week" else value for item in items for value in expand(item, field)}
                for items, field in zip(each.fields, FIELDS, strict=True)
            ]
            for each in (one, other)
        ]
        assert values[0] == values[1]
    times = [Cron(text, timezone="Europe/Berlin").preview(20, after=NOW) for text in (first, second)]
    return times[0] == times[1] and any(stars[0]) == any(stars[1]) and one.times.fixed == other.times.fixed


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_kind_of_expression_is_read_back(expression):
    words = describe.cron(read(expression))
    assert is_words(words), words
    assert same(expression_of(words), expression), words


def items(low: int, high: int):
    """Items without a star."""
    number = st.integers(low, high)
    span = st.tuples(number, number).map(sorted).filter(lambda ends: ends[0] < ends[1])
    step = st.integers(1, high - low)
    return st.one_of(
        number.map(str),
        span.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        # A step that leaves one value of a range has no words of its own: 5-6/7 is 5.
        st.tuples(span, step)
        .filter(lambda each: each[1] <= each[0][1] - each[0][0])
        .map(lambda each: f"{each[0][0]}-{each[0][1]}/{each[1]}"),
        st.just("H"),
        span.map(lambda ends: f"H({ends[0]}-{ends[1]})"),
    )


def field(low: int, high: int, *special: str):
    star = st.one_of(st.just("*"), st.integers(2, high - low).map(lambda by: f"*/{by}"))
    listed = st.lists(
        st.one_of(items(low, high), *[st.just(each) for each in special]), min_size=1, max_size=3, unique=True
    )
    return st.one_of(star, listed.map(",".join))


def mixed(low: int, high: int, *special: str):
    """Lists that may have a star among others, whose place in the list the words do not say."""
    return st.lists(field(low, high, *special), min_size=1, max_size=2).map(",".join)


def expressions(kind):
    return st.tuples(
        st.one_of(st.just("0"), kind(0, 59)),
        kind(0, 59),
        kind(0, 23),
        kind(1, 28, "L", "LW"),
        kind(1, 12),
        kind(0, 6, "5L", "1#2", "0#5"),
    ).map(" ".join)


@settings(max_examples=300)
@given(expressions(field))
def test_what_is_printed_is_read_back_as_the_same_schedule(expression):
    try:
        words = describe.cron(read(expression))
    except InvalidSchedule:
        return
    assume(len(words) <= LONGEST)
    assert same(expression_of(words), expression)


@given(expressions(mixed))
def test_a_text_is_never_read_as_something_else_than_it_says(expression):
    try:
        words = describe.cron(read(expression))
        found = expression_of(words)
    except InvalidSchedule:
        return
    assert describe.cron(read(found)) == words


@given(
    st.integers(1000, 10**13).map(lambda micros: timedelta(microseconds=micros)),
    st.one_of(st.none(), st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1))),
    st.sampled_from([timedelta(0), timedelta(seconds=90), timedelta(milliseconds=1)]),
)
def test_an_interval_is_read_back(interval, start, jitter):
    schedule = Every(interval, start_at=start and start.replace(tzinfo=UTC), jitter=jitter)
    assert schedule_from(schedule.describe()) == schedule


@pytest.mark.parametrize(
    "schedule",
    [
        Cron("30 2 * * *", timezone="Europe/Berlin"),
        Cron("30 2 * * *", timezone="Europe/Berlin", dst=Dst.SKIP),
        Cron("*/15 * * * *", timezone="UTC", jitter=30),
        Cron("0 9 * * 1-5", timezone="America/New_York", dst="both", start_at=NOW, end_at=NOW, jitter=1.5),
        Cron("0 0 1,15 * *", timezone="America/Argentina/Buenos_Aires", end_at=NOW),
        Every(hours=1),
        Every(weeks=2, start_at=NOW, end_at=NOW, jitter=5),
        Once(NOW),
        Once(NOW, jitter=60),
    ],
    ids=str,
)
def test_a_whole_schedule_is_read_back(schedule):
    words = schedule.describe()
    found = schedule_from(words)
    assert found.describe() == words
    if not isinstance(schedule, Cron):
        assert found == schedule
        return
    assert same(found.expression, schedule.expression)
    for name in ("timezone", "dst", "start_at", "end_at", "jitter"):
        assert getattr(found, name) == getattr(schedule, name)


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("every 15m", Every(minutes=15)),
        ("Every 15 minutes", Every(minutes=15)),
        ("every 1h30m", Every(minutes=90)),
        ("every 15 minutes, UTC", Cron("*/15 * * * *", timezone="UTC")),
        ("  at  02:30   every day ", Cron("30 2 * * *")),
        ("At 02:30 every day", Cron("30 2 * * *")),
        ("at 02:30", Cron("30 2 * * *")),
        ("30 2 * * *", Cron("30 2 * * *")),
        ("@daily", Cron("@daily")),
        ("once at 2027-03-14T02:30:00Z", Once(NOW)),
    ],
)
def test_people_may_write_it_too(text, schedule):
    assert schedule_from(text) == schedule


def test_a_time_zone_beside_the_words():
    assert schedule_from("at 02:30 every day", "Europe/Berlin") == Cron("30 2 * * *", timezone="Europe/Berlin")
    assert schedule_from("at 02:30 every day, UTC", "UTC") == Cron("30 2 * * *", timezone="UTC")
    with pytest.raises(InvalidSchedule, match="another time zone"):
        schedule_from("at 02:30 every day, UTC", "Europe/Berlin")


@pytest.mark.parametrize(
    "text",
    [
        *("at", "every", "at noon", "every day at 9", "every 61 minutes, UTC", "at 25:00 every day"),
        *("at 02:30 on Mondays", "every 5 minutes on", "at 01:00 and 02:30 every day", "every fortnight, UTC"),
        *("at " + "01:00, " * 50, "every minute " * 30, "at \ud800", "every \x00", "at minutes " + "1 and " * 60 + "1"),
        *("once at noon", "at 02:30 every day, Nowhere/Land", "every 5 minutes, up to never later"),
    ],
)
def test_what_is_not_a_schedule_is_refused(text):
    with pytest.raises(InvalidSchedule):
        schedule_from(text)


def test_the_cron_class_reads_words():
    assert Cron("at 09:00 on Monday to Friday").expression == "0 9 * * 1-5"
    with pytest.raises(InvalidSchedule, match=r"cannot read the schedule 'at noon'.*as Duly shows schedules"):
        Cron("at noon")


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900), ("every 15 minutes", 900), ("every hour", 3600), ("every week", 604800)]
)
def test_intervals(text, seconds):
    assert interval_of(text) == seconds


@given(st.integers(1, 10**12).map(lambda micros: timedelta(microseconds=micros)))
def test_a_duration_is_read_back(length):
    assert timedelta(seconds=seconds_of(describe.duration(length))) == length
