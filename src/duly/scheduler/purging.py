"""Deleting ended runs on request, in steps that are so short that they do not delay other work (`rules.purging`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime

from duly.model import State
from duly.ports import RunStore
from duly.rules.purging import FIRST_STEP, next_step, pause_after


async def purge_some(store: RunStore, states: Sequence[State], before: datetime, limit: int) -> int:
    """Delete up to `limit` runs of these final states that ended before that time, with their attempts; how many."""
    purged, size = 0, FIRST_STEP
    for state in states:
        while purged < limit:
            began = time.monotonic()
            some = await store.purge(state, before, None, min(size, limit - purged))
            seconds = time.monotonic() - began
            purged += some
            if some == 0:
                break
            size = next_step(size, seconds)
            await asyncio.sleep(pause_after(seconds))
    return purged
