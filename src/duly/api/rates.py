"""Rate limits of tokens and handlers. There are none by default.

The token buckets are in the store, so that a limit holds for all processes together. `rules.rate_limits` parses limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from duly.api.problems import Problem
from duly.ports import Store
from duly.rules.cluster_settings import HANDLER_RATES, TOKEN_RATE, InForce
from duly.rules.rate_limits import Rate, parse, parse_each

_NEVER = 1e9


class Limits(Struct, frozen=True):
    """The rate of all tokens, and the rates of handlers. None and an empty mapping mean no limit."""

    token: Rate | None = None
    handlers: Mapping[str, Rate] = {}

    def under(self, cluster: InForce) -> Limits:
        """The same with the cluster's settings over it."""
        token, handlers = self.token, self.handlers
        if TOKEN_RATE in cluster.values:
            text = cluster.text(TOKEN_RATE)
            token = None if text is None else parse(text)
        if HANDLER_RATES in cluster.values:
            handlers = parse_each(cluster.text(HANDLER_RATES) or "")
        return Limits(token, handlers)

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
