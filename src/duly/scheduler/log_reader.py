"""Follows the log of a run until the run has ended, for the command line and the REST API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from duly.model import LogLine
from duly.ports import RunStore

PERIOD = 0.5
_SLICE = 500


async def follow(
    store: RunStore, run_id: str, after: int = 0, attempt: int | None = None
) -> AsyncGenerator[list[LogLine], None]:
    """New lines of a run, as they come; an empty list if there were none for a period. Ends with the run."""
    while True:
        run = await store.run(run_id)  # before the lines: the last ones are stored before the run ends
        lines = await store.lines(run_id, after, _SLICE, attempt=attempt)
        if not lines and (run is None or run.final):
            return
        yield lines
        if lines:
            after = lines[-1].number
        if len(lines) < _SLICE and not (run is None or run.final):
            await asyncio.sleep(PERIOD)
