"""Rate limits as text: "10/s" allows ten at once and ten per second after that; "10/s:20" allows twenty at once."""

from __future__ import annotations

import re

from msgspec import Struct

from duly.errors import ConfigurationError, shown

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_TEXT = re.compile(r"(?P<count>\d{1,9})/(?P<unit>[smh])(?::(?P<burst>\d{1,9}))?", re.ASCII)


class Rate(Struct, frozen=True):
    """A number per second on average, and `burst` at once."""

    per_second: float
    burst: float

    def __str__(self) -> str:
        return f"{self.per_second:g} per second, {self.burst:g} at once"


def parse(text: str) -> Rate:
    """Parse `10/s`, `600/m`, `1000/h` or `10/s:20`."""
    found = _TEXT.fullmatch(text.strip())
    if found is None or not int(found["count"]) or found["burst"] == "0":
        raise ConfigurationError(
            f"invalid rate {shown(text)}: expected e.g. 10/s, 600/m, 1000/h or, with a burst, 10/s:20"
        )
    count = int(found["count"])
    return Rate(count / _UNITS[found["unit"]], float(found["burst"] or count))


def parse_each(text: str) -> dict[str, Rate]:
    """Parse `greet=10/s,report=5/m`."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, rate = part.partition("=")
        if not equals:
            raise ConfigurationError(f"invalid rate {shown(part)}: expected handler=rate, e.g. greet=10/s")
        found[name.strip()] = parse(rate)
    return found
