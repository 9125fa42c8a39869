"""Ids of submitted runs: ordered, of fixed width, never given twice."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from duly.model import Ids

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
