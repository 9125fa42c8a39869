"""How fast the leader deletes old runs."""

from __future__ import annotations

from duly.rules.purging import FIRST_STEP, next_step, pause_after


def test_a_step_that_took_long_is_followed_by_a_smaller_one():
    size = FIRST_STEP
    for _ in range(20):
        size = next_step(size, 0.02)
    assert size == 20


def test_quick_steps_grow_up_to_a_bound():
    size = FIRST_STEP
    for _ in range(20):
        size = next_step(size, 0.001)
    assert size == 1_000


def test_a_step_of_the_right_length_stays():
    assert next_step(300, 0.006) == 300


def test_deleting_rests_twice_as_long_as_it_works():
    assert pause_after(0.005) == 0.01
    assert pause_after(0.0) > 0
