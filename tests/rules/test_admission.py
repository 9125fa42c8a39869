"""Who moves up when runs leave a group, or the line before it."""

from hypothesis import given
from hypothesis import strategies as st

from duly.rules.admission import Held, Leaver, moved_up


def leaving(*keys, members=()):
    return [Leaver(key, key in members) for key in keys]


def line(*keys, limit=1):
    return [Held(key, limit) for key in keys]


def test_a_members_place_goes_to_the_first_in_line():
    assert moved_up(leaving(1, members={1}), line(5, 6), 1) == [5]


def test_a_run_that_was_no_member_passes_its_offer_on_only_if_there_is_room():
    assert moved_up(leaving(9), line(5, 6), 1) == []
    assert moved_up(leaving(9), line(5, 6), 0) == [5]
    assert moved_up(leaving(9), line(5, 6, limit=2), 1) == [5]


def test_whoever_leaves_does_not_move_up():
    assert moved_up(leaving(1, 5, members={1}), line(5, 6), 1) == [6]
    assert moved_up(leaving(5, 1, members={1}), line(5, 6), 1) == [6]
    assert moved_up(leaving(1, 5, 6, members={1}), line(5, 6), 1) == []


@given(
    order=st.permutations(range(8)),
    number=st.integers(1, 8),
    members=st.sets(st.integers(0, 2), max_size=3),
    limit=st.integers(1, 3),
)
def test_it_is_as_if_they_left_one_by_one(order, number, members, limit):
    """Runs 3 to 7 are held, the others are members or on their way in."""
    gone = list(order[:number])
    held, waiting, present = list(range(3, 8)), {0, 1, 2} - members, set(members)
    for key in gone:
        was_member = key in present
        held = [each for each in held if each != key]
        waiting.discard(key)
        present.discard(key)
        if held and (was_member or len(present) < limit):
            waiting.add(held.pop(0))
    told = moved_up([Leaver(key, key in members) for key in gone], line(*range(3, 8), limit=limit), len(members))
    assert set(told) == waiting & set(range(3, 8))
