from __future__ import annotations

from datetime import datetime

from duly.backends.redis.codec import body_of, encode, life_of, run_of
from duly.backends.redis.wire import Wire
from duly.model import Run, to_micros


class RedisStore:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def migrate(self) -> list[str]:
        return []

    async def run(self, run_id: str, *, now: datetime | None = None) -> Run | None:
        at, found = await self._wire.call("look", encode([run_id]))
        if not found:
            return None
        _, body, life, member, expires = found
        return run_of(
            run_id,
            body_of(body),
            life_of(life) if life else None,
            bool(member),
            int(expires) if expires else None,
            to_micros(now) if now else at,
        )
