"""The PostgreSQL backend passes the whole conformance suite."""

import asyncio
import uuid

import asyncpg
import pytest

from duly.backends.postgres import PostgresBackend, open_url
from duly.ports import Opening
from duly.testing.conformance import BackendSuite


class TestPostgres(BackendSuite):
    @pytest.fixture(autouse=True)
    def _server(self, postgres_url):
        self.url = postgres_url
        self.namespaces: list[str] = []
        yield
        asyncio.run(self._sweep())

    def backend(self) -> PostgresBackend:
        self.namespaces.append(f"t{uuid.uuid4().hex}")
        return open_url(self.url, Opening(namespace=self.namespaces[-1]))

    async def _sweep(self) -> None:
        connection = await asyncpg.connect(self.url)
        for namespace in self.namespaces:
            await connection.execute(f'DROP SCHEMA IF EXISTS "{namespace}" CASCADE')
        await connection.execute("DROP TABLE IF EXISTS ledger")
        await connection.close()
