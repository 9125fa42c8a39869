"""The bell: who is woken, what is not lost, and what happens where there is no place for it."""

import asyncio
import socket
import tempfile

import pytest

from duly.backends.sql.notify import ENDED, SHARED, WORK
from duly.backends.sqlite import open_url
from duly.backends.sqlite.files import RuntimeDir
from duly.backends.sqlite.notify import Notifier
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
    return dict(session._session.notifier.rings)


async def _settled(backend, waiter) -> None:
    """Everything rung so far has been heard: rings of one session arrive in order."""
    seen = _rings(waiter)[SHARED]
    await backend.coordinator.put("marker", b"")
    await waiter._session.notifier.wait(SHARED, seen, 30)


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

        async def trouble(_):
            raise BackendUnavailable("gone")

        backend.store._waiters._look_up = lambda _: backend._session.read(trouble)
        backend._session.notifier.ring(ENDED)
        with pytest.raises(BackendUnavailable, match="gone"):
            await waiting


# --- the place


def _meeting(folder) -> RuntimeDir:
    return RuntimeDir((folder / "jobs.db").resolve(), "duly")


async def test_the_directory_is_private_and_gone_afterwards(tmp_path):
    directory = _meeting(tmp_path).directory
    async with open_url(f"sqlite:///{tmp_path}/jobs.db", Opening()) as backend:
        await backend.queue.wait("n", None, 0)
        assert directory.stat().st_mode & 0o777 == 0o700
        assert len(_meeting(tmp_path).listeners()) == 1
        async with backend.session() as other:
            await other.queue.wait("n", None, 0)
            assert len(_meeting(tmp_path).listeners()) == 2
        assert len(_meeting(tmp_path).listeners()) == 1
    assert not directory.exists()


async def test_who_is_woken_by_the_end_does_not_listen_again(tmp_path):
    meeting = _meeting(tmp_path)
    notifier = Notifier(meeting)
    assert await notifier.listen()

    async def wait_again():
        await notifier.wait(WORK, notifier.rings[WORK], 60)
        return await notifier.listen()

    waiting = asyncio.create_task(wait_again())
    await asyncio.sleep(0)
    notifier.close()
    assert not await waiting
    assert notifier._socket is None
    assert not meeting.directory.exists()


async def test_a_close_that_nobody_waits_for_leaves_no_socket(tmp_path):
    backend = open_url(f"sqlite:///{tmp_path}/jobs.db", Opening())
    await backend.open()
    await backend.queue.wait("n", None, 0)
    notifier = backend._session.notifier
    closing = asyncio.create_task(backend.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert notifier._socket is None
    notifier.ring_others(WORK)
    assert notifier._sender is None


async def test_a_place_that_somebody_took_away_is_made_anew(backend, world, tmp_path):
    async with backend.session():
        pass
    assert not _meeting(tmp_path).directory.exists()
    await backend.queue.wait("n", None, 0)
    async with backend.session() as other, asyncio.timeout(30):
        await other.queue.put([world.run()], now=world.now)
        await backend.queue.wait("n", None, 3600)


async def test_what_a_dead_process_left_behind_is_removed(backend, world, tmp_path):
    meeting = _meeting(tmp_path)
    assert meeting.make()
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    stale.bind(meeting.socket("1-dead"))
    stale.close()
    await world.put(world.run())
    await backend.close()
    assert not meeting.directory.exists()


async def test_a_listener_that_does_not_look_costs_nothing(backend, world, tmp_path):
    meeting = _meeting(tmp_path)
    assert meeting.make()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(meeting.socket("1-deaf"))
        async with asyncio.timeout(30):
            for _ in range(300):
                await world.put(world.run())
        meeting.leave("1-deaf")


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
    meeting = _meeting(tmp_path)
    assert meeting.make()
    meeting.directory.chmod(0o755)
    assert not meeting.make()
    meeting.directory.rmdir()
    meeting.directory.symlink_to(tmp_path)
    assert not meeting.make()
    meeting.directory.unlink()


def test_a_directory_too_deep_for_a_socket_is_not_used(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert not _meeting(tmp_path).make()


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


async def test_a_socket_that_cannot_be_bound_is_done_without(tmp_path, monkeypatch):
    meeting = _meeting(tmp_path)
    monkeypatch.setattr(meeting, "socket", lambda name: str(tmp_path / "missing" / name))
    bell = Notifier(meeting)
    assert await bell.listen()
    assert not await bell.listen()
    bell.ring_others(WORK)
    bell.close()
