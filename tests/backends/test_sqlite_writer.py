"""The writer: group commit, calls that fail or are cancelled, locks of others, and the barrier before a start."""

import asyncio
import sqlite3
import tempfile
import threading

import pytest

from duly.backends.sql.unit import STORE
from duly.backends.sqlite import open_url
from duly.backends.sqlite.connection import LockWait, patiently
from duly.backends.sqlite.files import RuntimeDir
from duly.backends.sqlite.threads import Reader, Writer
from duly.errors import BackendUnavailable
from duly.model import Delivery, RunPolicy, State
from duly.ports import Opening
from duly.testing.conformance import World


@pytest.fixture
async def backend(tmp_path):
    async with open_url(f"sqlite:///{tmp_path}/jobs.db", Opening()) as opened:
        yield opened


@pytest.fixture
def world(backend):
    return World(backend)


async def _traced(backend) -> list[str]:
    """The statements that the writer runs from now on."""
    statements: list[str] = []

    async def trace(unit):
        unit._connection.set_trace_callback(statements.append)

    await backend._session.write(STORE, trace)
    statements.clear()
    return statements


def _blocker(backend) -> tuple[asyncio.Future, threading.Event]:
    """A call that keeps the writer busy until it is let go."""
    task, go = _until_let_go()
    return asyncio.ensure_future(backend._session.write(STORE, task)), go


def _until_let_go():
    """A piece of work that keeps its thread busy until it is let go."""
    go = threading.Event()

    async def task(_):
        go.wait(30)

    return task, go


class Boom(Exception):
    pass


async def _boom(unit):
    await unit.run("INSERT INTO {ns}_meta (name, value) VALUES ('boom', 1)")
    raise Boom


# --- group commit


async def test_what_waits_is_committed_together(backend, world):
    statements = await _traced(backend)
    blocker, go = _blocker(backend)
    puts = [asyncio.ensure_future(world.put(world.run())) for _ in range(20)]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(blocker, *puts)
    assert statements.count("COMMIT") == 1
    assert len(await world.claim()) == 20


async def test_a_lone_call_is_a_transaction_of_its_own(backend, world):
    statements = await _traced(backend)
    for _ in range(3):
        await world.put(world.run())
    assert statements.count("COMMIT") == 3


async def test_a_batch_is_bounded(backend, world):
    statements = await _traced(backend)
    blocker, go = _blocker(backend)
    renewals = [asyncio.ensure_future(backend.queue.renew([], 15, now=world.now)) for _ in range(600)]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(blocker, *renewals)
    assert 3 <= statements.count("COMMIT") < 100


async def test_a_call_that_fails_does_not_hurt_its_neighbours(backend, world):
    blocker, go = _blocker(backend)
    before = asyncio.ensure_future(world.put(first := world.run()))
    bad = asyncio.ensure_future(backend._session.write(STORE, _boom))
    after = asyncio.ensure_future(world.put(second := world.run()))
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(Boom):
        await bad
    assert [put.created for [put] in await asyncio.gather(before, after)] == [True, True]
    await blocker
    assert {claim.run.id for claim in await world.claim()} == {first.id, second.id}
    assert await backend._session.read(lambda unit: unit.all("SELECT * FROM {ns}_meta WHERE name = 'boom'")) == []


async def test_a_number_given_in_a_transaction_that_was_rolled_back_is_forgotten(backend, world):
    """Queues and kinds are remembered as numbers; these vanish with the transaction that wrote them down."""
    blocker, go = _blocker(backend)
    put = asyncio.ensure_future(world.put(run := world.run("brand_new", queue="fresh")))
    bad = asyncio.ensure_future(backend._session.write(STORE, _boom))
    await asyncio.sleep(0)
    go.set()
    await blocker
    await put
    with pytest.raises(Boom):
        await bad
    await world.put(world.run("brand_new", queue="fresh"), world.run("another", queue="fresher"))
    claims = await world.claim()
    assert [(claim.run.job, claim.run.queue) for claim in claims] == [
        ("brand_new", "fresh"),
        ("brand_new", "fresh"),
        ("another", "fresher"),
    ]
    assert claims[0].run.id == run.id


async def test_outcomes_of_a_batch_come_back_in_one_wake_up(backend, world):
    loop = asyncio.get_running_loop()
    wake_ups = []
    original = loop.call_soon_threadsafe
    loop.call_soon_threadsafe = lambda *args: (wake_ups.append(args), original(*args))[1]
    try:
        blocker, go = _blocker(backend)
        puts = [asyncio.ensure_future(world.put(world.run())) for _ in range(50)]
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(blocker, *puts)
    finally:
        loop.call_soon_threadsafe = original
    assert len(wake_ups) <= 2  # one for the batch, and before that one for the blocker if the loop is quick enough


# --- cancellation


async def test_a_call_that_is_cancelled_while_it_waits_never_happens(backend, world):
    blocker, go = _blocker(backend)
    put = asyncio.ensure_future(world.put(run := world.run()))
    await asyncio.sleep(0)
    put.cancel()
    await asyncio.sleep(0)
    go.set()
    await blocker
    assert put.cancelled()
    await world.put(world.run())
    assert await world.state(run) is None


async def test_a_call_that_is_cancelled_while_it_runs_happens_whole(backend, world):
    running, go = threading.Event(), threading.Event()

    async def slow(unit):
        await unit.run("INSERT INTO {ns}_meta (name, value) VALUES ('half', 1)")
        running.set()
        go.wait(30)
        await unit.run("INSERT INTO {ns}_meta (name, value) VALUES ('whole', 1)")

    call = asyncio.ensure_future(backend._session.write(STORE, slow))
    await asyncio.to_thread(running.wait, 30)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    go.set()
    await world.put(world.run())
    rows = await backend._session.read(
        lambda unit: unit.all("SELECT name FROM {ns}_meta WHERE name IN ('half', 'whole') ORDER BY name")
    )
    assert rows == [("half",), ("whole",)]


async def test_closing_finishes_what_was_begun(tmp_path):
    backend = open_url(f"sqlite:///{tmp_path}/jobs.db", Opening())
    await backend.open()
    world = World(backend)
    put = asyncio.ensure_future(world.put(run := world.run()))
    await asyncio.sleep(0)
    await backend.close()
    assert [answer.id for answer in await put] == [run.id]
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.db"]


# --- reading


async def test_a_read_sees_what_was_acknowledged(backend, world):
    for _ in range(50):
        await world.put(run := world.run())
        assert await world.state(run) is State.QUEUED


async def test_a_long_listing_does_not_keep_changes_and_lookups_waiting(backend, world):
    task, go = _until_let_go()
    listing = asyncio.ensure_future(backend._session.read(task, listing=True))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await world.put(run := world.run())
        assert await world.state(run) is State.QUEUED
    assert not listing.done()
    go.set()
    await listing


async def test_readers_cannot_write(backend):
    with pytest.raises(Exception, match="readonly"):
        await backend._session.read(lambda unit: unit.run("DELETE FROM {ns}_meta"))


# --- faults of the threads themselves


@pytest.mark.parametrize("kind", [Writer, Reader])
async def test_a_thread_that_ends_by_a_fault_of_its_own_leaves_nobody_waiting(backend, world, monkeypatch, kind):
    def call():
        return backend.store.jobs() if kind is Reader else world.put(world.run())

    await call()
    with monkeypatch.context() as patch:
        patch.setattr(kind, "_translate" if kind is Reader else "_secure", lambda *_: 1 / 0)
        calls = [asyncio.ensure_future(call()) for _ in range(3)]
        async with asyncio.timeout(30):
            for each in calls:
                with pytest.raises(BackendUnavailable, match="ZeroDivisionError"):
                    await each
    await call()


# --- locks of others


async def test_a_lock_that_lasts_makes_the_store_unavailable(tmp_path):
    async with open_url(f"sqlite:///{tmp_path}/jobs.db?busy_timeout=0.05", Opening()) as backend:
        world = World(backend)
        other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendUnavailable, match="locked"):
            await world.put(world.run())
        assert await backend.store.jobs() == []
        other.execute("ROLLBACK")
        other.close()
        await world.put(world.run())


async def test_a_lock_that_passes_is_waited_for(backend, world, tmp_path):
    other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    put = asyncio.ensure_future(world.put(world.run()))
    done, _ = await asyncio.wait([put], timeout=0.05)
    assert not done
    other.execute("ROLLBACK")
    other.close()
    assert (await put)[0].created


def _busy(times: int):
    """Something that is locked so many times."""
    attempts = []

    def action() -> None:
        attempts.append(1)
        if len(attempts) <= times:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error

    return action, attempts


def test_patience_ends():
    action, attempts = _busy(10_000)
    with pytest.raises(sqlite3.OperationalError):
        patiently(action, 0.02)
    assert len(attempts) > 1


def test_patience_is_for_locks_only():
    def broken() -> None:
        raise sqlite3.OperationalError("no such table")

    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        patiently(broken, 30)


def _turnstiles(folder) -> tuple[LockWait, LockWait]:
    return LockWait(RuntimeDir(folder / "jobs.db", "duly")), LockWait(RuntimeDir(folder / "jobs.db", "duly"))


def test_whoever_waits_keeps_the_turn(tmp_path):
    """Who has just committed cannot overtake the next in line: it does not get the turn."""
    waiting, other = _turnstiles(tmp_path)
    overtaken = []

    def begin() -> None:
        overtaken.append(other._turn_comes(0))

    waiting.pass_through(begin, 1)
    assert overtaken == [False]
    assert other._turn_comes(0)
    waiting.close()
    other.close()


def test_a_turn_that_does_not_come_is_not_waited_for(tmp_path):
    stuck, waiting = _turnstiles(tmp_path)
    assert stuck._turn_comes(0)
    begun = []
    waiting.pass_through(lambda: begun.append(1), 30)
    assert begun == [1]
    stuck.close()
    waiting.close()


def test_without_a_place_for_the_turn_everybody_waits_by_chance(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    turnstile, _ = _turnstiles(tmp_path)
    action, attempts = _busy(3)
    turnstile.pass_through(action, 30)
    assert len(attempts) == 4


def test_a_turn_whose_place_was_taken_away_is_made_anew(tmp_path):
    early, late = _turnstiles(tmp_path)
    early.pass_through(lambda: None, 0)
    RuntimeDir(tmp_path / "jobs.db", "duly").leave("nobody")
    assert late._turn_comes(0)
    assert not early._turn_comes(0)
    early.close()
    late.close()
    RuntimeDir(tmp_path / "jobs.db", "duly").leave("nobody")


# --- at most once: the start is durable before anybody hears of it

_ONCE = RunPolicy(delivery=Delivery.AT_MOST_ONCE)


async def test_lending_an_at_most_once_run_syncs_the_log_first(backend, world):
    await world.put(world.run(policy=_ONCE))
    statements = await _traced(backend)
    [claim] = await world.claim()
    assert claim.run.policy == _ONCE
    [start] = [index for index, text in enumerate(statements) if "synchronous=full" in text]
    commits = [index for index, text in enumerate(statements) if text == "COMMIT"]
    assert commits[0] < start < commits[1]
    written = [text for text in statements[start : commits[1]] if text.lstrip().startswith("INSERT")]
    assert len(written) == 1, "a commit that writes nothing would sync nothing"
    assert statements[-1] == "PRAGMA synchronous=normal"


async def test_other_runs_are_lent_without_a_sync(backend, world):
    await world.put(world.run())
    statements = await _traced(backend)
    assert len(await world.claim()) == 1
    assert not [text for text in statements if "synchronous=full" in text]


async def test_a_repeated_claim_syncs_too(backend, world):
    """The first answer may have been lost because the sync failed."""
    await world.put(world.run(policy=_ONCE))
    await world.claim(request=1)
    statements = await _traced(backend)
    assert len(await world.claim(request=1)) == 1
    assert [text for text in statements if "synchronous=full" in text]


async def test_with_full_synchronisation_no_second_commit_is_needed(tmp_path):
    async with open_url(f"sqlite:///{tmp_path}/jobs.db?synchronous=full", Opening()) as backend:
        world = World(backend)
        await world.put(world.run(policy=_ONCE))
        statements = await _traced(backend)
        assert len(await world.claim()) == 1
        assert statements.count("COMMIT") == 1
