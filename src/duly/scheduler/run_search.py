"""Searching runs: by what a run is, and by a tag of its job.

Tags belong to jobs, and no store has an index of them. Where a store has few jobs, the names of those with the tag
become part of the query. Where it has many, runs are read first, and then only the jobs of the runs on each page: the
cost follows what is looked at, not how many jobs there are.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from duly.model import SCAN, Page, Run, RunFilter, RunQuery

if TYPE_CHECKING:
    from duly.scheduler.client import Client

_FEW_JOBS = 1_000
_MOST_SECONDS = 0.1
_LEAST = 1_000  # runs that are looked at however long it takes


async def page_of(client: Client, wanted: RunFilter, limit: int, cursor: str | None = None, scan: int = SCAN) -> Page:
    """A page of the runs that match. It may be short, and have a next one all the same."""
    if wanted.tag is None:
        return await client.runs(wanted.query, limit, cursor, scan)
    return await _page_of_tag(client, wanted.tag, wanted.query, limit, cursor, scan)


async def _page_of_tag(client: Client, tag: str, query: RunQuery, limit: int, cursor: str | None, scan: int) -> Page:
    records = await client.backend.store.jobs(limit=_FEW_JOBS + 1)
    if len(records) <= _FEW_JOBS:
        names = tuple(record.name for record in records if tag in record.spec.tags)
        return await client.runs(replace(query, jobs=names), limit, cursor, scan) if names else Page([])
    return await _filtered(client, tag, query, limit, cursor, scan)


async def _filtered(client: Client, tag: str, query: RunQuery, limit: int, cursor: str | None, scan: int) -> Page:
    has_tag: dict[str, bool] = {}
    found: list[Run] = []
    searched, until = 0, time.monotonic() + _MOST_SECONDS
    while True:
        page = await client.runs(query, limit - len(found), cursor, scan)
        names = {run.job for run in page.runs} - has_tag.keys()
        records = await client.backend.store.jobs(sorted(names)) if names else []
        has_tag |= dict.fromkeys(names, False) | {record.name: tag in record.spec.tags for record in records}
        found += [run for run in page.runs if has_tag[run.job]]
        searched, cursor = searched + max(len(page.runs), page.searched), page.next
        late = searched >= _LEAST and time.monotonic() > until
        if cursor is None or page.reached is not None or searched >= scan or late or 2 * len(found) > limit:
            return Page(found, cursor, page.reached, searched if page.reached else 0)
