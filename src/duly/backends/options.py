"""Options that the URLs of several backends share."""

from __future__ import annotations

import math
from collections.abc import Mapping

from duly.errors import ConfigurationError
from duly.rules.lease_limits import longest_call

USUAL_TIMEOUT = 5.0  # seconds; sessions that renew claims shorten it themselves


def timeout_of(options: Mapping[str, str]) -> float:
    """The deadline of every call, in seconds."""
    text = options.get("timeout", f"{USUAL_TIMEOUT:g}")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.05 <= seconds <= 600:
        raise ConfigurationError(f"timeout={text!r} is not possible: seconds, from 0.05 to 600")
    return seconds


def check_timeout(option: str, seconds: float, lease: float | None, shown: str) -> None:
    """Refuse an explicit call timeout so long that a claim's renewal could not be tried a second time.

    `lease` is the `lock_ttl` of the nodes that use the store, if it is known.
    """
    if lease is None or seconds == USUAL_TIMEOUT or seconds <= longest_call(lease):
        return
    raise ConfigurationError(
        f"{option}={seconds:g} s of {shown} is too long for lock_ttl={lease:g} s: a renewal that hangs must fail in"
        f" time for another one. Set {option} to at most {longest_call(lease):g}, or lock_ttl to at least"
        f" {3 * seconds:g} s"
    )
