"""Options that the URLs of several backends share."""

from __future__ import annotations

import math
from collections.abc import Mapping

from duly.errors import ConfigurationError


def timeout_of(options: Mapping[str, str]) -> float:
    """The deadline of every call, in seconds."""
    text = options.get("timeout", "5")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.05 <= seconds <= 600:
        raise ConfigurationError(f"timeout={text!r} is not possible: seconds, from 0.05 to 600")
    return seconds
