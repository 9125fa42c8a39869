"""What the doctor says about PostgreSQL servers, and what follows for promises."""

import asyncio
import os
import threading
import uuid

import asyncpg
import msgspec
import pytest

from duly import Scheduler, SchedulerConfig
from duly.backends.postgres.backend import open_url
from duly.backends.postgres.doctor import ServerInfo, capabilities_of, findings
from duly.backends.postgres.url import parse
from duly.errors import BackendError, ConfigurationError
from duly.ports import Opening, Severity
from duly.testing.postgres_servers import postgres_server

GOOD = ServerInfo(
    version="18.4",
    number=180004,
    fsync=True,
    full_page_writes=True,
    synchronous_commit="on",
    synchronous_standby_names="",
    autovacuum=True,
    max_connections=100,
    read_only=False,
    connections=7,
    standbys=0,
    standby=False,
    encrypted=True,
    longest=None,
    age=1000,
    may_create=True,
    unlogged=(),
    pooled=False,
    clock_offset=0.001,
    round_trip=0.002,
    applied=("0001_initial",),
    missing=(),
)
FAR = "postgresql://db.example.org/jobs?sslmode=verify-full"


def said(url=FAR, **facts):
    """The findings about a server that differs from a good one in this."""
    found = findings(msgspec.structs.replace(GOOD, **facts), parse(url, {}), "duly")
    return {finding.subject: finding for finding in found}


def test_nothing_is_wrong_with_a_good_server():
    assert {finding.severity for finding in said().values()} == {Severity.OK}


@pytest.mark.parametrize(
    ("facts", "subject", "severity", "words"),
    [
        ({"number": 120000, "version": "12.0"}, "server", Severity.PROBLEM, "13 is the first"),
        ({"fsync": False}, "persistence", Severity.PROBLEM, "fsync off"),
        ({"synchronous_commit": "off"}, "persistence", Severity.WARNING, "synchronous_commit off"),
        ({"full_page_writes": False}, "persistence", Severity.WARNING, "full_page_writes off"),
        ({"unlogged": ("claims",)}, "persistence", Severity.PROBLEM, "SET LOGGED"),
        ({"standby": True}, "role", Severity.PROBLEM, "name the primary"),
        ({"read_only": True}, "role", Severity.PROBLEM, "default_transaction_read_only"),
        ({"standbys": 1}, "replication", Severity.WARNING, "none of them synchronous"),
        ({"standbys": 1, "synchronous_standby_names": "*"}, "replication", Severity.OK, "synchronous: *"),
        (
            {"standbys": 1, "synchronous_standby_names": "*", "synchronous_commit": "local"},
            "replication",
            Severity.WARNING,
            "does not wait for them",
        ),
        ({"standbys": 1}, "promises", Severity.OK, "as long as none of the standby servers takes over"),
        ({"unlogged": ("claims",)}, "promises", Severity.OK, "at_most_once is refused"),
        ({"connections": 95}, "connections", Severity.WARNING, "95 of 100"),
        ({"pooled": True}, "pooler", Severity.WARNING, "half second"),
        ({"missing": ("0002_more.contract",)}, "schema", Severity.WARNING, "duly migrate"),
        ({"may_create": False}, "schema", Severity.OK, "may not create schemas"),
        ({"autovacuum": False}, "vacuum", Severity.WARNING, "autovacuum off"),
        ({"age": 2_000_000_000}, "vacuum", Severity.PROBLEM, "93%"),
        ({"longest": 900.0}, "vacuum", Severity.WARNING, "open for 900 s"),
        ({"clock_offset": -3.0}, "server clock", Severity.WARNING, "3000 ms behind"),
        ({"fsync": False}, "promises", Severity.OK, "at_most_once is refused"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_well_is_said_with_the_way_out(facts, subject, severity, words):
    finding = said(**facts)[subject]
    assert finding.severity is severity
    assert words in finding.message


@pytest.mark.parametrize(
    ("url", "encrypted", "severity"),
    [
        ("postgresql://localhost/jobs", False, Severity.OK),
        ("postgresql:///jobs?host=/run/postgresql", False, Severity.OK),
        ("postgresql://db.example.org/jobs", False, Severity.WARNING),
        ("postgresql://db.example.org/jobs", True, Severity.WARNING),
        ("postgresql://db.example.org/jobs?sslmode=verify-ca", True, Severity.WARNING),
        ("postgresql://db.example.org/jobs?sslmode=verify-full", True, Severity.OK),
    ],
)
def test_what_is_said_about_encryption(url, encrypted, severity):
    assert said(url, encrypted=encrypted)["encryption"].severity is severity


@pytest.mark.parametrize(
    ("facts", "url", "durable", "durable_start", "push"),
    [
        ({}, FAR, True, True, True),
        ({"synchronous_commit": "local"}, FAR, True, True, True),
        ({"fsync": False}, FAR, True, False, True),
        ({"synchronous_commit": "off"}, FAR, False, False, True),
        ({"pooled": True}, FAR, True, True, False),
        ({"full_page_writes": False}, FAR, True, False, True),
        ({"unlogged": ("claims",)}, FAR, False, False, True),
        (
            {"synchronous_standby_names": "*", "synchronous_commit": "local"},
            "postgresql://h1,h2/jobs",
            False,
            False,
            True,
        ),
        ({}, "postgresql://h1,h2/jobs", False, False, True),
        ({"synchronous_standby_names": "ANY 1 (a, b)"}, "postgresql://h1,h2/jobs", True, True, True),
    ],
)
def test_what_can_be_promised(facts, url, durable, durable_start, push):
    can = capabilities_of(msgspec.structs.replace(GOOD, **facts), parse(url, {}))
    assert (can.durable, can.durable_start, can.push) == (durable, durable_start, push)
    assert can.transactions


async def test_a_real_server_is_well(postgres_url):
    async with open_url(postgres_url, Opening(uuid.uuid4().hex)) as backend:
        found = {finding.subject: finding for finding in await backend.examine()}
        assert backend.capabilities.durable_start
    assert {finding.severity for finding in found.values()} == {Severity.OK}, found
    assert "0008_run_lines" in found["schema"].message
    assert "at_most_once holds; exactly_once holds" in found["promises"].message


async def test_a_server_that_may_lose_what_it_acknowledged_is_not_trusted_with_at_most_once():
    with postgres_server(config={"synchronous_commit": "off", "fsync": "off"}) as server:
        scheduler = Scheduler(server.url, SchedulerConfig(namespace="trust"))

        @scheduler.job(delivery="at_most_once")
        async def once() -> None: ...

        with pytest.raises(ConfigurationError, match="at_most_once"):
            await scheduler.start()


async def test_an_unlogged_table_is_found_and_makes_at_most_once_refused(postgres_url):
    async with open_url(postgres_url, Opening(namespace := uuid.uuid4().hex)) as backend:
        assert backend.capabilities.durable_start
        connection = await asyncpg.connect(postgres_url)
        await connection.execute(f'ALTER TABLE "{namespace}".ended SET UNLOGGED')
        await connection.close()
        assert not (await backend.refresh()).durable
        found = {finding.subject: finding for finding in await backend.examine()}
        assert "unlogged: ended" in found["persistence"].message


async def test_a_standby_is_opened_for_looking_once_its_primary_has_a_schema(postgres_url):
    with postgres_server() as primary:
        async with open_url(primary.url, Opening("looked-at")):
            pass
        with primary.standby() as standby:
            async with open_url(standby.url, Opening("looked-at")) as backend:
                found = {finding.subject: finding.severity for finding in await backend.examine()}
                assert found["role"] is Severity.PROBLEM


# --- a session's life


async def test_opening_twice_and_closing_twice_do_nothing_more(postgres_url):
    backend = open_url(postgres_url, Opening(uuid.uuid4().hex))
    await backend.open()
    await backend.open()
    await backend.close()
    await backend.close()
    with pytest.raises(BackendError, match="is not open"):
        await backend.store.time()
    async with backend:
        assert await backend.store.time()


async def test_nothing_of_the_credentials_is_shown(postgres_url):
    backend = open_url(postgres_url, Opening("shown"))
    assert "in-tests-only" not in repr(backend) + backend.url + repr(vars(backend)) + repr(vars(backend.connections))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
async def test_a_forked_child_refuses_until_it_opens_its_own(postgres_url):
    async with open_url(postgres_url, Opening(uuid.uuid4().hex)) as backend:
        await backend.queue.wait("node", None, 0.01)  # listens
        await backend.coordinator.put("key", b"parent")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, _in_child(backend).encode())
            os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
        told = os.read(reading, 10_000).decode()
        os.close(reading)
        os.close(writing)
        assert "forked" in told
        assert "parent" in told
        item = await backend.coordinator.get("key")
        assert item is not None
        assert item.value == b"parent"
        await backend.queue.wait("node", None, 0.01)


def _in_child(backend) -> str:
    try:
        backend.coordinator.get("key").send(None)
    except BackendError as refusal:
        told = str(refusal)

    async def anew():
        async with backend:
            await backend.queue.wait("node", None, 0.01)
            return (await backend.coordinator.get("key")).value.decode()

    asyncio.events._set_running_loop(None)  # the copy of the loop that the fork has made does not run here
    asyncio.set_event_loop_policy(None)
    read: list[str] = []
    thread = threading.Thread(target=lambda: read.append(asyncio.run(anew())))
    thread.start()
    thread.join()
    return f"{told} {read}"
