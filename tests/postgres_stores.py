"""What tests do to a PostgreSQL server: empty a store without making its schema again, end connections of others."""

import asyncio
import threading

import asyncpg

_EMPTY = """
DO $$
DECLARE found record;
BEGIN
    FOR found IN SELECT tablename FROM pg_tables WHERE schemaname = '{ns}' AND left(tablename, 6) = 'moved_' LOOP
        EXECUTE format('ALTER TABLE %I.%I RENAME TO %I', '{ns}', found.tablename, substr(found.tablename, 7));
    END LOOP;
    IF to_regclass('"{ns}".schema') IS NOT NULL THEN
        DELETE FROM "{ns}".schema WHERE version = 1000000;
    END IF;
    FOR found IN SELECT tablename FROM pg_tables WHERE schemaname = '{ns}' AND tablename <> 'schema' LOOP
        EXECUTE format('DELETE FROM %I.%I', '{ns}', found.tablename);
    END LOOP;
    IF to_regclass('"{ns}".pulse') IS NOT NULL THEN
        INSERT INTO "{ns}".pulse (beat, spared_until)
        VALUES ((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 0);
    END IF;
END $$;
DROP TABLE IF EXISTS ledger
"""


def emptied(url: str, namespace: str = "duly") -> str:
    """The same database with nothing in that namespace but its tables, if they are there; and no table of the tests."""

    async def empty() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(_EMPTY.replace("{ns}", namespace))
        finally:
            await connection.close()

    # On a thread: whoever asks may have a running loop.
    worker = threading.Thread(target=lambda: asyncio.run(empty()))
    worker.start()
    worker.join()
    return url


async def terminated(connection: asyncpg.Connection, which: str) -> None:
    """End the connections that a condition on `pg_stat_activity` selects, and return when they are gone."""
    selected = f"FROM pg_stat_activity WHERE {which} AND pid <> pg_backend_pid()"
    ended = [row["pid"] for row in await connection.fetch(f"SELECT pid, pg_terminate_backend(pid) {selected}")]
    assert ended, which
    while await connection.fetchval("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY($1)", ended):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
