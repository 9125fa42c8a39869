"""The schema in PostgreSQL: numbered steps, applied once whoever comes first, by old and new code side by side."""

import asyncio
import secrets

import pytest

from duly.backends.postgres.connection import Connections
from duly.backends.postgres.migrations import Step, check, migrate
from duly.backends.postgres.url import parse
from duly.errors import BackendError

FIRST = Step(1, "0001_first", "CREATE TABLE {ns}.things (n int); CREATE INDEX ON {ns}.things (n);")
SECOND = Step(2, "0002_second", "ALTER TABLE {ns}.things ADD COLUMN m int;")
THIRD = Step(3, "0003_third.contract", "ALTER TABLE {ns}.things DROP COLUMN n;")
FOURTH = Step(4, "0004_fourth", "ALTER TABLE {ns}.things ADD COLUMN o int;")


@pytest.fixture
async def connections(postgres_url):
    connections = Connections(parse(postgres_url), f"schema.{secrets.token_hex(6)}")
    await connections.open()
    yield connections
    await connections["store"].run(lambda c: c.execute(f"DROP SCHEMA IF EXISTS {connections.texts.schema} CASCADE"))
    await connections.close()


async def columns(connections):
    asked = "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped"
    rows = await connections["store"].run(lambda c: c.fetch(asked, f"{connections.texts.schema}.things"))
    return {row[0] for row in rows}


async def test_missing_steps_are_applied_in_order_and_once(connections):
    assert await migrate(connections, (FIRST,)) == ["0001_first"]
    assert await migrate(connections, (FIRST, SECOND)) == ["0002_second"]
    assert await migrate(connections, (FIRST, SECOND)) == []
    assert await columns(connections) == {"n", "m"}


async def test_many_who_start_at_once_apply_each_step_once(connections):
    others = [Connections(connections.place, connections.texts.namespace) for _ in range(5)]
    for other in others:
        await other.open()
    applied = await asyncio.gather(*(migrate(other, (FIRST, SECOND, THIRD)) for other in others))
    for other in others:
        await other.close()
    assert sorted(name for names in applied for name in names) == [FIRST.name, SECOND.name, THIRD.name]


async def test_opening_applies_what_expands_and_leaves_the_rest_to_the_operator(connections):
    await check(connections, (FIRST, SECOND, THIRD, FOURTH))
    assert await columns(connections) == {"n", "m"}
    assert await migrate(connections, (FIRST, SECOND, THIRD, FOURTH)) == [THIRD.name, FOURTH.name]
    assert await columns(connections) == {"m", "o"}


async def test_old_code_works_on_beside_steps_that_expand_and_refuses_after_one_that_contracts(connections):
    await migrate(connections, (FIRST, SECOND))
    await check(connections, (FIRST,))
    assert await migrate(connections, (FIRST,)) == []
    await migrate(connections, (FIRST, SECOND, THIRD))
    with pytest.raises(BackendError, match=r"0003_third\.contract.*knows version 1\).*the Duly that migrated it"):
        await check(connections, (FIRST,))
    with pytest.raises(BackendError, match="the Duly that migrated it"):
        await migrate(connections, (FIRST,))


async def test_a_step_that_fails_leaves_nothing_behind(connections):
    broken = Step(2, "0002_broken", "ALTER TABLE {ns}.things ADD COLUMN m int; SELECT no_such_thing;")
    with pytest.raises(BackendError, match="no_such_thing"):
        await migrate(connections, (FIRST, broken))
    assert await columns(connections) == {"n"}
    assert await migrate(connections, (FIRST, SECOND)) == ["0002_second"]


async def test_a_url_may_forbid_to_migrate_at_opening(connections, postgres_url):
    careful = Connections(parse(f"{postgres_url}?migrate=no"), connections.texts.namespace)
    await careful.open()
    with pytest.raises(BackendError, match=r"lacks step 0001_first.*duly migrate"):
        await check(careful, (FIRST,))
    assert await migrate(careful, (FIRST,)) == [FIRST.name]
    await check(careful, (FIRST,))
    await careful.close()
