"""Bands: which stream a run is rung for on, and which runs share an entry."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from duly.model import Run

BANDS = ("high", "middle", "low")  # in the order in which they are read
_HIGH, _MIDDLE = 7, 4
_MOST_IN_ENTRY = 16  # one reader gets an entry: more of them find more readers

ANY = ""  # in the place of a name that is not at hand


class Ready(Struct, frozen=True, gc=False):
    """Runs of one queue and handler that are ready, for one reader."""

    band: str
    runs: tuple[str, ...]
    queue: str
    handler: str


def band_of(priority: int) -> str:
    """9 to 7, 6 to 4, 3 to 0."""
    return "high" if priority >= _HIGH else "middle" if priority >= _MIDDLE else "low"


def ready_entries(runs: Iterable[Run]) -> list[Ready]:
    """Entries for runs: such as one node can start has only runs that it can start."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for run in runs:
        alike.setdefault((band_of(run.priority), run.queue, run.handler), []).append(run.id)
    return [
        Ready(band, tuple(ids[first : first + _MOST_IN_ENTRY]), queue, handler)
        for (band, queue, handler), ids in alike.items()
        for first in range(0, len(ids), _MOST_IN_ENTRY)
    ]
