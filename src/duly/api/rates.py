"""Rate limits: how often a token may call and a handler may be submitted to. Off unless somebody sets them.

The buckets are in the store, so that a limit holds across all processes that serve. `rules.rate_limits` reads limits.
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
    """What is limited. None and an empty mapping are no limit."""

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
