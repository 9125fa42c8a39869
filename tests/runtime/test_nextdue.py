"""The next due time: exact where clocks agree, patient where the store's is behind."""

from datetime import UTC, datetime, timedelta

from duly.runtime.next_due import NextDue
from duly.runtime.service import Signal
from duly.testing import ManualClock

START = datetime(2027, 1, 1, tzinfo=UTC)


def at(seconds):
    return START + timedelta(seconds=seconds)


def make():
    clock = ManualClock(START)
    return clock, NextDue(Signal(), clock.now)


def test_nothing_known_is_the_safety_tick():
    _, due = make()
    assert due.left(5.0) == 5.0


def test_what_was_learnt_is_waited_for_exactly():
    clock, due = make()
    due.learn(at(2))
    assert due.left(5.0) == 2.0
    clock.set(at(2))
    assert due.left(5.0) == 0.0


def test_an_earlier_expectation_wins_and_a_later_one_does_not():
    _, due = make()
    due.expect(at(3))
    due.expect(at(1))
    due.expect(at(2))
    assert due.left(5.0) == 1.0
    due.forget()
    assert due.left(5.0) == 5.0


def test_a_store_whose_clock_is_behind_is_asked_less_and_less_often():
    clock, due = make()
    asked = 0
    while clock.now() < at(5):  # the store says so until its own clock has come as far
        due.learn(at(0))
        asked += 1
        clock.set(clock.now() + timedelta(seconds=due.left(5.0)))
    assert asked < 40
    due.learn(at(10))
    assert due.left(9.0) > 4.0
    clock.set(at(10))
    due.learn(at(10))
    assert due.left(5.0) < 0.01
