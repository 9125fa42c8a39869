"""Leases, presence and shared values on PostgreSQL, also beside others who ask at the same time."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from duly.backends.postgres.backend import PostgresBackend
from duly.backends.postgres.url import parse
from duly.model import Node
from duly.ports import Opening
from duly.testing.conformance import CoordinatorSuite


def fresh(url):
    return PostgresBackend(parse(url), Opening(uuid.uuid4().hex))


class TestCoordinator(CoordinatorSuite):
    @pytest.fixture(autouse=True)
    def _server(self, postgres_url):
        self.url = postgres_url

    def backend(self):
        return fresh(self.url)


async def test_of_many_who_want_a_new_lease_at_once_one_gets_it(postgres_url):
    async with fresh(postgres_url) as first:
        sessions = [first, *(first.session() for _ in range(5))]
        for session in sessions:
            await session.open()
        for turn in range(5):
            wanted = [
                session.coordinator.acquire(f"lease-{turn}", f"holder-{number}", 60)
                for number, session in enumerate(sessions)
            ]
            assert len([lease for lease in await asyncio.gather(*wanted) if lease is not None]) == 1
        for session in sessions[1:]:
            await session.close()


async def test_fences_grow_over_many_hands(postgres_url):
    async with fresh(postgres_url) as first, first.session() as second:
        fences = []

        async def take(session, holder):
            for _ in range(20):
                lease = None
                while lease is None:
                    lease = await session.coordinator.acquire("leader", holder, 60)
                fences.append(lease.fence)
                await session.coordinator.release([lease])

        await asyncio.gather(take(first, "a"), take(second, "b"))
        assert fences == sorted(set(fences))


async def test_a_lease_given_back_wakes_who_waits_for_work_elsewhere(postgres_url):
    async with fresh(postgres_url) as first, first.session() as second:
        lease = await first.coordinator.acquire("leader", "a", 60)
        assert lease is not None
        await second.queue.wait("b", None, 0.01)  # begins to listen
        await second.queue.wait("b", None, 0.01)
        waiting = asyncio.create_task(second.queue.wait("b", None, 600))
        await asyncio.sleep(0)
        await first.coordinator.release([lease])
        async with asyncio.timeout(60):
            await waiting


async def test_what_nobody_has_asked_about_for_a_day_is_forgotten(postgres_url):
    async with fresh(postgres_url) as backend:
        now = datetime.now(UTC)
        node = Node(id="a", host="h", pid=1, started_at=now)
        await backend.coordinator.announce(node, 10, now=now)
        await backend.coordinator.acquire("once", "a", 10, now=now)
        await backend.coordinator.announce(
            Node(id="b", host="h", pid=2, started_at=now), 10, now=now + timedelta(days=2)
        )
        left = await backend.connections["store"].run(
            lambda c: c.fetchval(
                f"SELECT (SELECT count(*) FROM {backend.connections.texts.schema}.nodes)"
                f" + (SELECT count(*) FROM {backend.connections.texts.schema}.leases)"
            )
        )
        assert left == 1
