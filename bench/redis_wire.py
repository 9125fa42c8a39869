"""What a call costs on our own connection and with redis-py (decision 0015): `python bench/redis_wire.py`."""

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable

import redis.asyncio

from duly.backends.redis.client import RedisClient
from duly.backends.redis.scripts import script_of, scripts
from duly.backends.redis.settings import parse
from duly.testing.servers import redis_server

BODY = b"x" * 200
ECHO = script_of("echo", "return ARGV")


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(label: str, call: Callable[[], Awaitable[object]], calls: int, tasks: int) -> None:
    async def some() -> None:
        for _ in range(calls // tasks):
            await call()

    used, began = cpu(), time.perf_counter()
    await asyncio.gather(*(some() for _ in range(tasks)))
    seconds = time.perf_counter() - began
    print(
        f"{label:<10}{tasks:>4} tasks {calls / seconds:>9,.0f}/s {(cpu() - used) / calls * 1e6:>7.1f} µs CPU per call"
    )


async def main() -> None:
    with redis_server() as server:
        wire = RedisClient(parse(server.url), "bench", {"identify": scripts()["identify"], "echo": ECHO})
        client = redis.asyncio.Redis.from_url(server.url)
        await wire.open()
        sha = await client.script_load(ECHO.text.decode())
        for tasks, calls in [(1, 8_000), (50, 20_000)] * 2:
            await measure("duly", lambda: wire.call("echo", BODY), calls, tasks)
            await measure("redis-py", lambda: client.evalsha(sha, 1, "key", BODY), calls // 2, tasks)
        await wire.close()
        await client.aclose()


if __name__ == "__main__":
    asyncio.run(main())
