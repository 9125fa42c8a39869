"""Reading more than one page of runs: a page may be short although more runs match, so `next` has to be followed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from msgspec import Struct

from duly.model import SCAN, Page, Run, RunQuery
from duly.ports import RunStore

_LARGEST = 500


class Found(Struct, frozen=True):
    """The run that was searched for; `complete` says whether the search came to its end or found the run."""

    run: Run | None = None
    complete: bool = True


async def pages_of(store: RunStore, query: RunQuery, size: int, most: int = SCAN) -> AsyncIterator[Page]:
    """Pages of growing size until the listing ends, or about `most` runs have been looked at.

    If the last page has a `next`, not all runs have been looked at.
    """
    searched, cursor = 0, None
    while True:
        page = await store.runs(query, size, cursor, scan=max(1, most - searched))
        yield page
        searched, cursor = searched + max(1, page.searched, len(page.runs)), page.next
        if cursor is None or searched >= most:
            return
        size = max(size, min(size * 5, _LARGEST, most - searched))


async def find(
    store: RunStore, query: RunQuery, size: int, choose: Callable[[Sequence[Run]], Run | None], most: int = SCAN
) -> Found:
    """The run that `choose` takes from the first page that has one."""
    found = Found()
    async for page in pages_of(store, query, size, most):
        run = choose(page.runs)
        found = Found(run, run is not None or page.next is None)
        if run is not None:
            break
    return found
