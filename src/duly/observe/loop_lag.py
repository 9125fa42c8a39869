"""Lag: how late the event loop turns, looked at twice a second."""

from __future__ import annotations

import asyncio

from duly.observe.metrics import MetricsRecorder

_PERIOD = 0.5


async def watch_loop(meters: MetricsRecorder) -> None:
    """Measure until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        asked = loop.time()
        await asyncio.sleep(_PERIOD)
        meters.loop_lag.add(max(0.0, loop.time() - asked - _PERIOD))
