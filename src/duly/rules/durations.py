"""Lengths of time as text, where text is the medium: "10m", "1h30m", "90s", "500ms"; a plain number is seconds."""

from __future__ import annotations

import re

from duly.errors import ConfigurationError

_UNITS = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[wdhms])", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern}\s*)+", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_LONGEST = 100 * 366 * 86400.0


def seconds_of(text: str) -> float:
    """The seconds that a text stands for; raises `ConfigurationError`."""
    plain = text.strip().lower()
    if _NUMBER.fullmatch(plain):
        seconds = float(plain)
    elif _WHOLE.fullmatch(plain):
        seconds = sum(float(count) * _UNITS[unit] for count, unit in _PART.findall(plain))
    else:
        raise ConfigurationError(f"{text!r} is no duration: write for example 90s, 10m, 1h30m or 500ms")
    if seconds > _LONGEST:
        raise ConfigurationError(f"{text!r} is too long: 100 years at most")
    return seconds
