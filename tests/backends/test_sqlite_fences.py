"""Fences on SQLite: never twice, not even from a file that has forgotten."""

import shutil
from datetime import UTC, datetime, timedelta

from duly.backends.sqlite import open_url
from duly.ports import Opening
from duly.testing.conformance import World


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()


async def _fence(folder, clock: Clock) -> int:
    """Claim one run in a session of its own."""
    async with open_url(f"sqlite:///{folder}/jobs.db", Opening(clock=clock)) as backend:
        world = World(backend, seed=int(clock.at.timestamp() * 1e6))
        await world.put(world.run())
        [claim] = await world.claim(1)
        await world.settle(claim)
        return claim.fence


async def test_a_restored_copy_does_not_give_a_fence_out_again(tmp_path):
    clock = Clock()
    await _fence(tmp_path, clock)
    shutil.copy(tmp_path / "jobs.db", tmp_path / "backup.db")
    lent = []
    for _ in range(3):
        clock.at += timedelta(milliseconds=1)
        lent.append(await _fence(tmp_path, clock))
    shutil.copy(tmp_path / "backup.db", tmp_path / "jobs.db")
    clock.at += timedelta(milliseconds=1)
    assert await _fence(tmp_path, clock) > max(lent)


async def test_fences_grow_though_the_clock_steps_back(tmp_path):
    clock = Clock()
    first = await _fence(tmp_path, clock)
    clock.at -= timedelta(days=365)
    second = await _fence(tmp_path, clock)
    clock.at += timedelta(days=3650)
    third = await _fence(tmp_path, clock)
    assert first < second < third < 2**53


async def test_fences_stay_exact_in_json_at_the_end_of_time(tmp_path):
    clock = Clock()
    clock.at = datetime(9000, 1, 1, tzinfo=UTC)
    assert await _fence(tmp_path, clock) < await _fence(tmp_path, clock) < 2**53


async def test_sessions_share_one_row_of_fences(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with open_url(url, Opening()) as one, open_url(url, Opening()) as two:
        world = World(one)
        await world.put(*[world.run() for _ in range(20)])
        fences = []
        for request in range(10):
            for node, session in (("a", one), ("b", two)):
                claimed = await session.queue.claim(node, None, None, 1, 15, request + 1, now=world.now)
                fences += [claim.fence for claim in claimed.claims]
                lease = await session.coordinator.acquire(f"lock-{len(fences)}", "a", 10)
                assert lease is not None
                fences.append(lease.fence)
    assert fences == sorted(set(fences))
