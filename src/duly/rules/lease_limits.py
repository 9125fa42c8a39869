"""How long one call to a store may take, so that a call that hangs does not cost a claim its lease."""

from __future__ import annotations

SHORTEST = 1.0
"""Seconds that any call may take: servers under load are slow for a moment."""


def longest_call(lease: float) -> float:
    """The most seconds that a renewal may take: when one hangs, there is time for two more before the lease ends."""
    return max(SHORTEST, lease / 3)
