"""Time limits that follow from a lease: how long it may be trusted, and how long one call to a store may take."""

from __future__ import annotations

_TRUSTED = 5 / 6  # the rest is a margin for clocks that run at different speeds
_SHORTEST = 1.0  # seconds that any call may take: servers under load are slow for a moment


def longest_call(lease: float) -> float:
    """The most seconds that a renewal may take.

    If one hangs, there is time for another before the lease ends, even if claims are renewed only twice per lease.
    """
    return max(_SHORTEST, lease / 3)


def trusted_until(sent: float, lease: float) -> float:
    """Until when a lease can be trusted if its request was sent at that moment."""
    return sent + lease * _TRUSTED


def sent_at(trusted: float, lease: float) -> float:
    """When the request was sent for a lease that can be trusted until that moment."""
    return trusted - lease * _TRUSTED
