"""Finding one run by its id, or by a shortened one as tables show it.

A full id costs one read. For a shortened one the store searches the newest runs, then those that did not succeed and
those that have not ended, which are the ones that operators look for. Each search looks at a bounded number of runs.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from duly.errors import AmbiguousRun, RunNotFound, shown
from duly.model import SCAN, Run, RunOrder, RunQuery, State, is_run_id, may_shorten
from duly.ports import RunStore
from duly.rules.describe import instant
from duly.scheduler.run_pages import pages_of

_MOST_CANDIDATES = 10
_PAGE = 50

# From this length on, two runs of one store hardly ever share an ending, so the search stops where it has found one.
# A shorter text is compared with all runs that the search may look at.
_DISTINCT = 8

# In orders that stores have indexes for.
_SEARCHES = (
    RunQuery(),
    RunQuery(states=(State.FAILED, State.LOST, State.CANCELLED), order=RunOrder.ENDED),
    RunQuery(order=RunOrder.READY),
    RunQuery(states=(State.RUNNING,)),
)


async def find_run(store: RunStore, text: str, most: int = SCAN) -> Run:
    """The run with this id, or the only one whose id can be shortened to `text`, among about `most` runs per search."""
    exact = await store.run(text) if is_run_id(text) else None
    if exact is not None:
        return exact
    if not may_shorten(text):
        raise absent(text)
    found, reached = await _search(store, text, most)
    if not found:
        raise absent(text) if reached is None else _not_reached(text, reached)
    if len(found) > 1:
        raise _ambiguous(text, found)
    return found[0]


def absent(run_id: object) -> RunNotFound:
    """The error for an id that no run has."""
    return RunNotFound(f"there is no run {shown(run_id)}: it never existed, or retention has purged it")


async def _search(store: RunStore, text: str, most: int) -> tuple[list[Run], datetime | None]:
    """The runs whose ids can be shortened to a text, and how far the search for the newest came if not to the end."""
    found: dict[str, Run] = {}
    reached: datetime | None = None
    for place, wanted in enumerate(_SEARCHES):
        query = replace(wanted, short=text)
        async for page in pages_of(store, query, _PAGE, most):
            found |= {run.id: run for run in page.runs}
            if place == 0:
                reached = page.reached
            if len(found) > _MOST_CANDIDATES or (found and len(text) >= _DISTINCT):
                break
        if found or reached is None:
            break
    newest = sorted(found.values(), key=lambda run: run.created_at or run.due, reverse=True)
    return newest, reached


def _not_reached(text: str, reached: datetime) -> RunNotFound:
    return RunNotFound(
        f"no run has an id that begins or ends with {shown(text)}: searched back to {instant(reached)}, and further"
        " among the runs that failed or have not ended; give the full id of an older run (--wide or --json shows it)"
    )


def _ambiguous(text: str, found: list[Run]) -> AmbiguousRun:
    most = len(found) > _MOST_CANDIDATES
    count = f"more than {_MOST_CANDIDATES}" if most else str(len(found))
    message = f"{shown(text)} is ambiguous: {count} runs have an id that begins or ends with it; give more of the id"
    return AmbiguousRun(message, found[:_MOST_CANDIDATES])
