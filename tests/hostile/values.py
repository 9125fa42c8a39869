"""Values that nobody should send, and that somebody will."""

import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction


class Hostility(Exception):
    """Raised by a value itself: whoever hands it over may get it back, and nobody else."""


class Loud(str):
    """A str that raises when it is measured or cut."""

    __slots__ = ()

    def __len__(self):
        raise Hostility("no length")

    def __getitem__(self, key):
        raise Hostility("no parts")


class Mute:
    """An object that raises whatever it is asked."""

    def __str__(self):
        raise Hostility("no text")

    def __repr__(self):
        raise Hostility("no text")

    def __eq__(self, other):
        raise Hostility("no comparison")

    __hash__ = object.__hash__


def cyclic():
    value = []
    value.append(value)
    return value


def deep(levels=5_000):
    value = []
    for _ in range(levels):
        value = [value]
    return value


TEXTS = {
    "empty": "",
    "nul": "a\x00b",
    "high surrogate": "a\ud800b",
    "low surrogate": "a\udcffb",
    "long": "x" * 300_000,
    "lines": "a\nb\r\n\x1b[31mred",
    "right to left": "\u202eabc",
    "odd": "'\";--$()`{}%s%n",
    "path": "../../etc/passwd",
    "loud": Loud("loud"),
}
NUMBERS = {
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "-1": -1,
    "0": 0,
    "true": True,
    "huge": 10**400,
    "large": 2**63,
    "tiny": 5e-324,
    "decimal": Decimal("1.5"),
    "decimal nan": Decimal("NaN"),
    "fraction": Fraction(1, 3),
    "forever": timedelta.max,
    "backwards": timedelta.min,
}
INSTANTS = {
    "last": datetime.max.replace(tzinfo=UTC),
    "first": datetime.min.replace(tzinfo=UTC),
    "before the first": datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    "after the last": datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
    "year 5139": datetime(5139, 1, 1, tzinfo=UTC),
    "year 9999": datetime(9999, 12, 31, tzinfo=UTC),
    "naive": datetime(2030, 1, 1),  # the point
}
OBJECTS = {
    "none": None,
    "object": object(),
    "mute": Mute(),
    "bytes": b"\xff",
    "set": {1, 2},
    "cyclic": cyclic(),
    "deep": deep(),
    "class": dict,
    "callable": print,
    "mapping of ints": {1: 2},
    "mapping of surrogates": {"\ud800": "\udcff"},
    "exception": ValueError("\ud800"),
}
ALL = TEXTS | NUMBERS | INSTANTS | OBJECTS
