"""How long one call to a store may take, so that a call that hangs does not cost a claim its lease."""

from __future__ import annotations

_SHORTEST = 1.0  # seconds that any call may take: servers under load are slow for a moment


def longest_call(lease: float) -> float:
    """The most seconds that a renewal may take.

    When one hangs there is time for another before the lease ends, even if claims are renewed only twice per lease.
    """
    return max(_SHORTEST, lease / 3)
