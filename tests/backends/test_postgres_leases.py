"""Renewals on PostgreSQL wait for no lock of another node, and a node that is stopped in a transaction is put out."""

import asyncio
import os
import random
import secrets
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.conftest import eventually

from duly import Scheduler, SchedulerConfig
from duly.backends import open_backend
from duly.errors import ConfigurationError
from duly.model import Beat, BeatReply, Ids, Run
from duly.model.event import ClaimsLost
from duly.ports import Opening, SystemClock
from duly.rules.lease_limits import longest_call

FROZEN = Path(__file__).with_name("frozen_script.py")
LEASE = 3.0


@pytest.fixture
def namespace():
    return f"leases_{secrets.token_hex(6)}"


@asynccontextmanager
async def frozen(url, namespace, lease, run_id):
    """Another process that has locked the claim of a run and is stopped (SIGSTOP) before it could commit."""
    words = (sys.executable, str(FROZEN), url, namespace, str(lease), run_id)
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    try:
        assert await process.stdout.readline() == b"locked\n"
        os.kill(process.pid, signal.SIGSTOP)
        yield process
    finally:
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()


async def lent(backend, *names):
    """Runs that are claimed by a node."""
    now = await backend.store.time()
    runs = [Run(id=name, job="mail", handler="mail", due=now, ready_at=now) for name in names]
    await backend.queue.put(runs)
    claims = (await backend.queue.claim("healthy", None, None, 10, 600.0, 1)).claims
    return [Beat(claim.run.id, claim.fence) for claim in sorted(claims, key=lambda claim: claim.run.id)]


async def test_a_renewal_waits_for_no_lock_of_a_frozen_node(postgres_url, namespace):
    ids = Ids(SystemClock().now, random.Random())
    first, second = sorted([ids.new(), ids.new()])
    async with open_backend(postgres_url, Opening(namespace=namespace)) as backend:
        beats = await lent(backend, first, second)
        # An hour: the server does not end that transaction while the test looks at what renewals do.
        async with frozen(postgres_url, namespace, 3600.0, first):
            for _ in range(3):
                renewal = await asyncio.wait_for(backend.queue.renew(beats, 600.0), 30.0)
                assert renewal.replies == (BeatReply.BUSY, BeatReply.KEPT)
        assert await eventually(lambda: _kept(backend, beats), "it is renewed when the lock is gone")


async def _kept(backend, beats):
    return (await backend.queue.renew(beats, 600.0)).replies == (BeatReply.KEPT, BeatReply.KEPT)


async def test_the_server_ends_the_transaction_of_a_frozen_node(postgres_url, namespace):
    ids = Ids(SystemClock().now, random.Random())
    async with open_backend(postgres_url, Opening(namespace=namespace)) as backend:
        [beat] = await lent(backend, ids.new())
        async with frozen(postgres_url, namespace, LEASE, beat.run_id):
            await eventually(lambda: _is_kept(backend, beat), "the frozen node has lost its lock")


async def _is_kept(backend, beat):
    return (await backend.queue.renew([beat], LEASE)).replies == (BeatReply.KEPT,)


def test_a_call_may_take_a_third_of_a_lease():
    assert longest_call(15.0) == 5.0
    assert longest_call(3.0) == 1.0
    assert longest_call(0.3) == 1.0  # a server under load is slow for a moment


async def test_a_healthy_node_keeps_its_claims_while_another_is_frozen(postgres_url, namespace):
    lease = 6.0
    scheduler = Scheduler(postgres_url, SchedulerConfig(namespace=namespace, lock_ttl=lease))
    events, starts, over = [], [], asyncio.Event()
    scheduler.subscribe(events.append)

    @scheduler.job(name="hold")
    async def hold() -> None:
        starts.append(1)
        await over.wait()

    async with scheduler:
        handle = await scheduler.submit("hold")
        await eventually(lambda: asyncio.sleep(0, starts), "it runs")
        async with frozen(postgres_url, namespace, lease, handle.id):
            await asyncio.sleep(1.5 * lease)  # long enough to lose a claim that is not renewed
        over.set()
        await handle.result(timeout=60)
    assert starts == [1]
    assert not [event for event in events if isinstance(event, ClaimsLost)]


# --- the call timeout against the lease


@pytest.mark.parametrize(
    ("url", "option"),
    [
        ("postgresql://ada:secret@h/db?timeout={}", "timeout"),
        ("redis://:secret@h/0?timeout={}", "timeout"),
        ("redis+sentinel://h/main?timeout={}", "timeout"),
        ("sqlite:///jobs.db?busy_timeout={}", "busy_timeout"),
    ],
)
def test_a_call_timeout_that_is_too_long_for_lock_ttl_is_refused(url, option):
    with pytest.raises(ConfigurationError) as refused:
        open_backend(url.format("4"), Opening(lease=6.0))
    said = str(refused.value)
    assert f"{option}=4 s" in said
    assert "lock_ttl=6 s" in said
    assert f"Set {option} to at most 2, or lock_ttl to at least 12 s" in said
    assert "secret" not in said
    open_backend(url.format("2"), Opening(lease=6.0))
    open_backend(url.format("4"), Opening(lease=12.0))
    open_backend(url.format("4"), Opening())  # nothing is known about leases
    open_backend(url.format("5"), Opening(lease=6.0))  # the default, which renewals shorten


async def test_a_scheduler_refuses_it_when_it_starts(postgres_url):
    scheduler = Scheduler(f"{postgres_url}?timeout=10", SchedulerConfig(lock_ttl=15.0))
    with pytest.raises(ConfigurationError, match=r"timeout=10 s of .* is too long for lock_ttl=15 s"):
        await scheduler.start()


@pytest.mark.parametrize(("url", "settings"), [("postgresql://h/db", "_place"), ("redis://h/0", "_settings")])
def test_a_session_for_renewals_has_a_shorter_timeout(url, settings):
    backend = open_backend(url, Opening())

    def timeout_of(session):
        return getattr(session, settings).timeout

    assert timeout_of(backend.session(2.0)) == 2.0
    assert timeout_of(backend.session(9.0)) == 5.0
    assert timeout_of(backend.session()) == 5.0
