"""Costs at several sizes of a store, and the rule that tells which of them grow or are too high. Pure.

**The rule.** A cost may double when the store has ten times as much (a logarithm grows by less; the rest is room for a
noisy machine), and in proportion for other steps (`allowed_factor`). A cost that is lower again at a larger size was
not caused by the size, so the lowest one from a size on counts. Costs below the floor of their unit are not judged:
there the machine decides. A bar holds at every size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct, to_builtins

FLOORS = {"ms": 5.0, "%": 1.0, "MB": 100.0, "s": 1.0, "µs": 50.0}
_FACTOR = 2.0  # per tenfold size
_NAME = 25
_COLUMN = 8
_AT_ONCE = 3  # so many sizes fit beside each other


class Figures(Struct, frozen=True):
    """One cost at one size. A cost that is measured once has the same value twice."""

    size: int
    p50: float
    p99: float


class Cost(Struct, frozen=True):
    """One cost at all sizes, the smallest first; `bar` is the highest p99 that is accepted."""

    name: str
    unit: str
    bar: float | None
    figures: tuple[Figures, ...]


def allowed_factor(before: int, after: int) -> float:
    """By how much a cost may grow between two sizes."""
    return float(_FACTOR ** math.log10(after / before))


def growth(cost: Cost) -> list[str]:
    """Where a cost grows more than logarithmically, in words."""
    found = []
    lowest = [min(later.p50 for later in cost.figures[number:]) for number in range(len(cost.figures))]
    for (before, low), (after, high) in pairwise(zip(cost.figures, lowest, strict=True)):
        if high > FLOORS[cost.unit] and high > allowed_factor(before.size, after.size) * low:
            grown = f"from {_number(before.p50)} to {_number(after.p50)} {cost.unit}"
            found.append(f"{cost.name}: grows {grown} between {before.size:,} and {after.size:,}")
    return found


def excess(cost: Cost) -> list[str]:
    """Where a cost is above its bar, in words."""
    return [
        f"{cost.name}: {_number(each.p99)} {cost.unit} at {each.size:,}, more than {cost.bar:g}"
        for each in cost.figures
        if cost.bar is not None and each.p99 > cost.bar
    ]


def failures(costs: Sequence[Cost]) -> list[str]:
    """Everything for which the benchmark fails."""
    return [line for cost in costs for line in (*growth(cost), *excess(cost))]


# --- documents and text


def as_document(result: dict[str, Any]) -> dict[str, Any]:
    """A result with costs as values of JSON."""
    document: dict[str, Any] = to_builtins(result)
    return document


def table(costs: Sequence[Cost]) -> str:
    """The costs as text of at most 80 columns: three sizes beside each other, further ones below."""
    sizes = sorted({each.size for cost in costs for each in cost.figures})
    parts = [sizes[start : start + _AT_ONCE] for start in range(0, len(sizes), _AT_ONCE)]
    return "\n\n".join(_part(costs, part) for part in parts)


def _part(costs: Sequence[Cost], sizes: Sequence[int]) -> str:
    heads = "".join(f"{size:>{2 * _COLUMN},}" for size in sizes)
    columns = "".join(f"{'p50':>{_COLUMN}}{'p99':>{_COLUMN}}" for _ in sizes)
    return "\n".join([f"{'':{_NAME}}{heads}", f"{'':{_NAME}}{columns}", *(_row(cost, sizes) for cost in costs)])


def _row(cost: Cost, sizes: Sequence[int]) -> str:
    found = {each.size: each for each in cost.figures}
    cells = "".join(_cells(found.get(size)) for size in sizes)
    mark = "grows" if growth(cost) else "high" if excess(cost) else ""
    return f"{f'{cost.name}, {cost.unit}':{_NAME}}{cells}  {mark}".rstrip()


def _cells(figures: Figures | None) -> str:
    if figures is None:
        return f"{'–':>{_COLUMN}}" * 2
    last = "" if figures.p99 == figures.p50 else _number(figures.p99)
    return f"{_number(figures.p50):>{_COLUMN}}{last:>{_COLUMN}}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
