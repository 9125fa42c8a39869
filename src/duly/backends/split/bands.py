"""Bands: which stream a run is rung for on, and how many runs an entry names."""

from __future__ import annotations

from collections.abc import Iterable

BANDS = ("high", "middle", "low")  # in the order in which they are read
_HIGH, _MIDDLE = 7, 4
_MOST_IN_ENTRY = 16  # one reader gets an entry: more of them find more readers


def band_of(priority: int) -> str:
    """9 to 7, 6 to 4, 3 to 0."""
    return "high" if priority >= _HIGH else "middle" if priority >= _MIDDLE else "low"


def entries_of(runs: Iterable[tuple[str, int]]) -> list[tuple[str, str]]:
    """Entries for runs given by id and priority: the band and the ids, with spaces between."""
    by_band: dict[str, list[str]] = {}
    for run_id, priority in runs:
        by_band.setdefault(band_of(priority), []).append(run_id)
    return [
        (band, " ".join(ids[first : first + _MOST_IN_ENTRY]))
        for band, ids in by_band.items()
        for first in range(0, len(ids), _MOST_IN_ENTRY)
    ]
