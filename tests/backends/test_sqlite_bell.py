"""The bell: who is woken, what is not lost, and what happens where there is no place for it."""

import asyncio
import socket
import tempfile

import pytest

from duly.backends.sqlite import open_url
from duly.backends.sqlite.bell import Bell, directory_for
from duly.backends.sqlite.unit import ENDED, SHARED, WORK
from duly.errors import BackendUnavailable
from duly.model import Lease, Node, RunQuery
from duly.ports import Opening
from duly.testing.conformance import World

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs local sockets")


@pytest.fixture
async def backend(tmp_path):
    async with open_url(f"sqlite:///{tmp_path}/jobs.db", Opening()) as opened:
        yield opened


@pytest.fixture
def world(backend):
    return World(backend)


@pytest.fixture
async def waiter(backend):
    """Another session, which has begun to listen."""
    async with backend.session() as other:
        await other.queue.wait("n", None, 0)
        yield other


def _rings(session) -> dict[int, int]:
    return dict(session._session.gear.bell.rings)


async def _settled(backend, waiter) -> None:
    """Everything rung so far has been heard: rings of one session arrive in order."""
    seen = _rings(waiter)[SHARED]
    await backend.coordinator.put("marker", b"")
    await waiter._session.gear.bell.wait(SHARED, seen, 30)


async def _heard(backend, waiter, change) -> int:
    """The kinds that a change rings for."""
    await _settled(backend, waiter)
    before = _rings(waiter)
    await change
    await _settled(backend, waiter)
    after = _rings(waiter)
    return sum(kind for kind in (WORK, ENDED) if after[kind] > before[kind])


# --- what rings


async def test_ready_work_rings(backend, world, waiter):
    assert await _heard(backend, waiter, world.put(world.run())) == WORK


async def test_an_earlier_next_due_rings_and_a_later_one_does_not(backend, world, waiter):
    assert await _heard(backend, waiter, world.put(world.run(delay=60))) == WORK
    assert await _heard(backend, waiter, world.put(world.run(delay=90))) == 0
    assert await _heard(backend, waiter, world.put(world.run(delay=30))) == WORK


async def test_a_run_that_was_put_before_does_not_ring_again(backend, world, waiter):
    await world.put(run := world.run())
    assert await _heard(backend, waiter, world.put(run)) == 0


async def test_ends_ring_for_those_who_wait_for_ends(backend, world, waiter):
    await world.put(world.run())
    [claim] = await world.claim()
    assert await _heard(backend, waiter, world.settle(claim)) == ENDED


async def test_a_cancellation_rings(backend, world, waiter):
    await world.put(run := world.run(delay=60))
    assert await _heard(backend, waiter, backend.store.cancel([run.id])) == WORK | ENDED


async def test_a_free_leadership_rings(backend, world, waiter):
    lease = await backend.coordinator.acquire("leader", "a", 10)
    assert isinstance(lease, Lease)
    assert await _heard(backend, waiter, backend.coordinator.release([lease])) == WORK
    assert await _heard(backend, waiter, backend.coordinator.release([lease])) == 0


async def test_nothing_to_do_does_not_ring(backend, world, waiter):
    node = Node(id="n", host="h", pid=1, started_at=world.now)
    for idle in (
        backend.queue.claim("n", None, None, 10, 15, 1),
        backend.queue.renew([], 15),
        backend.queue.reap(10, 15),
        backend.queue.promote(10),
        backend.coordinator.announce(node, 10),
        backend.store.runs(RunQuery(), 10),
    ):
        assert await _heard(backend, waiter, idle) == 0


# --- what is not lost


async def test_a_ring_between_two_waits_ends_the_second_at_once(backend, world, waiter):
    await world.put(world.run())
    async with asyncio.timeout(30):
        await waiter.queue.wait("n", None, 3600)


async def test_the_first_wait_returns_at_once_since_rings_may_have_been_missed(backend, world):
    async with backend.session() as other:
        await world.put(world.run())
        async with asyncio.timeout(30):
            await other.queue.wait("n", None, 3600)


async def test_a_sessions_own_changes_wake_it(backend, world):
    await backend.queue.wait("n", None, 0)
    async with asyncio.timeout(30):
        waiting = asyncio.create_task(backend.queue.wait("n", None, 3600))
        await world.put(world.run())
        await waiting


async def test_many_wait_for_many_ends(backend, world):
    runs = [world.run() for _ in range(300)]
    await world.put(*runs)
    async with backend.session() as other, asyncio.timeout(60):
        waiting = [asyncio.create_task(other.store.finished([run.id], 3600)) for run in runs]
        claims = await world.claim(300)
        for start in range(0, 300, 50):
            await backend.queue.settle([world.settlement(claim) for claim in claims[start : start + 50]])
        ended = await asyncio.gather(*waiting)
    assert [run.id for [run] in ended] == [run.id for run in runs]


async def test_waiting_for_an_end_hears_of_trouble(tmp_path):
    async with open_url(f"sqlite:///{tmp_path}/jobs.db", Opening()) as backend:
        world = World(backend)
        await world.put(run := world.run())
        waiting = asyncio.create_task(backend.store.finished([run.id], 3600))
        await asyncio.sleep(0)
        assert await backend.store.finished([run.id], 0) == []

        def trouble(_):
            raise BackendUnavailable("gone")

        endings = backend._session.gear.endings
        endings._look = lambda _: backend._session.gear.reader.submit(trouble)
        endings._sweep()
        with pytest.raises(BackendUnavailable, match="gone"):
            await waiting


# --- the place


async def test_the_directory_is_private_and_empty_afterwards(tmp_path):
    async with open_url(f"sqlite:///{tmp_path}/jobs.db", Opening()) as backend:
        await backend.queue.wait("n", None, 0)
        directory = directory_for((tmp_path / "jobs.db").resolve(), "duly")
        assert directory is not None
        assert directory.stat().st_mode & 0o777 == 0o700
        assert len([file for file in directory.iterdir() if file.suffix == ".bell"]) == 1
    assert [file for file in directory.iterdir() if file.suffix == ".bell"] == []


async def test_what_a_dead_process_left_behind_is_removed(backend, world, tmp_path):
    directory = directory_for((tmp_path / "jobs.db").resolve(), "duly")
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    stale.bind(str(directory / "1-dead.bell"))
    stale.close()
    await world.put(world.run())
    await backend.close()
    assert not (directory / "1-dead.bell").exists()


async def test_a_listener_that_does_not_look_costs_nothing(backend, world, tmp_path):
    directory = directory_for((tmp_path / "jobs.db").resolve(), "duly")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(directory / "1-deaf.bell"))
        async with asyncio.timeout(30):
            for _ in range(300):
                await world.put(world.run())
        (directory / "1-deaf.bell").unlink()


async def test_a_new_listener_is_noticed(backend, world):
    """Directories bear coarse times: one that changed a moment ago is read again."""
    for _ in range(20):
        await world.put(world.run())
        async with backend.session() as other, asyncio.timeout(30):
            await other.queue.wait("n", None, 0)
            waiting = asyncio.create_task(other.queue.wait("n", None, 3600))
            await world.put(world.run())
            await waiting


def test_a_directory_that_others_can_enter_is_not_used(tmp_path):
    directory = directory_for(tmp_path / "jobs.db", "duly")
    assert directory is not None
    directory.chmod(0o755)
    assert directory_for(tmp_path / "jobs.db", "duly") is None
    directory.rmdir()
    directory.symlink_to(tmp_path)
    assert directory_for(tmp_path / "jobs.db", "duly") is None
    directory.unlink()


def test_a_directory_too_deep_for_a_socket_is_not_used(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert directory_for(tmp_path / "jobs.db", "duly") is None


async def test_without_a_place_to_meet_the_timeout_does(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    async with open_url(f"sqlite:///{tmp_path}/jobs.db", Opening()) as backend:
        world = World(backend)
        await backend.queue.wait("n", None, 0.01)
        await world.put(world.run())
        await backend.queue.wait("n", None, 3600)
        assert len(await world.claim()) == 1
        findings = {finding.subject: finding.message for finding in await backend.examine()}
        assert "next tick" in findings["wake-ups"]


async def test_a_socket_that_cannot_be_bound_is_done_without(tmp_path):
    directory = tmp_path / "gone"
    bell = Bell(directory)
    assert bell.listen()
    assert not bell.reaches_others
    bell.ring_others(WORK)
    bell.close()
