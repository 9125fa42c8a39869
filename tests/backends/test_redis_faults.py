"""What goes wrong with servers: each is said in words, as something that passes or does not, and nothing hangs."""

import asyncio
import shutil

import pytest
from redis_connections import new_namespace, operator, wired
from tests.conftest import eventually

from duly.backends.redis.backend import RedisBackend
from duly.backends.redis.connection import error_code, moved_to, reply_error
from duly.backends.redis.settings import parse
from duly.errors import BackendError, BackendUnavailable
from duly.testing.servers import redis_sentinel
from duly.testing.servers import redis_server as start_redis

# --- replies


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", "OOM"),
        ("READONLY You can't write against a read only replica. script: 3f, on @user_script:7.", "READONLY"),
        ("ERR Error running script (call to f_1): @user_script:7: -OOM command not allowed when used memory", "OOM"),
        ("ERR Error running script (call to f_1): @user_script:2: -READONLY You can't write", "READONLY"),
        ("ERR user_script:1: Unknown command called", "ERR"),
        ("WRONGTYPE Operation against a key", "WRONGTYPE"),
    ],
)
def test_the_kind_of_an_error_is_found_also_inside_that_of_a_script(text, kind):
    assert error_code(text) == kind


PASSING = [
    *("LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "TRYAGAIN"),
    *("OOM", "MISCONF", "NOREPLICAS", "UNKILLABLE", "MOVED", "ASK"),
]


@pytest.mark.parametrize("word", PASSING)
def test_what_passes_is_unavailable(word):
    error = reply_error(f"{word} for some reason", "redis://host:1/0")
    assert isinstance(error, BackendUnavailable)
    assert "redis://host:1/0" in str(error)


@pytest.mark.parametrize("word", ["ERR", "NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "NOSCRIPT"])
def test_what_does_not_pass_is_an_error(word):
    assert type(reply_error(f"{word} for some reason", "redis://host:1/0")) is BackendError


def test_a_crowded_server_is_unavailable():
    assert isinstance(reply_error("ERR max number of clients reached", "here"), BackendUnavailable)


def test_where_a_cluster_sends_us():
    assert moved_to("MOVED 3999 10.0.0.1:6381") == ("10.0.0.1", 6381)
    assert moved_to("MOVED 3999 :6381") == ("", 6381)
    assert moved_to("ASK 3999 10.0.0.1:6381") is None


# --- one server

QUICK = {"repl-ping-replica-period": "1", "repl-diskless-sync-delay": "0"}


async def test_a_full_memory_passes():
    with start_redis() as server, operator(server) as client:
        async with wired(server.url) as wire:
            client.config_set("maxmemory", "1")
            with pytest.raises(BackendUnavailable, match="no memory left"):
                await wire.call("write", "key", "value")
            assert await wire.call("read", "key") is None
            client.config_set("maxmemory", "0")
            await wire.call("write", "key", "value")


async def test_a_disk_that_cannot_be_written_passes():
    with start_redis(config={"save": "3600 1000000"}) as server, operator(server) as client:
        async with wired(server.url) as wire:
            shutil.rmtree(server.folder)
            client.bgsave()

            async def refuses():
                try:
                    await wire.call("write", "key", "value")
                except BackendUnavailable as exc:
                    return str(exc)
                return None

            assert "cannot write to its disk" in await eventually(refuses)
            client.config_set("stop-writes-on-bgsave-error", "no")
            await wire.call("write", "key", "value")
            server.folder.mkdir()


async def test_a_server_that_loads_its_data_is_awaited():
    with start_redis(config={"key-load-delay": "2000", "rdbcompression": "no"}) as server:
        async with wired(server.url) as wire:
            with operator(server) as client:
                client.config_set("key-load-delay", "0")
                client.mset({f"key{number}": "x" * 10_000 for number in range(1000)})
                client.save()
            await asyncio.to_thread(server.restart, ready=False)
            reasons = []

            async def answered():
                try:
                    return await wire.call("echo", 1)
                except BackendUnavailable as exc:
                    reasons.append(str(exc))
                    return None

            assert await eventually(answered) == [b"1"]
            assert any("still loading" in reason for reason in reasons)


async def test_a_replica_takes_no_writes_and_is_asked_anew():
    with (
        start_redis(config=QUICK) as master,
        start_redis(config=QUICK | {"replicaof": f"127.0.0.1 {master.port}"}) as replica,
        operator(replica) as client,
    ):
        async with wired(master.url) as at_master:
            await at_master.call("write", "key", "value")

            async def replicated():
                return client.exists(at_master.prefix + b"key")

            await eventually(replicated)
            async with wired(replica.url, at_master.namespace) as wire:
                with pytest.raises(BackendUnavailable, match="replica"):
                    await wire.call("write", "key", "other")
                assert (
                    wire._connections["main"].current is None
                )  # the next call may find another server behind the name
                assert await wire.call("read", "key") == b"value"


async def test_too_few_replicas_pass():
    with start_redis() as server, operator(server) as client:
        async with wired(server.url) as wire:
            client.config_set("min-replicas-to-write", "1")
            with pytest.raises(BackendUnavailable, match="too few replicas"):
                await wire.command("SET", "key", "value")  # no script: those are not held to it by every Redis 6.2


async def test_a_script_that_does_not_end_makes_the_server_busy_for_others():
    with start_redis(config={"lua-time-limit": "20"}) as server:
        async with wired(server.url) as wire, wired(f"{server.url}?timeout=60") as other:
            await wire.command("PING", connection="operator")  # a busy server greets nobody
            forever = asyncio.ensure_future(other.call("forever"))

            async def busy():
                try:
                    await wire.call("echo", 1)
                except BackendUnavailable as exc:
                    return "does not end" in str(exc)
                return False

            await eventually(busy)
            await wire.command("SCRIPT", "KILL", connection="operator")
            with pytest.raises(BackendError):
                await forever
            assert await wire.call("echo", 1) == [b"1"]


async def test_a_user_without_rights_is_told_which_are_needed():
    with start_redis() as server, operator(server) as client:
        client.execute_command("ACL", "SETUSER", "guest", "on", ">pw", "+@read", "+client", "~*")
        with pytest.raises(BackendError, match="EVALSHA") as told:
            async with wired(f"redis://guest:pw@127.0.0.1:{server.port}"):
                pass
        assert not isinstance(told.value, BackendUnavailable)


# --- the store under us is another one


async def test_a_restart_without_persistence_is_noticed_by_everybody_once():
    with start_redis() as server:
        namespace = new_namespace()
        async with RedisBackend(parse(server.url), namespace) as one, RedisBackend(parse(server.url), namespace) as two:
            before = await one.coordinator.acquire("leader", "a", 60)
            await asyncio.to_thread(server.restart)
            with pytest.raises(BackendUnavailable, match="forgotten everything"):
                await one.coordinator.holder("leader")
            after = await one.coordinator.acquire("leader", "b", 60)
            assert after.fence > before.fence
            with pytest.raises(BackendUnavailable, match=r"not the store it was.*incarnation 2"):
                await two.coordinator.holder("leader")
            assert await two.coordinator.holder("leader") == after
            [finding] = [each for each in await two.examine() if each.subject == "incarnation"]
            assert finding.severity == "warning"
            assert "forgotten everything" in finding.message


async def test_a_store_that_lost_its_tail_is_noticed_and_its_fences_go_on():
    with start_redis() as server, operator(server) as client:
        async with RedisBackend(parse(server.url), new_namespace()) as backend:
            first = await backend.coordinator.acquire("leader", "a", 60)
            client.save()
            later = await backend.coordinator.acquire("other", "a", 60)
            await asyncio.to_thread(server.restart)
            with pytest.raises(BackendUnavailable, match="latest changes"):
                await backend.coordinator.holder("leader")
            assert await backend.coordinator.holder("leader") == first
            again = await backend.coordinator.acquire("other", "a", 60)
            assert again.fence > later.fence


async def test_fences_go_on_even_if_the_clock_of_the_new_server_is_behind():
    with start_redis() as server, operator(server) as client:
        async with RedisBackend(parse(server.url), new_namespace()) as backend:
            ahead = 8 * 10**15  # as from a server whose clock ran centuries ahead of this one's
            client.hset(backend.client.prefix + b"meta", "fence", ahead)
            before = await backend.coordinator.acquire("leader", "a", 60)
            assert before.fence == ahead + 1
            client.flushall()
            with pytest.raises(BackendUnavailable):
                await backend.client.check_identity()
            after = await backend.coordinator.acquire("leader", "a", 60)
            assert after.fence > before.fence


async def test_a_store_that_was_emptied_under_an_open_connection_is_noticed_by_the_next_beat():
    with start_redis() as server, operator(server) as client:
        async with RedisBackend(parse(server.url), new_namespace()) as backend:
            assert not await backend.coordinator.beat("node", 10)
            client.flushall()
            with pytest.raises(BackendUnavailable, match="forgotten everything"):
                await backend.coordinator.beat("node", 10)
            assert not await backend.coordinator.beat("node", 10)


async def test_a_restart_with_a_log_loses_nothing_and_is_no_news():
    with start_redis(appendonly=True) as server:
        async with RedisBackend(parse(server.url), new_namespace()) as backend:
            lease = await backend.coordinator.acquire("leader", "a", 60)
            await asyncio.to_thread(server.restart)

            async def held():
                try:
                    return await backend.coordinator.holder("leader")
                except BackendUnavailable as exc:
                    assert "cannot be reached" in str(exc) or "loading" in str(exc)  # noqa: PT017
                    return None

            assert await eventually(held) == lease
            assert backend.client.identity.number == 1


# --- clusters and sentinels


async def test_a_cluster_sends_us_to_the_node_that_has_the_keys():
    cluster = {"cluster-enabled": "yes"}
    with (
        start_redis(config=cluster) as one,
        start_redis(config=cluster) as other,
        operator(one) as first,
        operator(other) as second,
    ):
        second.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        first.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port)

        async def known():
            return all(client.cluster("INFO")["cluster_state"] == "ok" for client in (first, second))

        await eventually(known)
        async with wired(one.url) as wire:
            await asyncio.gather(
                *(wire.call("write", f"key{number}", number, connection=f"{number}") for number in range(5))
            )
            async with wire.listen("door") as ear:
                await ear.wait(0)
                await wire.call("ring", "door", "knock")
                assert await ear.wait(60) == [b"knock"]
        assert second.dbsize() >= 5


async def test_sentinels_lead_to_the_master_also_after_it_died():
    with (
        start_redis(config=QUICK) as master,
        start_redis(config=QUICK | {"replicaof": f"127.0.0.1 {master.port}"}) as replica,
        redis_sentinel(monitors={"jobs": master}) as sentinel,
        operator(replica) as at_replica,
        operator(sentinel) as at_sentinel,
    ):

        async def replicas_known():
            return at_sentinel.sentinel_slaves("jobs") and at_replica.info("replication")["master_link_status"] == "up"

        await eventually(replicas_known)
        url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/jobs/0"  # the first sentinel is away
        async with RedisBackend(parse(url), new_namespace()) as backend:
            assert not backend.capabilities.durable  # a failover may lose what was acknowledged
            before = await backend.coordinator.acquire("leader", "a", 60)

            async def replicated():
                return at_replica.hexists(backend.client.prefix + b"leases", "leader")

            await eventually(replicated)
            master.kill()

            async def acquired():
                try:
                    return await backend.coordinator.acquire("leader", "a", 60)
                except BackendUnavailable:
                    return None

            after = await eventually(acquired, seconds=60)
            assert after.fence == before.fence
            assert at_replica.info("replication")["role"] == "master"


async def test_a_sentinel_that_knows_no_such_service():
    with start_redis() as master, redis_sentinel(monitors={"jobs": master}) as sentinel:
        opening = wired(f"redis+sentinel://127.0.0.1:{sentinel.port}/mail/0")
        with pytest.raises(BackendUnavailable, match="no service 'mail'"):
            await opening.__aenter__()


async def test_a_server_that_sentinels_call_master_and_that_is_none_is_refused():
    with start_redis() as master, redis_sentinel(monitors={"jobs": master}, down_after_ms=60_000) as sentinel:
        with operator(master) as client:
            client.replicaof("127.0.0.1", 1)
        with pytest.raises(BackendUnavailable, match="not a master now"):
            async with wired(f"redis+sentinel://127.0.0.1:{sentinel.port}/jobs/0"):
                pass
