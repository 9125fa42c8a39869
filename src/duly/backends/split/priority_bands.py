"""Priority bands: the stream on which a run is announced, and which runs share an entry of a stream."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from duly.model import Run

BANDS = ("high", "middle", "low")  # in the order in which they are read
_HIGH, _MIDDLE = 7, 4
_MAX_RUNS = 16  # an entry has one reader: smaller entries find more readers

ANY = ""  # in place of an unknown queue or handler


class ReadyRuns(Struct, frozen=True, gc=False):
    """Ready runs of one queue and handler, for one reader."""

    band: str
    runs: tuple[str, ...]
    queue: str
    handler: str


def band_of(priority: int) -> str:
    """9 to 7, 6 to 4, 3 to 0."""
    return "high" if priority >= _HIGH else "middle" if priority >= _MIDDLE else "low"


def ready_entries(runs: Iterable[Run]) -> list[ReadyRuns]:
    """Entries for runs. A node can start all runs of an entry or none."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for run in runs:
        alike.setdefault((band_of(run.priority), run.queue, run.handler), []).append(run.id)
    return [
        ReadyRuns(band, tuple(ids[first : first + _MAX_RUNS]), queue, handler)
        for (band, queue, handler), ids in alike.items()
        for first in range(0, len(ids), _MAX_RUNS)
    ]
