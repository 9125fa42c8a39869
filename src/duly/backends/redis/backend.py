from __future__ import annotations
from duly.backends.redis.queue import RedisQueue
from duly.backends.redis.store import RedisStore
from duly.backends.redis.coordinator import RedisCoordinator
from duly.backends.redis.url import parse
from duly.backends.redis.wire import Wire
from duly.ports import Capabilities, Opening

class RedisBackend:
    capabilities = Capabilities(durable=False, durable_start=False, shared=True, transactions=False, push=True, threads=True)
    def __init__(self, place, namespace):
        self.place, self.namespace = place, namespace
        self.wire = Wire(place, namespace)
        self.queue = RedisQueue(self.wire)
        self.coordinator = RedisCoordinator(self.wire)
        self.store = RedisStore(self.wire)
    def session(self):
        return RedisBackend(self.place, self.namespace)
    async def open(self): await self.wire.open()
    async def close(self): await self.wire.close()
    async def __aenter__(self):
        await self.open(); return self
    async def __aexit__(self, *exc): await self.close()

def open_url(url, opening: Opening): return RedisBackend(parse(url), opening.namespace)
