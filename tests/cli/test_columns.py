"""How a table fits a terminal: a pure decision, and text measured in cells."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import wcswidth

from duly.cli.cells import cut, first_cells, folded, padded, width_of
from duly.cli.columns import GAP, Column, fit

NAME = Column("NAME", wraps=True, importance=9, least=10)
STATE = Column("STATE", importance=7)
WHY = Column("WHY", wraps=True, importance=5, least=8)
COUNT = Column("COUNT", right=True, importance=3)


@pytest.mark.parametrize(
    ("room", "widths"),
    [
        (100, [20, 9, 30, 5]),  # everything fits
        (60, [20, 9, 20, 5]),  # the less important text is cut first
        (40, [12, 9, 8, 5]),  # then the more important one
        (37, [16, 9, 8, None]),  # then the least important column is left out, and the others use its room
        (25, [14, 9, None, None]),
        (14, [14, None, None, None]),
        (6, [6, None, None, None]),  # the most important column is always there
    ],
)
def test_columns_give_way_by_importance(room, widths):
    assert fit((NAME, STATE, WHY, COUNT), (20, 9, 30, 5), room) == widths


def test_of_equals_the_last_is_left_out():
    assert fit((Column("A"), Column("B"), Column("C")), (5, 5, 5), 12) == [5, 5, None]


def test_equals_are_cut_alike():
    first, second = Column("A", wraps=True, least=4), Column("B", wraps=True, least=4)
    assert fit((first, second), (30, 30), 32) == [15, 15]
    assert fit((first, second), (6, 30), 32) == [6, 24]


def test_a_narrow_column_may_stay_where_a_wider_one_has_to_go():
    assert fit((NAME, Column("WIDE", importance=6), COUNT), (10, 40, 5), 20) == [10, None, 5]


columns = st.lists(
    st.builds(
        Column,
        title=st.text("ABC", min_size=1, max_size=12),
        wraps=st.booleans(),
        importance=st.integers(1, 9),
        least=st.integers(1, 30),
    ),
    min_size=1,
    max_size=10,
)


@given(columns, st.data(), st.integers(1, 200))
def test_a_table_is_never_wider_than_the_terminal(columns, data, room):
    natural = [len(column.title) + data.draw(st.integers(0, 60)) for column in columns]
    widths = fit(columns, natural, room)
    kept = [width for width in widths if width is not None]
    assert sum(kept) + GAP * (len(kept) - 1) <= room
    assert kept
    assert all(width is None or 0 < width <= wanted for width, wanted in zip(widths, natural, strict=True))
    for column, width, wanted in zip(columns, widths, natural, strict=True):
        assert width is None or len(kept) == 1 or column.wraps or width == wanted
    if sum(natural) + GAP * (len(natural) - 1) <= room:
        assert widths == natural


TEXTS = [
    ("plain", 5),
    ("帳票", 4),
    ("🚚 van", 6),
    ("e\u0301te\u0301", 3),  # combining accents take no cell
    ("", 0),
    ("ｆｕｌｌ", 8),
]


@pytest.mark.parametrize(("text", "width"), TEXTS)
def test_text_is_measured_in_cells(text, width):
    assert width_of(text) == width


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("nightly", 7, "nightly"),
        ("nightly", 6, "night…"),
        ("帳票の作成", 10, "帳票の作成"),
        ("帳票の作成", 6, "帳票…"),
        ("帳票の作成", 5, "帳票…"),
        ("e\u0301te\u0301x", 3, "e\u0301t…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_long_text_is_cut_with_an_ellipsis(text, width, expected):
    assert cut(text, width) == expected


words = st.text(st.sampled_from("ab 帳票🚚ｆé\u0301"), max_size=60)


@given(words, st.integers(1, 40))
def test_what_was_cut_fits(text, width):
    assert width_of(cut(text, width)) <= width
    assert wcswidth(cut(text, width)) <= width
    assert width_of(padded(text, width)) == width
    assert text.startswith(first_cells(text, width))


@given(words, st.integers(2, 40))
def test_folded_text_fits_and_is_complete(text, width):
    lines = folded(text, width)
    assert all(width_of(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_text_is_folded_between_words():
    assert folded("a run that takes long", 10) == ["a run that", "takes long"]
    assert folded("short", 10) == ["short"]
    assert folded("0123456789abc de", 10) == ["0123456789", "abc de"]
