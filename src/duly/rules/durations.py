"""Lengths of time as text: "10m", "1h30m", "90s", "500ms", "2 h 5 min", "10 minutes"; a plain number is seconds.

Durations that Duly prints are also valid input.
"""

from __future__ import annotations

import re

from duly.errors import ConfigurationError, shown

_SPELLINGS = {
    604800.0: ("w", "week", "weeks"),
    86400.0: ("d", "day", "days"),
    3600.0: ("h", "hour", "hours"),
    60.0: ("m", "min", "minute", "minutes"),
    1.0: ("s", "sec", "second", "seconds"),
    0.001: ("ms", "millisecond", "milliseconds"),
    0.000001: ("us", "microsecond", "microseconds"),
}
_UNITS = {name: seconds for seconds, names in _SPELLINGS.items() for name in names}
# The longest spelling first, and none that is followed by another letter: "5month" is not five minutes.
_NAMES = "|".join(sorted(_UNITS, key=len, reverse=True))
_ARTICLE = re.compile(r"^an? ")  # "an hour", "a minute"
_PART = re.compile(rf"(\d+(?:\.\d+)?)\s*({_NAMES})(?![a-z])", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern}\s*)+", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_LONGEST = 100 * 366 * 86400.0
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def seconds_of(text: str) -> float:
    """The seconds that a text means; raises `ConfigurationError`."""
    plain = _ARTICLE.sub("1 ", text.strip().lower())
    if _NUMBER.fullmatch(plain):
        seconds = float(plain)
    elif _WHOLE.fullmatch(plain):
        seconds = sum(float(count) * _UNITS[unit] for count, unit in _PART.findall(plain))
    else:
        raise ConfigurationError(f"invalid duration {shown(text)}: expected e.g. 90s, 10m, 1h30m or 500ms")
    if seconds > _LONGEST:
        raise ConfigurationError(f"invalid duration {shown(text)}: 100 years at most")
    return seconds


def span(seconds: float) -> str:
    """A duration: "320 ms", "4.2 s", "3 min", "2 h 5 min", "3 days"."""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < _HOUR - 30:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        hours, minutes = divmod(round(seconds / _MINUTE), 60)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{seconds / _DAY:.0f} days"
