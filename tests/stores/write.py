"""Writes the stores of the installed version of Duly into a folder: `python -m tests.stores.write tests/stores/v0_1_0`.

A folder is written once, by the version whose name it has, and never again: it is what later versions must open.
"""

import asyncio
import sys
from pathlib import Path

from duly.ports import Backend, Opening
from duly.testing.postgres_servers import postgres_server
from duly.testing.servers import redis_server
from tests.stores import transfer
from tests.stores.content import fill, found


async def _filled(backend: Backend) -> bytes:
    async with backend:
        await backend.store.migrate()
        await fill(backend)
        return await found(backend)


def main(folder: Path) -> None:
    from duly.backends.postgres import open_url as postgres
    from duly.backends.redis import open_url as redis
    from duly.backends.sqlite import open_url as sqlite

    folder.mkdir(parents=True)
    file = folder / "sqlite.db"
    said = {"sqlite": asyncio.run(_filled(sqlite(f"sqlite:///{file}", Opening())))}
    transfer.tidy_sqlite(file)
    with redis_server() as server:
        said["redis"] = asyncio.run(_filled(redis(server.url, Opening())))
        (folder / "redis.resp").write_bytes(transfer.dump_redis(server.url))
    with postgres_server() as server:
        said["postgres"] = asyncio.run(_filled(postgres(server.url, Opening())))
        (folder / "postgres.sql").write_text(transfer.dump_postgres(server.port))
    for name, text in said.items():
        (folder / f"{name}.json").write_bytes(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
