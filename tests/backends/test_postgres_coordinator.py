"""Leases, presence and shared values on PostgreSQL."""

import uuid

import pytest

from duly.backends.postgres.bell import Bell
from duly.backends.postgres.connection import Lanes
from duly.backends.postgres.coordinator import PostgresCoordinator
from duly.backends.postgres.migrating import migrate
from duly.backends.postgres.url import parse
from duly.testing.conformance import CoordinatorSuite


class Rig:
    def __init__(self, url):
        self.lanes = Lanes(parse(url), uuid.uuid4().hex)
        self.bell = Bell(self.lanes)
        self.coordinator = PostgresCoordinator(self.lanes, self.bell)
        self.store = self

    async def migrate(self):
        return await migrate(self.lanes)

    async def __aenter__(self):
        await self.lanes.open()
        self.bell.open()
        return self

    async def __aexit__(self, *exc):
        self.bell.close()
        await self.lanes.close()


class TestCoordinator(CoordinatorSuite):
    @pytest.fixture(autouse=True)
    def _server(self, postgres_url):
        self.url = postgres_url

    def backend(self):
        return Rig(self.url)
