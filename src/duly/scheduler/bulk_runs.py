"""Operations on many runs at once: count what a filter matches, then cancel or redrive it in slices.

A slice is found and then changed; the next one is searched from there on. So a call that is cut off has changed whole
slices, and can go on from its cursor. Only runs that matched at `as_of` are changed (`rules.bulk`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from duly.model import Run, RunFilter
from duly.rules.bulk import MOST_COUNTED, stood
from duly.scheduler.run_search import page_of

if TYPE_CHECKING:
    from duly.scheduler.client import Client

SLICE = 500
_MOST_SLICES = 50  # a call must not read every run of a large store
_SAMPLES = 5
_MOST_JOBS = 20

Choose = Callable[[Run], bool]


class RunCount(Struct, frozen=True):
    """How many runs match a filter at `as_of`, with samples and the names of some of their jobs.

    If it is not `exact`, there may be more: counting stopped at 10,000, or the search at `searched_to`.
    """

    count: int
    exact: bool
    samples: tuple[Run, ...]
    jobs: tuple[str, ...]
    as_of: datetime
    searched_to: datetime | None = None

    def __str__(self) -> str:
        number = f"{self.count:,} run{'' if self.count == 1 else 's'}"
        return number if self.exact else f"at least {number}"


class Slice(Struct, frozen=True):
    """Runs to be changed together. `start` is the cursor with which they are found again, `next` the one after them.

    `reached` is how far the search came, if it stopped before the slice was full.
    """

    runs: list[Run]
    start: str | None
    next: str | None
    reached: datetime | None = None


async def slices_of(
    client: Client, wanted: RunFilter, choose: Choose, as_of: datetime, limit: int, cursor: str | None = None
) -> AsyncIterator[Slice]:
    """The runs that match now, matched at `as_of` and that `choose` accepts, at most `limit`, in slices.

    A slice may be empty. If the last one has a `next`, the search has not come to its end.
    """
    left = limit
    for _ in range(_MOST_SLICES):
        page = await page_of(client, wanted, min(SLICE, left), cursor)
        found = [run for run in page.runs if stood(run, as_of) and choose(run)]
        yield Slice(found, cursor, page.next, page.reached)
        left -= len(found)
        cursor = page.next
        if cursor is None or left <= 0:
            return


async def count_runs(client: Client, wanted: RunFilter, choose: Choose) -> RunCount:
    """Count the runs that match now and that `choose` accepts."""
    as_of = await client.backend.store.time()
    count, samples, jobs = 0, list[Run](), set[str]()
    last = Slice([], None, None)
    async for last in slices_of(client, wanted, choose, as_of, MOST_COUNTED):
        count += len(last.runs)
        samples += last.runs[: _SAMPLES - len(samples)]
        jobs |= {run.job for run in last.runs}
    some = tuple(sorted(jobs)[:_MOST_JOBS])
    return RunCount(count, last.next is None, tuple(samples), some, as_of, last.reached if last.next else None)
