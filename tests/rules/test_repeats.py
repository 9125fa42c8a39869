"""Repeated warnings: how many are written, and that none is forgotten."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from duly.rules.repeats import FIRST_PAUSE, LONGEST_PAUSE, repeat


def written(times: list[float]) -> list[tuple[float, int]]:
    """When a line is written for warnings at these times, and how many it says were left out."""
    state, lines = None, []
    for now in times:
        state, left_out = repeat(state, now)
        if left_out is not None:
            lines.append((now, left_out))
    return lines


def test_the_first_is_written_and_the_rest_is_counted():
    assert written([0, 1, 2, 3]) == [(0, 0)]
    assert written([0, 1, 2, FIRST_PAUSE]) == [(0, 0), (FIRST_PAUSE, 2)]


def test_what_happens_rarely_is_always_written():
    assert written([0, 60, 120, 180]) == [(0, 0), (60, 0), (120, 0), (180, 0)]


def test_a_day_of_warnings_every_second_is_a_few_lines():
    lines = written([float(second) for second in range(86400)])
    assert len(lines) < 160
    assert sum(left_out for _, left_out in lines) + len(lines) > 86400 - LONGEST_PAUSE


@given(st.lists(st.floats(0, 10_000), max_size=200).map(sorted))
def test_two_lines_are_never_closer_than_the_first_pause_and_every_warning_counts(times):
    lines = written(times)
    assert all(later - earlier >= FIRST_PAUSE for (earlier, _), (later, _) in pairwise(lines))
    if lines:
        upto = [now for now in times if now <= lines[-1][0]]
        counted = sum(left_out for _, left_out in lines) + len(lines)
        assert counted <= len(upto)
