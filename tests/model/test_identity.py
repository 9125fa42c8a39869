"""Ids of submitted runs: ordered, of fixed width, never given twice."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model import Ids, may_shorten, recurring_id, short_id, shortens

START = datetime(2026, 1, 1, tzinfo=UTC)


@given(steps=st.lists(st.integers(-3, 3), min_size=1, max_size=30), counts=st.lists(st.integers(0, 5), max_size=30))
def test_ids_only_grow_whatever_the_clock_does(steps, counts):
    now = START
    ids = Ids(lambda: now, random.Random(1))
    given_out = []
    for step, count in zip(steps, [*counts, *([1] * len(steps))], strict=False):
        now += timedelta(microseconds=step)
        given_out += [ids.new(), *ids.many(count)]
    assert given_out == sorted(set(given_out))
    assert {len(each) for each in given_out} == {26}


class _Highest(random.Random):
    def getrandbits(self, k: int) -> int:
        return (1 << k) - 1


def test_a_microsecond_that_runs_out_of_ids_borrows_from_the_next():
    ids = Ids(lambda: START, _Highest())
    first = ids.new()
    ids._tail = (1 << 48) - 2
    last, *beyond = ids.many(4)
    assert first < last < beyond[0] < beyond[1] < beyond[2] < ids.new()


SUBMITTED = "06604e5b8099e717b21d858519"
RECURRING = "0006ab5b80990717b21d85c519-20261118T081500.000000"


@pytest.mark.parametrize(
    ("run_id", "short"),
    [
        (SUBMITTED, "1d858519"),
        ("06604e5b8099e717b2fdc58a19", "2fdc58a19"),  # it begins with a digit, as all ids do
        ("06604e5b8099e7abcdefabcdef", "7abcdefabcdef"),
        (RECURRING, "5c519-1118T081500"),
        ("0006ab5b80990717b21d851519-20261118T081530.000000", "1519-1118T081530"),
        ("0006ab5b80990717b21d851519-20261118T081500.250000", "1519-1118T081500.25"),
        ("0006ab5b80990717b21d851519-20261118T000000.000000", "1519-1118T000000"),
        ("7", "7"),
        ("7-my.own_id", "7-my.own_id"),
    ],
)
def test_the_short_form_of_an_id(run_id, short):
    assert short_id(run_id) == short
    assert shortens(short, run_id)
    assert may_shorten(short)


@pytest.mark.parametrize(
    ("part", "run_id", "is_part"),
    [
        ("0660", SUBMITTED, True),
        ("8519", SUBMITTED, True),
        ("717b", SUBMITTED, False),
        ("5c519-20261118", RECURRING, True),
        ("5c519-1118T08", RECURRING, True),
        ("5c519-1119", RECURRING, False),
        ("6c519-1118T0815", RECURRING, False),
        ("-1118T0815", RECURRING, False),
        ("5c519-", RECURRING, False),
        ("T081500.000000", RECURRING, True),
    ],
)
def test_what_an_id_can_be_shortened_to(part, run_id, is_part):
    assert shortens(part, run_id) == is_part


@given(st.integers(0, 2**32), st.datetimes(datetime(2000, 1, 1), datetime(2199, 1, 1), timezones=st.just(UTC)))
def test_a_short_form_begins_with_a_digit_and_leads_back(seed, due):
    ids = Ids(lambda: due, random.Random(seed))
    for run_id in (ids.new(), recurring_id(ids.new(), due)):
        short = short_id(run_id)
        assert short[0].isdecimal()
        assert len(short) < len(run_id)
        assert shortens(short, run_id)
