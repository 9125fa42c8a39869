"""Rate limits: how often a token may call and a handler may be submitted to. Off unless somebody sets them.

The buckets are in the store, so that a limit holds across all processes that serve. A limit of "10/s" lets ten calls
through at once and ten per second after that; ":20" behind it makes that twenty at once.
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
    """So many per second in the long run, and `burst` at once."""

    per_second: float
    burst: float

    def __str__(self) -> str:
        return f"{self.per_second:g} per second, {self.burst:g} at once"


def parse(text: str) -> Rate:
    """`10/s`, `600/m`, `1000/h`, `10/s:20`."""
    found = _TEXT.fullmatch(text.strip())
    if found is None or not int(found["count"]) or found["burst"] == "0":
        raise ConfigurationError(
            f"{text!r} is no rate: write for example 10/s, 600/m, 1000/h or, with a burst, 10/s:20"
        )
    count = int(found["count"])
    return Rate(count / _UNITS[found["unit"]], float(found["burst"] or count))


def parse_each(text: str) -> dict[str, Rate]:
    """`greet=10/s,report=5/m`."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, rate = part.partition("=")
        if not equals:
            raise ConfigurationError(f"{part!r} names no rate: write handler=rate, for example greet=10/s")
        found[name.strip()] = parse(rate)
    return found


class Limits(Struct, frozen=True):
    """What is limited. None and an empty mapping are no limit."""

    token: Rate | None = None
    handlers: Mapping[str, Rate] = {}

    async def count_call(self, store: Store, token_id: str, own: Rate | None) -> None:
        """One more call with a token; its own rate comes before that of all tokens."""
        rate = own or self.token
        if rate is not None:
            await _take(store, f"token:{token_id}", 1, rate, "this token")

    async def count_submissions(self, store: Store, handlers: Mapping[str, int]) -> None:
        """So many more submissions to each of these handlers."""
        for name, count in handlers.items():
            rate = self.handlers.get(name)
            if rate is not None:
                await _take(store, f"handler:{name}", count, rate, f"handler {name!r}")


async def _take(store: Store, bucket: str, count: int, rate: Rate, whose: str) -> None:
    wait = await store.take(bucket, count, rate.per_second, rate.burst)
    if wait <= 0:
        return
    if wait >= _NEVER:
        detail = f"{whose} may take {rate}: {count} at once are too many; submit in smaller arrays"
        raise Problem(429, "too-many", detail)
    seconds = max(1, math.ceil(wait))
    detail = f"{whose} may take {rate}: try again in {seconds} s"
    raise Problem(429, "too-many", detail, headers=((b"retry-after", b"%d" % seconds),))
