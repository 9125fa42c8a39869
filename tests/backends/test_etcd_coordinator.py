"""Leases and presence by etcd's own clock: what the suite, which moves its own time, cannot see."""

import asyncio
import json
import os
import uuid

import pytest
from etcd_sessions import line_to, seat_at
from tests.conftest import eventually

from duly.errors import BackendError
from duly.model import Node
from duly.ports import SystemClock

TTL = 30.0


def _node(name):
    return Node(id=name, host="h", pid=1, started_at=SystemClock().now())


def _records(server, namespace, kind):
    """The values of all keys of one kind, by their last part."""
    found = json.loads(server.control("get", "--prefix", f"duly/{namespace}/{kind}/", "-w", "json"))
    return found.get("kvs", [])


def _expire(server, namespace, kind):
    """Let etcd's leases under these keys run out now."""
    for pair in _records(server, namespace, kind):
        if pair.get("lease"):
            server.control("lease", "revoke", f"{pair['lease']:x}")


async def test_a_lease_that_is_not_renewed_runs_out_by_the_clock_of_etcd(etcd_url):
    async with seat_at(etcd_url) as seat:
        old = await seat.coordinator.acquire("leader", "a", 1)
        assert await seat.coordinator.acquire("leader", "b", 1) is None
        new = await eventually(lambda: seat.coordinator.acquire("leader", "b", TTL), "it has run out")
        assert new.fence == old.fence + 1
        assert await seat.coordinator.renew([old], 1) == [None]


async def test_a_lease_that_ran_out_is_renewed_if_nobody_took_it(etcd_server):
    namespace = uuid.uuid4().hex
    async with seat_at(etcd_server.url, namespace) as seat:
        lease = await seat.coordinator.acquire("leader", "a", TTL)
        _expire(etcd_server, namespace, "marks")
        assert await seat.coordinator.holder("leader") is None
        [renewed] = await seat.coordinator.renew([lease], TTL)
        assert renewed.fence == lease.fence
        assert (await seat.coordinator.holder("leader")).holder == "a"


async def test_renewing_with_another_time_changes_how_long_it_lasts(etcd_url):
    async with seat_at(etcd_url) as seat:
        lease = await seat.coordinator.acquire("leader", "a", TTL)
        [longer] = await seat.coordinator.renew([lease], 600)
        assert longer.fence == lease.fence
        held = await seat.coordinator.holder("leader")
        assert (held.expires_at - lease.expires_at).total_seconds() > 500


async def test_fences_grow_after_a_name_was_free_for_long_and_the_server_restarted(tmp_path):
    from duly.testing.servers import etcd_server

    with etcd_server(folder=tmp_path) as server:
        async with seat_at(server.url) as seat:
            first = await seat.coordinator.acquire("lock", "a", TTL)
            await seat.coordinator.release([first])
            server.restart()
            second = await eventually(_patient(lambda: seat.coordinator.acquire("lock", "b", TTL)))
            assert second.fence > first.fence


def _patient(ask):
    async def check():
        try:
            return await ask()
        except BackendError:
            return None

    return check


async def test_many_who_ask_at_once_do_not_get_one_fence_twice(etcd_url):
    namespace = uuid.uuid4().hex
    async with seat_at(etcd_url, namespace) as one, seat_at(etcd_url, namespace) as other:
        fences = []
        for _ in range(3):
            asked = [
                seat.coordinator.acquire("leader", f"n{number}", TTL) for number in range(4) for seat in (one, other)
            ]
            [lease, *again] = [lease for lease in await asyncio.gather(*asked) if lease is not None]
            assert all((each.holder, each.fence) == (lease.holder, lease.fence) for each in again)
            fences.append(lease.fence)
            await other.coordinator.release([lease])
        assert fences == sorted(set(fences))


async def test_a_release_leaves_no_lease_behind_in_etcd(etcd_server):
    async with seat_at(etcd_server.url) as seat:
        before = etcd_server.control("lease", "list").count("\n")
        lease = await seat.coordinator.acquire("lock", "a", TTL)
        await seat.coordinator.renew([lease], 2 * TTL)
        await seat.coordinator.release([lease])
        assert await seat.coordinator.acquire("lock", "b", TTL) is not None
        await seat.coordinator.announce(_node("a"), TTL)
        await seat.coordinator.announce(_node("a"), TTL)
        await seat.coordinator.retire("a")
        assert etcd_server.control("lease", "list").count("\n") == before + 1


async def test_a_node_that_says_nothing_is_gone_by_the_clock_of_etcd(etcd_server):
    namespace = uuid.uuid4().hex
    async with seat_at(etcd_server.url, namespace) as seat:
        await seat.coordinator.announce(_node("a"), TTL)
        assert await seat.coordinator.beat("a", TTL, {"running": 3.0})
        assert await seat.coordinator.beat("a", 2 * TTL)
        [node] = await seat.coordinator.nodes()
        assert (node.id, node.metrics) == ("a", {"running": 3.0})
        _expire(etcd_server, namespace, "nodes")
        assert await seat.coordinator.nodes() == []
        assert not await seat.coordinator.beat("a", TTL)


async def test_a_lost_answer_to_an_acquisition_does_no_harm(etcd_server):
    async with line_to(etcd_server) as line, seat_at(line.url) as seat:
        line.lose = b"request_put"
        lease = await _insisting(lambda: seat.coordinator.acquire("leader", "a", TTL))
        assert line.lost == 1
        assert (lease.holder, lease.fence) == ("a", 1)
        assert (await seat.coordinator.holder("leader")).fence == 1


async def test_a_lost_answer_to_a_release_does_no_harm(etcd_server):
    async with line_to(etcd_server) as line, seat_at(line.url) as seat:
        lease = await seat.coordinator.acquire("leader", "a", TTL)
        line.lose = b"request_delete_range"
        await _insisting(lambda: seat.coordinator.release([lease]))
        assert line.lost == 1
        assert await seat.coordinator.holder("leader") is None


async def _insisting(ask):
    """Do as a service does: ask again while it cannot be reached."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await ask()
            except BackendError:
                await asyncio.sleep(0.02)


async def test_a_session_is_refused_in_a_forked_process(etcd_url):
    async with seat_at(etcd_url) as seat:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, _refusal(seat).encode())
            finally:
                os._exit(0)
        os.close(writing)
        said = os.read(reading, 1000).decode()
        os.close(reading)
        await asyncio.to_thread(os.waitpid, child, 0)
        assert "forked after" in said
        assert await seat.coordinator.get("config") is None


def _refusal(seat):
    """What a call says, made by hand: the child has the parent's loop, which must not run here."""
    try:
        seat.coordinator.get("config").send(None)
    except BackendError as exc:
        return str(exc)
    return "not refused"


async def test_a_session_is_refused_on_another_loop_and_when_it_is_closed(etcd_url):
    seat = seat_at(etcd_url)
    with pytest.raises(BackendError, match="is not open"):
        await seat.coordinator.get("config")
    async with seat:
        with pytest.raises(BackendError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, seat.coordinator.get("config"))
    with pytest.raises(BackendError, match="is not open"):
        await seat.coordinator.get("config")
