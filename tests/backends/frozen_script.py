"""A process that changes the claim of another node on PostgreSQL, and is stopped before it commits."""

import asyncio
import sys

from duly.backends import open_backend
from duly.ports import Opening


async def main(url, namespace, lease, run_id):
    backend = open_backend(url, Opening(namespace=namespace, lease=float(lease)))
    async with backend:
        await backend.connections["store"].transact(lambda connection: hold(backend, connection, run_id), timeout=600)


async def hold(backend, connection, run_id):
    """Lock what renewals touch: the claim, and the row that all renewals stamp."""
    schema = f'"{backend.connections.texts.namespace}"'
    await connection.fetch(
        f"UPDATE {schema}.claims AS c SET cancelling = c.cancelling FROM {schema}.runs AS r"
        " WHERE r.seq = c.seq AND r.id = $1",
        run_id,
    )
    await connection.fetch(f"SELECT 1 FROM {schema}.pulse FOR UPDATE")
    sys.stdout.write("locked\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
