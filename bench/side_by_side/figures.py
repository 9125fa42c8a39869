"""Figures: what is measured, medians over rounds, and ratios to Duly. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from msgspec import Struct

DULY = "duly"
DULY_POSTGRES = "duly-postgresql"  # Duly on the server of the peers that use PostgreSQL


class Figure(Struct, frozen=True):
    """One column of the table."""

    key: str
    measure: str
    title: str
    unit: str
    more_is_better: bool


FIGURES = (
    Figure("drain", "drain", "drain", "jobs/s", more_is_better=True),
    Figure("single", "submit", "submit, one by one", "jobs/s", more_is_better=True),
    Figure("fifty", "submit", "submit, 50 at a time", "jobs/s", more_is_better=True),
    Figure("bulk", "submit", "submit, bulk", "jobs/s", more_is_better=True),
    Figure("latency_p50", "latency", "latency p50", "ms", more_is_better=False),
    Figure("latency_p99", "latency", "latency p99", "ms", more_is_better=False),
    Figure("lateness_p50", "lateness", "lateness p50", "ms", more_is_better=False),
    Figure("lateness_p99", "lateness", "lateness p99", "ms", more_is_better=False),
    Figure("recurring_p50", "recurring", "recurring p50", "ms", more_is_better=False),
    Figure("recurring_p99", "recurring", "recurring p99", "ms", more_is_better=False),
    Figure("crowd_p50", "crowd", "crowd p50", "ms", more_is_better=False),
    Figure("crowd_p99", "crowd", "crowd p99", "ms", more_is_better=False),
)
MEASURES = tuple(dict.fromkeys(figure.measure for figure in FIGURES))


class Measured(Struct, frozen=True):
    """One round of one measurement: figures by key, how many jobs, and what must be said about it."""

    figures: Mapping[str, float]
    jobs: int
    remarks: tuple[str, ...] = ()


class Failed(Struct, frozen=True):
    """A measurement that broke, with the last words of whatever broke it."""

    error: str


class Cannot(Struct, frozen=True):
    """A measurement that the peer has no means for."""

    reason: str


Outcome = Measured | Failed | Cannot


class Cell(Struct, frozen=True):
    """What the table says in one place: a median with its ratio, both by round as well, or why there is none."""

    value: float | None = None
    ratio: float | None = None
    rounds: tuple[float, ...] = ()
    ratios: tuple[float | None, ...] = ()
    note: str = ""
    failed: bool = False


class Book:
    """All outcomes of a run, by peer and measurement, in the order in which they came."""

    def __init__(self) -> None:
        self._outcomes: dict[tuple[str, str], list[Outcome]] = {}

    def enter(self, peer: str, measure: str, outcome: Outcome) -> None:
        self._outcomes.setdefault((peer, measure), []).append(outcome)

    def outcomes(self, peer: str, measure: str) -> Sequence[Outcome]:
        return self._outcomes.get((peer, measure), ())

    def broken(self, peer: str, measure: str) -> bool:
        return any(isinstance(outcome, Failed) for outcome in self.outcomes(peer, measure))

    def peers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(peer for peer, _ in self._outcomes))

    def measures(self) -> tuple[str, ...]:
        named = {measure for _, measure in self._outcomes}
        return tuple(measure for measure in MEASURES if measure in named)


def cell(book: Book, peer: str, figure: Figure, cannot: Mapping[str, str], own: str = DULY) -> Cell:
    """The median of a peer's rounds and its ratio to that of `own`, or the reason why there is none."""
    outcomes = book.outcomes(peer, figure.measure)
    for outcome in outcomes:
        match outcome:
            case Failed(error):
                return Cell(note=error, failed=True)
            case Cannot(reason):
                return Cell(note=reason)
    rounds = _rounds(outcomes, figure.key)
    if not rounds:
        return Cell(note=cannot.get(figure.key, ""))
    ours = () if peer == own else _rounds(book.outcomes(own, figure.measure), figure.key)
    value = statistics.median(rounds)
    ratio = times_better(value, statistics.median(ours), figure.more_is_better) if ours else None
    pairs = zip(rounds, ours, strict=False)  # rounds go around, so those of one number were made together
    ratios = tuple(times_better(theirs, mine, figure.more_is_better) for theirs, mine in pairs)
    return Cell(value, ratio, rounds, ratios)


def _rounds(outcomes: Sequence[Outcome], key: str) -> tuple[float, ...]:
    return tuple(
        outcome.figures[key] for outcome in outcomes if isinstance(outcome, Measured) and key in outcome.figures
    )


def times_better(other: float, duly: float, more_is_better: bool) -> float | None:
    """How many times better Duly is: above 1 it is ahead, below 1 the other one is."""
    better, worse = (duly, other) if more_is_better else (other, duly)
    return better / worse if worse > 0 and better > 0 else None
