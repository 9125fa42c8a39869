"""Replicas that confirm changes, and what is noticed when a server takes over that lacks some."""

import asyncio
import random
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from redis_connections import new_namespace, operator
from tests.conftest import eventually

from duly.backends.redis.backend import RedisBackend
from duly.backends.redis.replication import CONFIRMED, Replicas
from duly.backends.redis.scripts import scripts
from duly.backends.redis.settings import parse
from duly.errors import BackendUnavailable, ChangesLost
from duly.model import Ids, Run
from duly.model.loss import LossReport
from duly.scheduler.losses import losses_of
from duly.testing.servers import redis_sentinel
from duly.testing.servers import redis_server as start_redis

QUICK = {"repl-ping-replica-period": "1", "repl-diskless-sync-delay": "0"}
ids = Ids(lambda: datetime.now(UTC), random.Random())


def a_run() -> Run:
    now = datetime.now(UTC)
    return Run(ids.new(), "mail", "mail", now, now)


@contextmanager
def pair():
    """A master and its replica."""
    with (
        start_redis(config=QUICK) as master,
        start_redis(config=QUICK | {"replicaof": f"127.0.0.1 {master.port}"}) as replica,
    ):
        yield master, replica


async def until_connected(replica):
    async def connected():
        with operator(replica) as client:
            return client.info("replication")["master_link_status"] == "up"

    await eventually(connected)


def test_every_script_is_confirmed_that_promises_something():
    unpromised = {
        *("add_pending_counters", "expire_dedupe_keys", "migrate", "promote", "purge", "take_tokens", "unhold"),
        "report",
        *("assign", "unassign", "await_end", "register_sleeper", "store_handler_set", "renew", "identify"),
        *("lease_release", "lease_renew", "node_announce", "node_beat", "node_retire", "index_jobs"),
        # these only read
        *("assigned", "counts", "due", "held_runs", "ids_by_state", "lease_holder", "node_list", "read_log"),
        *("read_runs", "run_page", "waiting_of_job", "waiting_sets", "waiting_slice", "read_ahead", "next_plans"),
        *("handlers_of_jobs", "jobs_of_handler", "job_page", "next_runs", "runs_of_job"),
    }
    assert CONFIRMED | unpromised == set(scripts())
    assert not CONFIRMED & unpromised


def test_a_replica_that_is_gone_is_waited_for_a_while():
    replicas = Replicas()
    replicas.saw(2, 100.0)
    replicas.saw(1, 101.0)
    assert replicas.lately(107.0) == 2
    replicas.saw(1, 108.5)
    assert replicas.lately(108.5) == 1
    replicas.saw(3, 109.0)
    assert replicas.lately(110.0) == 3


async def test_what_was_acknowledged_is_on_the_replica():
    with pair() as (master, replica):
        await until_connected(replica)
        async with RedisBackend(parse(f"{master.url}?replicas=1"), new_namespace()) as backend:
            run = a_run()
            await backend.queue.put([run])
            with operator(replica) as client:
                assert client.hexists(backend.client.prefix + b"runs", run.id)


async def test_without_replicas_no_change_counts_as_stored():
    with start_redis() as server:
        async with RedisBackend(parse(f"{server.url}?replicas=1&timeout=1"), new_namespace()) as backend:
            with pytest.raises(BackendUnavailable, match="0 of 1 replicas have confirmed"):
                await backend.queue.put([a_run()])
            assert await backend.store.run("1-absent") is None  # reading needs no replica


async def test_an_unconfirmed_claim_is_not_handed_out_and_its_repeat_is():
    with pair() as (master, replica):
        await until_connected(replica)
        async with RedisBackend(parse(f"{master.url}?replicas=1&timeout=1"), new_namespace()) as backend:
            run = a_run()
            await backend.queue.put([run])
            replica.pause()
            with pytest.raises(BackendUnavailable, match="0 of 1"):
                await backend.queue.claim("node", None, None, 10, 30.0, 1)
            replica.resume()

            async def claimed():
                try:
                    return (await backend.queue.claim("node", None, None, 10, 30.0, 1)).claims
                except BackendUnavailable:
                    return None

            [claim] = await eventually(claimed)
            assert claim.run.id == run.id


async def test_a_loss_of_submissions_and_settlements_is_counted_and_recorded():
    with start_redis() as server, operator(server) as client:
        url, namespace = parse(server.url), new_namespace()
        async with RedisBackend(url, namespace) as one, RedisBackend(url, namespace) as two:
            await one.queue.put([a_run()])
            client.save()
            await one.queue.put([a_run(), a_run()])
            await two.queue.put([a_run(), a_run(), a_run()])
            await asyncio.to_thread(server.restart)
            with pytest.raises(ChangesLost, match="up to 2 submitted or planned runs"):
                await one.store.counts()
            with pytest.raises(ChangesLost, match="up to 5 submitted or planned runs"):
                await two.store.counts()
            [loss] = await losses_of(one.store)
            assert loss.report == LossReport(2, "behind", 5, 0)
            await one.queue.put([a_run()])
            await one.client.check_identity()  # nothing more is lost


async def test_a_loss_that_moved_no_fence_is_noticed():
    """Submissions issue no fence."""
    with start_redis() as server, operator(server) as client:
        async with RedisBackend(parse(server.url), new_namespace()) as backend:
            client.save()
            await backend.queue.put([a_run()])
            await asyncio.to_thread(server.restart)
            with pytest.raises(ChangesLost, match="up to 1 submitted"):
                await backend.store.counts()


async def test_a_session_leaves_a_master_that_sentinels_replaced_on_all_its_connections():
    """Until sentinels make it a replica, some seconds later, the old master goes on taking writes."""
    with (
        start_redis() as one,
        start_redis() as other,
        redis_sentinel(monitors={"jobs": one}) as sentinel,
        operator(sentinel) as client,
    ):
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/jobs/0"
        async with RedisBackend(parse(url), new_namespace()) as backend:
            await backend.queue.put([a_run()])
            backend.client._connections["main"].drop("only the connection for submissions is left")
            client.sentinel_remove("jobs")  # as a failover does, but without a word to the old master
            client.sentinel_monitor("jobs", "127.0.0.1", other.port, 1)

            async def moved():
                try:
                    await backend.queue.put([a_run()])
                except BackendUnavailable:  # also says that the other server lacks what the first one had
                    return False
                return backend.client._connections["put"].current.address == ("127.0.0.1", other.port)

            await eventually(moved)
