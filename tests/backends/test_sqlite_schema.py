"""The SQLite backend's schema, its namespaces, and what its URL says."""

import sqlite3
from pathlib import Path

import pytest

from duly.backends.sqlite import open_url
from duly.backends.sqlite.files import Place, parse
from duly.errors import BackendError, ConfigurationError
from duly.model import Cause
from duly.ports import Opening
from duly.testing.conformance import World

# --- URLs


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("sqlite:///jobs.db", Place(Path.cwd() / "jobs.db")),
        ("sqlite:///data/jobs.db", Place(Path.cwd() / "data/jobs.db")),
        ("sqlite:////var/lib/jobs.db", Place(Path("/var/lib/jobs.db"))),
        ("sqlite:////a%20b/c.db?synchronous=full&busy_timeout=0.5", Place(Path("/a b/c.db"), "full", 0.5)),
    ],
)
def test_a_url_names_a_file_and_its_options(url, place):
    assert parse(url) == place


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite://host/jobs.db",
        "sqlite:////var/lib/",
        "postgresql:///jobs.db",
        "sqlite:///jobs.db?synchronous=off",
        "sqlite:///jobs.db?busy_timeout=soon",
        "sqlite:///jobs.db?busy_timeout=-1",
        "sqlite:///jobs.db?busy_timeout=nan",
        "sqlite:///jobs.db?journal=wal",
    ],
)
def test_a_url_that_says_something_else_is_refused(url):
    with pytest.raises(ConfigurationError):
        open_url(url, Opening())


@pytest.mark.parametrize("namespace", ["", "Duly", "1a", "a-b", "a b", 'a"; DROP TABLE x', "a" * 33])
def test_a_namespace_must_be_able_to_begin_a_table_name(namespace):
    with pytest.raises(ConfigurationError, match="namespace"):
        open_url("sqlite:///jobs.db", Opening(namespace=namespace))


def test_constructing_touches_nothing(tmp_path):
    backend = open_url(f"sqlite:///{tmp_path}/jobs.db", Opening())
    backend.session()
    assert list(tmp_path.iterdir()) == []


# --- schema


async def test_opening_creates_the_schema_and_writes_it_down(tmp_path):
    async with open_url(f"sqlite:///{tmp_path}/jobs.db", Opening()) as backend:
        assert await backend.store.migrate() == []
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        applied = connection.execute("SELECT version, name, applied_at FROM duly_schema ORDER BY version").fetchall()
    assert [(version, name) for version, name, _ in applied] == [
        (1, "0001_initial"),
        (2, "0002_sharing"),
        (3, "0003_unique"),
        (4, "0004_job_index"),
        (5, "0005_run_readings"),
        (6, "0006_run_lines"),
    ]
    assert all(applied_at > 1_600_000_000_000_000 for _, _, applied_at in applied)


async def test_a_newer_schema_is_refused_with_both_versions(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with open_url(url, Opening()):
        pass
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("INSERT INTO duly_schema VALUES (7, '0007_future', 0)")
    with pytest.raises(BackendError, match=r"version 7 .* only version 6: install the newer Duly"):
        await open_url(url, Opening()).open()


async def test_opening_twice_does_nothing_and_a_closed_one_can_be_opened_again(tmp_path):
    backend = open_url(f"sqlite:///{tmp_path}/jobs.db", Opening())
    await backend.open()
    await backend.open()
    await backend.close()
    await backend.close()
    with pytest.raises(BackendError, match="not open"):
        await backend.store.job("x")
    await backend.open()
    assert await backend.store.job("x") is None
    await backend.close()


async def test_namespaces_in_one_file_do_not_see_each_other(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with open_url(url, Opening()) as one, open_url(url, Opening(namespace="other")) as other:
        world = World(one)
        await world.put(run := world.run())
        assert await other.store.run(run.id) is None
        assert (await other.queue.claim("n", None, None, 10, 15, 1, now=world.now)).claims == []
        assert await other.coordinator.acquire("leader", "a", 10) is not None
        assert await one.coordinator.holder("leader") is None
        assert len(await world.claim()) == 1


async def test_a_users_own_tables_may_live_in_the_same_file(tmp_path):
    with sqlite3.connect(tmp_path / "app.db") as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO orders VALUES (1)")
    async with open_url(f"sqlite:///{tmp_path}/app.db", Opening()) as backend:
        world = World(backend)
        await world.put(world.run())
    with sqlite3.connect(tmp_path / "app.db") as connection:
        assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(1,)]
        ours = connection.execute("SELECT name FROM sqlite_master WHERE name <> 'orders'").fetchall()
    assert all(name.startswith(("duly_", "sqlite_autoindex_duly_")) for (name,) in ours)


async def test_people_can_read_the_runs_with_plain_sql(tmp_path):
    async with open_url(f"sqlite:///{tmp_path}/jobs.db", Opening()) as backend:
        world = World(backend)
        await world.put(
            world.run("mail", queue="post", priority=5, payload=b'{"to":"ada"}'),
            world.run("sms"),
            world.run("fax", cause=Cause.SCHEDULE, priority=0, delay=60),
        )
        done, _ = await world.claim(2)
        await world.settle(done)
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        rows = connection.execute("SELECT job, queue, priority, state, payload FROM duly_overview ORDER BY id")
        assert rows.fetchall() == [
            ("mail", "post", 5, "completed", '{"to":"ada"}'),
            ("sms", "default", 0, "running", "{}"),
            ("fax", "default", 0, "waiting", "{}"),
        ]
