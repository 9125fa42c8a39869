"""Whatever a handler, a hook or a client hands over becomes something that every backend can store."""

import math
from decimal import Decimal
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.errors import ConfigurationError
from duly.model import sanitize

ANY_TEXT = st.text(st.characters(codec=None), max_size=300)  # lone surrogates and NUL included


def _kind(value):
    return type(value).__name__


class Loud(str):
    """A str whose every method is hostile."""

    __slots__ = ()

    def __len__(self):
        raise ValueError("no length")

    def __getitem__(self, key):
        raise ValueError("no parts")

    def __str__(self):
        return self


class Broken:
    def __str__(self):
        raise SystemExit("not even this")

    __repr__ = __float__ = __str__


class Endless:
    def __str__(self):
        return "x" * 5_000_000


class NotText:
    def __str__(self):
        return 17  # noqa: PLE0307  # the point


@given(ANY_TEXT, st.integers(100, 400))
def test_text_can_be_stored_and_is_bounded(value, most):
    cleaned = sanitize.text(value, most)
    assert type(cleaned) is str
    assert "\x00" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert len(cleaned) <= 6 * most  # an escaped character takes six


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=100))
def test_ordinary_text_stays_as_it_is(value):
    assert sanitize.text(value, 100) == value


def test_the_beginning_and_the_end_of_long_text_are_kept():
    cleaned = sanitize.text("begin" + "x" * 10_000 + "end", 200)
    assert cleaned.startswith("begin")
    assert cleaned.endswith("end")
    assert "characters …" in cleaned


@pytest.mark.parametrize(
    "value", [Broken(), Endless(), NotText(), Loud("loud\udc80"), "\x00\ud800", object(), None, b"\xff"], ids=_kind
)
def test_any_object_has_a_text(value):
    said = sanitize.text_of(value)
    assert type(said) is str
    assert len(said) <= sanitize.MOST_MESSAGE + 10
    assert said.encode()
    assert "\x00" not in said


@pytest.mark.parametrize("value", [Broken(), Loud("x\udc80"), "y" * 10**6, 17, None], ids=_kind)
def test_a_failure_of_anything_survives_the_wire(value):
    failure = sanitize.failure(value, value, value)
    assert msgspec.json.decode(msgspec.json.encode(failure), type=type(failure)) == failure
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(failure), type=type(failure)) == failure


@pytest.mark.parametrize(
    "done", [math.nan, math.inf, -math.inf, "7", b"7", object(), None, Broken(), 10**400, Decimal("NaN")], ids=_kind
)
def test_progress_that_is_no_finite_number_is_left_out(done):
    assert sanitize.progress(done) is None


@pytest.mark.parametrize("done", [0.5, 1, True, Decimal("0.5"), Fraction(1, 2), -3], ids=_kind)
def test_progress_of_any_numeric_type_is_a_float(done):
    progress = sanitize.progress(done, math.nan, Loud("half\udc80"))
    assert progress is not None
    assert type(progress.done) is float
    assert progress.total is None
    assert progress.note == "half\\udc80"


@given(st.one_of(ANY_TEXT, st.integers(), st.floats(), st.none(), st.binary()))
def test_progress_survives_the_wire(value):
    progress = sanitize.progress(value, value, value)
    if progress is not None:
        assert msgspec.json.decode(msgspec.json.encode(progress), type=type(progress)) == progress


@pytest.mark.parametrize("key", ["a\x00b", "\ud800", "", "x" * 513, 17, None, b"key"], ids=_kind)
def test_a_key_that_cannot_be_stored_as_it_is_is_refused_by_name_and_value(key):
    with pytest.raises(ConfigurationError, match="dedupe_key="):
        sanitize.checked_text("dedupe_key", key, 512, empty=False)


def test_headers_are_bounded():
    headers = sanitize.headers({f"name-{number}\udc80": "v\x00" * 2000 for number in range(100)})
    assert headers is not None
    assert len(headers) == sanitize.MOST_HEADERS
    assert msgspec.msgpack.encode(headers)
