"""Rate limits of tokens and handlers. There are none by default.

The token buckets are in the store, so that a limit holds for all processes together. A limit of "10/s" allows ten calls
at once and then ten per second; "10/s:20" allows twenty at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from msgspec import Struct

from duly.api.problems import Problem
from duly.errors import ConfigurationError
from duly.ports import Store

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_TEXT = re.compile(r"(?P<count>\d{1,9})/(?P<unit>[smh])(?::(?P<burst>\d{1,9}))?", re.ASCII)
_NEVER = 1e9


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
        raise ConfigurationError(f"invalid rate {text!r}: expected e.g. 10/s, 600/m, 1000/h or, with a burst, 10/s:20")
    count = int(found["count"])
    return Rate(count / _UNITS[found["unit"]], float(found["burst"] or count))


def parse_each(text: str) -> dict[str, Rate]:
    """Parse `greet=10/s,report=5/m`."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, rate = part.partition("=")
        if not equals:
            raise ConfigurationError(f"invalid rate {part!r}: expected handler=rate, e.g. greet=10/s")
        found[name.strip()] = parse(rate)
    return found


class Limits(Struct, frozen=True):
    """The rate of all tokens, and the rates of handlers. None and an empty mapping mean no limit."""

    token: Rate | None = None
    handlers: Mapping[str, Rate] = {}

    async def count_call(self, store: Store, token_id: str, own: Rate | None) -> None:
        """Count a call of a token. Its own rate overrides the rate of all tokens."""
        rate = own or self.token
        if rate is not None:
            await _take(store, f"token:{token_id}", 1, rate, "this token")

    async def count_submissions(self, store: Store, handlers: Mapping[str, int]) -> None:
        """Count submissions by handler."""
        for name, count in handlers.items():
            rate = self.handlers.get(name)
            if rate is not None:
                await _take(store, f"handler:{name}", count, rate, f"handler {name!r}")


async def _take(store: Store, bucket: str, count: int, rate: Rate, whose: str) -> None:
    wait = await store.take(bucket, count, rate.per_second, rate.burst)
    if wait <= 0:
        return
    if wait >= _NEVER:
        detail = f"{whose} is limited to {rate}: {count} at once are too many; submit smaller arrays"
        raise Problem(429, "too-many", detail)
    seconds = max(1, math.ceil(wait))
    detail = f"{whose} is limited to {rate}: try again in {seconds} s"
    raise Problem(429, "too-many", detail, headers=((b"retry-after", b"%d" % seconds),))
