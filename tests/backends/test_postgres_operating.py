"""Operations on many runs: as many statements as for a few, and no two of them wait for each other in a circle."""

import asyncio
import random
import uuid
from datetime import UTC, datetime

import pytest

from duly.backends.postgres import open_url
from duly.backends.sql.unit import STORE
from duly.model import CancelReply, Ids, JobChange, JobRecord, JobSpec, Origin, RedriveReply, Run, WhenFull
from duly.ports import Opening

ids = Ids(lambda: datetime.now(UTC), random.Random(0))


@pytest.fixture
async def backend(postgres_url):
    async with open_url(postgres_url, Opening(uuid.uuid4().hex)) as backend:
        yield backend


def runs(number, **fields):
    now = datetime.now(UTC)
    return [Run(ids.new(), "mail", "mail", now, now, **fields) for _ in range(number)]


async def put(backend, number, **fields):
    made = runs(number, **fields)
    await backend.queue.put(made)
    return [run.id for run in made]


async def statements(backend, call):
    """How many statements a call sends on the purpose of operators."""
    told = []
    await backend.store.pause("unused")  # so that the purpose has its connection
    connection = backend.connections[STORE].live
    with connection.query_logger(lambda query: told.append(query.query)):
        await call()
    return len(told)


@pytest.mark.parametrize("fields", [{}, {"group": "g", "when_full": WhenFull.QUEUE}], ids=["alone", "grouped"])
async def test_many_runs_take_as_many_statements_as_a_few(backend, fields):
    few, many = await put(backend, 3, **fields), await put(backend, 700, **fields)
    cancelling = [await statements(backend, lambda some=some: backend.store.cancel(some)) for some in (few, many)]
    redriving = [await statements(backend, lambda some=some: backend.store.redrive(some)) for some in (few, many)]
    assert cancelling[1] <= cancelling[0] < 30  # the first time, the driver also asks for types
    assert redriving[1] <= redriving[0] < 30


async def test_a_job_with_many_waiting_runs_is_removed_by_a_few_statements(backend):
    now = datetime.now(UTC)
    sent = []
    for number in (3, 700):
        record = JobRecord(ids.new(), JobSpec(name="mail", handler="mail"), 1, Origin.API, now, now)
        await backend.store.save([JobChange(record, None)])
        await put(backend, number, group="mail", when_full=WhenFull.QUEUE)
        sent.append(await statements(backend, lambda: backend.store.remove("mail", 1)))
    assert sent[1] <= sent[0] < 40


async def test_two_who_change_the_same_many_runs_do_not_stop_each_other(backend):
    named = await put(backend, 500)
    other = backend.session()
    async with other:
        for _ in range(5):
            one, two = await asyncio.gather(backend.store.cancel(named), other.store.cancel(named[::-1]))
            done = [reply is CancelReply.DONE for reply in one], [reply is CancelReply.DONE for reply in two[::-1]]
            assert [a + b for a, b in zip(*done, strict=True)] == [1] * 500
            one, two = await asyncio.gather(backend.store.redrive(named), other.store.redrive(named[::-1]))
            done = [reply is RedriveReply.DONE for reply in one], [reply is RedriveReply.DONE for reply in two[::-1]]
            assert [a + b for a, b in zip(*done, strict=True)] == [1] * 500
