"""What is read from a server, what it means for promises, and what the doctor says."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from redis_connections import new_namespace, operator

from duly import Job, Scheduler, SchedulerConfig
from duly.backends.redis.backend import RedisBackend
from duly.backends.redis.doctor import (
    SETTINGS,
    ServerInfo,
    capabilities_of,
    findings,
    read_server_info,
    server_info_of,
)
from duly.backends.redis.settings import ConnectionSettings, parse
from duly.backends.tls import Tls
from duly.errors import BackendUnavailable, ConfigurationError
from duly.ports import Severity
from duly.testing.servers import redis_server as start_redis

FACTS = ServerInfo(
    kind="Valkey",
    version="9.1",
    appendonly=True,
    appendfsync="always",
    rewrites_unsynced=False,
    snapshots=False,
    writes_fail=False,
    maxmemory=0,
    used_memory=1 << 20,
    policy="noeviction",
    evicted=0,
    role="master",
    replicas=0,
    min_replicas=0,
    cluster=False,
    clock_offset=0.001,
    round_trip=0.002,
)
HERE = ConnectionSettings((("127.0.0.1", 6379),))
FAR = ConnectionSettings((("redis.example.org", 6379),))
SENTINELS = ConnectionSettings((("127.0.0.1", 26379),), service="jobs")
CONFIRMED = ConnectionSettings((("127.0.0.1", 6379),), cluster=True, replicas=1)


def _but(**changes) -> ServerInfo:
    return replace(FACTS, **changes)


def _said(facts: ServerInfo, subject: str, place: ConnectionSettings = HERE, incarnation=None):
    [finding] = [each for each in findings(facts, place, incarnation or {}) if each.subject == subject]
    return finding.severity, finding.message


# --- promises


@pytest.mark.parametrize(
    ("facts", "place", "durable", "durable_start"),
    [
        (FACTS, HERE, True, True),
        (_but(appendfsync="everysec"), HERE, True, False),
        (_but(appendfsync=None), HERE, True, False),
        (_but(appendonly=False), HERE, False, False),
        (_but(appendonly=None), HERE, False, False),
        (FACTS, SENTINELS, False, False),
        (_but(replicas=1), HERE, False, False),
        (_but(cluster=True), HERE, False, False),
        (_but(cluster=True, replicas=1), CONFIRMED, True, True),
        (_but(replicas=2), replace(SENTINELS, replicas=1), True, True),
        (_but(replicas=2, appendfsync="everysec"), replace(SENTINELS, replicas=1), True, False),
        (_but(replicas=1, appendonly=False), CONFIRMED, False, False),
        (_but(rewrites_unsynced=True), HERE, True, False),
        (_but(rewrites_unsynced=None), HERE, True, False),
        (_but(maxmemory=1 << 30, policy="allkeys-lru"), HERE, False, False),
        (_but(maxmemory=1 << 30, policy="volatile-ttl"), HERE, False, False),
        (_but(policy="allkeys-lru"), HERE, False, False),  # a limit can be set at any time
        (_but(policy=None), HERE, False, False),
    ],
)
def test_what_a_deployment_can_promise(facts, place, durable, durable_start):
    can = capabilities_of(facts, place)
    assert (can.durable, can.durable_start) == (durable, durable_start)
    assert (can.shared, can.push, can.threads, can.transactions) == (True, True, True, False)


@pytest.mark.parametrize(
    ("appendonly", "fsync", "durable", "durable_start"),
    [(False, "everysec", False, False), (True, "everysec", True, False), (True, "always", True, True)],
)
async def test_a_server_is_asked_what_it_keeps(appendonly, fsync, durable, durable_start):
    with start_redis(appendonly=appendonly, config={"appendfsync": fsync}) as server:
        async with RedisBackend(parse(server.url), new_namespace()) as backend:
            assert (backend.capabilities.durable, backend.capabilities.durable_start) == (durable, durable_start)


def _charge() -> None:
    """Once at most."""


def _charging(url: str, **config) -> Scheduler:
    scheduler = Scheduler(url, config=SchedulerConfig(namespace=new_namespace(), **config))

    scheduler.add(Job(name="charge", handler=_charge, delivery="at_most_once"))
    return scheduler


async def _started(url: str, **config):
    async with _charging(url, **config):
        pass


async def test_at_most_once_is_refused_where_acknowledged_writes_may_be_lost():
    for appendonly in (False, True):
        with start_redis(appendonly=appendonly) as server:
            with pytest.raises(ConfigurationError, match="may forget acknowledged writes"):
                await _started(server.url)
            await _started(server.url, accept_data_loss=True)


async def test_at_most_once_is_accepted_where_every_write_waits_for_the_disk():
    with start_redis(appendonly=True, config={"appendfsync": "always"}) as server:
        await _started(server.url)


ALWAYS = {"appendfsync": "always"}


@pytest.mark.parametrize(
    "config",
    [
        {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"},
        {"maxmemory": "100mb", "maxmemory-policy": "volatile-lru"},
        {"maxmemory-policy": "allkeys-random"},
        {"no-appendfsync-on-rewrite": "yes"},
    ],
    ids=lambda config: config.get("maxmemory-policy", "no-appendfsync-on-rewrite"),
)
async def test_at_most_once_is_refused_where_the_server_may_delete_or_not_write_a_start(config):
    with start_redis(appendonly=True, config=ALWAYS | config) as server:
        with pytest.raises(ConfigurationError, match="may forget acknowledged writes"):
            await _started(server.url)
        await _started(server.url, accept_data_loss=True)


async def test_a_policy_that_is_changed_under_an_open_store_refuses_the_next_registration():
    with start_redis(appendonly=True, config=ALWAYS) as server, operator(server) as client:
        scheduler = Scheduler(server.url, config=SchedulerConfig(namespace=new_namespace()))
        async with scheduler:
            client.config_set("maxmemory-policy", "allkeys-lru")
            with pytest.raises(ConfigurationError, match="may forget acknowledged writes"):
                await scheduler.register(Job(name="charge", handler=_charge, delivery="at_most_once"))
            client.config_set("maxmemory-policy", "noeviction")
            await scheduler.register(Job(name="charge", handler=_charge, delivery="at_most_once"))


# --- findings


def test_persistence_in_words():
    ok, warning, problem = Severity.OK, Severity.WARNING, Severity.PROBLEM
    for facts, severity, words in [
        (FACTS, ok, "survives power loss"),
        (_but(appendfsync="everysec"), ok, "two seconds"),
        (_but(appendfsync="no"), warning, "half a minute"),
        (_but(appendfsync=None), warning, "unknown"),
        (_but(appendonly=False), warning, "nothing is kept on disk"),
        (_but(appendonly=False, snapshots=True), warning, "snapshots only"),
        (_but(appendonly=False, snapshots=None), warning, "snapshots unknown"),
        (_but(appendonly=None), warning, "unknown"),
        (_but(rewrites_unsynced=True), warning, "no-appendfsync-on-rewrite yes"),
        (_but(rewrites_unsynced=None), warning, "no-appendfsync-on-rewrite unknown"),
    ]:
        said = _said(facts, "persistence")
        assert said[0] == severity
        assert words in said[1]
    assert _said(_but(writes_fail=True), "disk")[0] == problem


def test_memory_in_words():
    assert _said(FACTS, "memory") == (Severity.OK, "1 MiB used, no limit")
    assert _said(_but(maxmemory=1 << 30), "memory") == (Severity.OK, "1 MiB of 1.0 GiB used, noeviction")
    for policy in ("allkeys-lru", "volatile-ttl", None):
        severity, words = _said(_but(maxmemory=1 << 30, policy=policy), "memory")
        assert severity == Severity.PROBLEM
        assert "Set noeviction" in words
    assert _said(_but(maxmemory=1 << 20), "memory")[0] == Severity.WARNING
    assert _said(_but(maxmemory=None), "memory")[0] == Severity.WARNING
    severity, words = _said(_but(policy="allkeys-lfu"), "memory")
    assert severity == Severity.WARNING
    assert "as soon as a limit is set" in words
    severity, words = _said(_but(policy="allkeys-lfu", evicted=7), "memory")
    assert severity == Severity.PROBLEM
    assert "7 keys evicted" in words
    severity, words = _said(_but(evicted=7), "memory")
    assert severity == Severity.WARNING
    assert "7 keys were evicted" in words


def test_replication_in_words():
    assert _said(FACTS, "replication") == (Severity.OK, "none")
    for facts, place in [(_but(replicas=1), HERE), (FACTS, SENTINELS), (_but(replicas=2, min_replicas=None), HERE)]:
        severity, words = _said(facts, "replication", place)
        assert severity == Severity.WARNING
        assert "min-replicas-to-write" in words
    assert _said(_but(replicas=2, min_replicas=1), "replication", SENTINELS)[0] == Severity.OK
    assert _said(_but(role="slave"), "replication")[0] == Severity.PROBLEM
    assert _said(_but(replicas=1), "replication", CONFIRMED)[0] == Severity.OK
    severity, words = _said(FACTS, "replication", CONFIRMED)
    assert severity == Severity.PROBLEM
    assert "0 connected, but the URL asks for replicas=1" in words
    assert _said(_but(role=None), "replication")[0] == Severity.WARNING


@pytest.mark.parametrize(
    ("kind", "version", "severity"),
    [
        ("Redis", "6.2.5", Severity.WARNING),
        ("Redis", "6.2.7", Severity.OK),
        ("Redis", "6.2.14", Severity.OK),
        ("Valkey", "9.1.2", Severity.OK),
    ],
)
def test_replicas_are_not_asked_for_by_scripts_of_early_servers(kind, version, severity):
    said, words = _said(_but(kind=kind, version=version, replicas=1, min_replicas=1), "replication")
    assert said == severity
    assert ("does not apply to scripts" in words) == (severity == Severity.WARNING)


async def test_what_is_said_of_replicas_and_scripts_is_so():
    with start_redis() as server, operator(server) as client:
        async with RedisBackend(parse(server.url), new_namespace()) as backend:
            client.config_set("min-replicas-to-write", "1")
            facts = replace(await read_server_info(backend.client), replicas=1)
            severity, _ = _said(facts, "replication")
            try:
                await backend.coordinator.put("key", b"value")
            except BackendUnavailable:
                refused = True
            else:
                refused = False
    assert refused == (severity == Severity.OK)


def test_encryption_in_words():
    assert _said(FACTS, "encryption", HERE)[0] == Severity.OK
    assert _said(FACTS, "encryption", FAR)[0] == Severity.WARNING
    for verify, severity in [("full", Severity.OK), ("ca", Severity.WARNING), ("none", Severity.WARNING)]:
        assert _said(FACTS, "encryption", ConnectionSettings(FAR.addresses, tls=Tls(verify=verify)))[0] == severity


def test_clocks_in_words():
    assert _said(FACTS, "server clock")[1].startswith("1 ms ahead of")
    severity, words = _said(_but(clock_offset=-3.0), "server clock")
    assert severity == Severity.WARNING
    assert words.startswith("3000 ms behind")
    assert _said(_but(clock_offset=1.5, round_trip=2.0), "server clock")[0] == Severity.OK  # the trip may explain it


def test_promises_in_words():
    assert "at_most_once holds" in _said(FACTS, "promises")[1]
    assert "at_most_once is refused" in _said(_but(appendfsync="everysec"), "promises")[1]
    assert "as long as the server keeps its data" in _said(_but(appendonly=False), "promises")[1]
    assert "failover" in _said(FACTS, "promises", SENTINELS)[1]
    assert "at_most_once is refused" in _said(_but(policy="allkeys-lru"), "promises")[1]


def test_losses_in_words():
    assert _said(FACTS, "incarnation", HERE, {"number": "1"}) == (Severity.OK, "1: no loss of data was noticed")
    severity, words = _said(FACTS, "incarnation", HERE, {"number": "2", "lost": "1760000000", "how": "behind"})
    assert severity == Severity.WARNING
    assert "2025-10-09" in words
    assert "latest changes" in words


def test_a_server_that_tells_nothing_is_unknown_in_every_respect():
    settings = dict.fromkeys(SETTINGS)
    facts = server_info_of({}, settings, 0.0, 0.0)
    assert (facts.appendonly, facts.maxmemory, facts.role) == (None, None, None)
    assert not capabilities_of(facts, HERE).durable
    assert {finding.severity for finding in findings(facts, HERE, {})} == {Severity.OK, Severity.WARNING}


async def test_a_server_that_forbids_config_is_asked_by_info():
    with start_redis(appendonly=True, config={"rename-command CONFIG": '""'}) as server:
        async with RedisBackend(parse(server.url), new_namespace()) as backend:
            facts = await read_server_info(backend.client)
            assert (facts.appendonly, facts.appendfsync, facts.min_replicas) == (True, None, None)
            assert (facts.maxmemory, facts.policy, facts.role) == (0, "noeviction", "master")
            assert (backend.capabilities.durable, backend.capabilities.durable_start) == (True, False)
            assert any("appendfsync unknown" in finding.message for finding in await backend.examine())


async def test_a_user_who_may_ask_nothing_can_still_work():
    with start_redis() as server, operator(server) as client:
        client.execute_command("ACL", "SETUSER", "worker", "on", ">pw", "+@all", "-info", "-config", "~duly:*", "&*")
        url = f"redis://worker:pw@127.0.0.1:{server.port}"
        async with RedisBackend(parse(url), new_namespace()) as backend:
            assert await backend.coordinator.put("key", b"value")
            unknown = [finding.subject for finding in await backend.examine() if "unknown" in finding.message]
            assert {"persistence", "memory", "replication"} <= set(unknown)


async def test_the_rights_that_the_documentation_names_are_enough():
    page = Path(__file__).parents[2] / "docs" / "redis-connection.md"
    [rights] = re.findall(r"ACL SETUSER duly on >password (.+)", page.read_text(encoding="utf-8"))
    with start_redis() as server, operator(server) as client:
        client.execute_command("ACL", "SETUSER", "duly", "on", ">password", *rights.split())
        scheduler = Scheduler(f"redis://duly:password@127.0.0.1:{server.port}")

        @scheduler.job(name="double")
        async def double(number: int) -> int:
            return 2 * number

        async with scheduler:
            assert await (await scheduler.submit("double", {"number": 2})).result(timeout=60) == 4
            assert len(await scheduler.examine()) >= 8
        assert client.acl_log() == []


async def test_an_eviction_policy_is_a_problem_on_a_real_server():
    with start_redis(config={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as server:
        async with RedisBackend(parse(server.url), new_namespace()) as backend:
            problems = [finding for finding in await backend.examine() if finding.severity == Severity.PROBLEM]
            assert [finding.subject for finding in problems] == ["memory"]


async def test_all_is_well_with_a_server_that_is_set_up_for_it():
    config = {"appendfsync": "always", "maxmemory": "1gb", "maxmemory-policy": "noeviction"}
    with start_redis(appendonly=True, config=config) as server:
        async with RedisBackend(parse(server.url), new_namespace()) as backend:
            found = await backend.examine()
            assert {finding.severity for finding in found} == {Severity.OK}
            subjects = [finding.subject for finding in found]
            assert len(subjects) == len(set(subjects))
