"""Token buckets: how many tokens a bucket has after some time, and how long to wait for more."""

from __future__ import annotations

import math


def refill(level: float, elapsed: float, tokens: float, rate: float, burst: float) -> tuple[float, float]:
    """Take `tokens` from a bucket that had `level` of them `elapsed` seconds ago.

    Returns the seconds to wait (0.0: taken) and the level afterwards. More than `burst` can never be taken.
    """
    filled = min(burst, level + max(0.0, elapsed) * rate)
    if tokens <= filled:
        return 0.0, filled - tokens
    if tokens > burst or rate <= 0:
        return math.inf, filled
    return (tokens - filled) / rate, filled
