"""How scheduled and other runs of one priority share a claim."""

from hypothesis import given
from hypothesis import strategies as st

from duly.rules.sharing import scheduled_share, shared


def test_a_quarter_rounded_up():
    assert [scheduled_share(room, 1) for room in (4, 5, 8, 10, 100)] == [1, 2, 2, 3, 25]


def test_few_places_are_shared_from_request_to_request():
    for room in (1, 2, 3):
        for first in range(8):
            assert sum(scheduled_share(room, first + number) for number in range(4)) == room
    assert scheduled_share(0, 0) == 0


@given(
    kinds=st.lists(st.booleans(), max_size=20),
    room=st.integers(0, 12),
    owed=st.integers(0, 4),
)
def test_order_decides_but_for_the_share(kinds, room, owed):
    scheduled = [place for place, kind in enumerate(kinds) if kind]
    others = [place for place, kind in enumerate(kinds) if not kind]
    first, other = shared(scheduled, others, room, owed)
    in_order = sum(kinds[:room])
    assert first + other == min(room, len(kinds))
    assert first >= min(owed, len(scheduled), room)
    assert first == max(in_order, min(owed, len(scheduled), room))
