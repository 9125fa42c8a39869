"""Empty stores on a PostgreSQL server, without making the schema anew for each."""

import asyncio
import threading

import asyncpg

_EMPTY = """
DO $$
DECLARE found record;
BEGIN
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
