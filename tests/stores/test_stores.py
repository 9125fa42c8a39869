"""Stores that earlier versions wrote are read as those versions read them, and work goes on in them."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from duly import Retention, Scheduler, SchedulerConfig
from duly.backends import open_backend
from duly.model import WAITING, State
from duly.ports import Opening
from tests.conftest import emptied, eventually
from tests.stores import transfer
from tests.stores.content import found

FOLDERS = sorted(path for path in Path(__file__).parent.glob("v*") if path.is_dir())
NAMESPACE = "earlier"
# The stores become older every day; nothing in them may be purged meanwhile.
KEEP_ALL = Retention(completed=None, failed=None, cancelled=None, lost=None, skipped=None)


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request) -> Path:
    return request.param


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def earlier(request, folder, tmp_path):
    """A store as it was written then: its name, its URL and the namespace it is in."""
    match request.param:
        case "sqlite":
            shutil.copy(folder / "sqlite.db", tmp_path / "duly.db")
            yield request.param, f"sqlite:///{tmp_path}/duly.db", "duly"
        case "redis":
            url = emptied(request.getfixturevalue("redis_url"))
            transfer.load_redis(url, (folder / "redis.resp").read_bytes())
            yield request.param, url, "duly"
            emptied(url)
        case _:
            url = request.getfixturevalue("postgres_url")
            asyncio.run(transfer.load_postgres(url, (folder / "postgres.sql").read_text(), NAMESPACE))
            yield request.param, url, NAMESPACE
            asyncio.run(_dropped(url))


async def _dropped(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"DROP SCHEMA {NAMESPACE} CASCADE")
    finally:
        await connection.close()


def test_it_is_read_as_it_was_written(earlier, folder):
    name, url, namespace = earlier

    async def read() -> bytes:
        async with open_backend(url, Opening(namespace=namespace)) as backend:
            return await found(backend)

    expected = msgspec.json.decode((folder / f"{name}.json").read_bytes())
    assert _like(expected, msgspec.json.decode(asyncio.run(read()))) == expected


def _like(earlier, now):
    """What is read now, without the fields that records have got since, as long as these are empty."""
    match earlier, now:
        case dict(), dict():
            added = {key: value for key, value in now.items() if key not in earlier}
            assert not any(added.values()), added
            return {key: _like(earlier[key], value) for key, value in now.items() if key in earlier}
        case list(), list() if len(earlier) == len(now):
            return [_like(*pair) for pair in zip(earlier, now, strict=True)]
        case _:
            return now


def _ends(then: dict[str, Any]) -> bool:
    """Whether a run of the earlier store is executed by a node that has all handlers."""
    return then["state"] in {"running", "queued"} or (
        then["state"] == "pending" and then["job"] in {"rare", "solo", "later"}
    )


def test_work_goes_on_in_it(earlier, folder):
    name, url, namespace = earlier
    before = {run["id"]: run for run in msgspec.json.decode((folder / f"{name}.json").read_bytes())["runs"]}

    async def work() -> None:
        scheduler = Scheduler(url, SchedulerConfig(namespace=namespace, lock_ttl=2.0, retention=KEEP_ALL))
        for handler in ("solo", "nobody_has_it", "long", "longer", "stop", "beat", "mail", "later", "keyed"):

            @scheduler.job(name=handler)
            async def _() -> str:
                return "done"

        async with scheduler:

            async def ended_all() -> bool:
                """What ran or was due then, and what has become due since, has ended."""
                runs = [await scheduler.get_run(run_id) for run_id, then in before.items() if _ends(then)]
                return all(run.final for run in runs)

            await eventually(ended_all, "what waited and ran then has ended")
            ended = {run_id: await scheduler.get_run(run_id) for run_id in before}
        for run_id, then in before.items():
            now = ended[run_id]
            match then["state"], then["job"]:
                case "running", "stop":
                    assert now.state is State.CANCELLED
                case "running" | "queued", _:
                    assert now.state is State.COMPLETED, now
                    assert msgspec.json.decode(now.result) == "done"
                    assert now.losses == (then["state"] == "running")
                    assert now.fence > then["fence"]
                case "pending", "rare" | "solo" | "later":
                    assert now.state is State.COMPLETED, now
                case "pending", _:
                    assert now.state in WAITING, now  # it may be due by now: in a paused queue, or nobody can start it
                case _:
                    assert now.state.value == then["state"], now

    asyncio.run(work())
