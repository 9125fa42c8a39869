"""What a claim reads: as many pages with a million ended runs as with none; and when the short statement is enough."""

import itertools
import json
import random
import uuid
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from tests.conftest import eventually

from duly.backends.postgres import claiming, open_url, plain_claims
from duly.backends.postgres.connection import _SETTINGS
from duly.backends.postgres.session import Vacuum
from duly.backends.postgres.unit import PostgresTexts
from duly.model import Cause, Ids, Run, State
from duly.model.holds import hold_for_handler, hold_for_job
from duly.ports import Opening

ENDED = 1_000_000
BATCH = 100

# Runs that ended yesterday, as many settlements would have left them; and the dead rows of as many claims.
_HISTORY = f"""
INSERT INTO {{ns}}.runs (due, ready_at, created_at, rank, id, job, handler, line, cause, payload)
SELECT n, n, n, 500, 'old-' || n, 'old', 'old', 'default', 'submit', '{{{{}}}}' FROM generate_series(1, {ENDED}) AS n;
INSERT INTO {{ns}}.ended (seq, finished_at, fence, request, started_at, state, node)
SELECT seq, due, seq, 1, due, 'completed', 'n' FROM {{ns}}.runs WHERE job = 'old'
"""
_DEAD = """
INSERT INTO {ns}.waiting (seq, ready_at, rank, entering, line, id)
SELECT -n, n, 500, true, 'default', 'dead-' || n FROM generate_series({first}, {last}) AS n;
DELETE FROM {ns}.waiting WHERE seq < 0
"""
_BACKLOG = """
INSERT INTO {ns}.waiting (seq, ready_at, rank, entering, line, id)
SELECT -n, n, 500, false, 'default', 'waits-' || n FROM generate_series(1, 300000) AS n;
INSERT INTO {ns}.waiting (seq, ready_at, rank, entering, line, id) VALUES (0, 1, 500, false, 'default@n', 'assigned');
ANALYZE {ns}.waiting
"""


class Store:
    """A backend, a connection beside it, and how many pages one claim reads."""

    def __init__(self, backend, connection, namespace):
        self.backend = backend
        self.connection = connection
        self.namespace = namespace
        self.texts = PostgresTexts(namespace)
        self.requests = 0

    async def execute(self, sql, *parameters):
        await self.connection.execute(self.texts[sql], *parameters)

    async def leave_dead(self, first, last):
        """Leave dead rows, numbered so, as claims do."""
        await self.connection.execute(_DEAD.format(ns=f'"{self.namespace}"', first=first, last=last))

    async def put(self, number, *, grouped=False, cause=Cause.SUBMIT, ago=60):
        now = datetime.now(UTC) - timedelta(seconds=ago)
        ids = Ids(lambda: datetime.now(UTC), random.Random(str(cause))).many(number)
        runs = [Run(run_id, "mail", "mail", now, now, group=run_id if grouped else None, cause=cause) for run_id in ids]
        await self.backend.queue.put(runs)

    async def pages_of_a_claim(self, staff=None):
        """The pages that the statement of a claim touches; rolled back, so that it can be asked for again."""
        self.requests += 1
        asked = (None, "n", None, self.requests, False, BATCH, 15_000_000, staff, False, "handler:", "handler;", False)
        return await self._pages(claiming._LEND, BATCH, *asked, -1, 0, 0)

    async def pages_of_a_plain_claim(self, staff=None):
        """The same for the short statement."""
        self.requests += 1
        asked = (None, "n", None, self.requests, BATCH, 15_000_000, staff, "handler:", "handler;")
        return await self._pages(plain_claims._LEND_PLAIN, BATCH, *asked)

    async def lend_plain(self, limit=BATCH, *, node="n", queues=None, handlers=None, request=None):
        """What the short statement lends; None if it leaves that to the other one."""
        self.requests += 1
        staff = claiming.named(handlers)
        number = self.requests if request is None else request
        asking = claiming.Asking(node, queues, handlers, staff, number, None, 15_000_000)
        session = self.backend.queue._server
        lent = await session.run("claiming", lambda unit: plain_claims.PlainClaims().lend(unit, asking, limit))
        return None if lent is None else [claim.run.id for claim in lent.claims]

    async def pages_to_the_first_run(self):
        """The pages that are touched by whoever looks for the first run in line."""
        return await self._pages("SELECT FROM {ns}.waiting ORDER BY line, rank, ready_at, id LIMIT 1", 1)

    async def _pages(self, sql, rows, *parameters):
        transaction = self.connection.transaction()
        await transaction.start()
        [row] = await self.connection.fetch("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + self.texts[sql], *parameters)
        await transaction.rollback()
        plan = json.loads(row[0])[0]["Plan"]
        assert plan["Actual Rows"] == rows
        return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


@pytest.fixture
async def store(postgres_url):
    namespace = f"t{uuid.uuid4().hex}"
    connection = await asyncpg.connect(postgres_url)
    async with open_url(postgres_url, Opening(namespace=namespace)) as backend:
        await connection.execute(_SETTINGS)
        yield Store(backend, connection, namespace)
    await connection.execute(f'DROP SCHEMA "{namespace}" CASCADE')
    await connection.close()


async def test_a_claim_reads_no_more_with_a_million_ended_runs(store):
    await store.put(500)
    fresh = await store.pages_of_a_claim()
    await store.execute(_HISTORY)
    assert await store.pages_of_a_claim() <= 2 * fresh
    assert await store.pages_of_a_plain_claim() <= fresh


async def test_a_claim_reads_no_more_after_the_dead_rows_of_many_were_swept_away(store):
    await store.execute("ALTER TABLE {ns}.waiting SET (autovacuum_enabled = false)")  # it would do the same, later
    await store.put(500)
    fresh = await store.pages_of_a_claim()
    await store.leave_dead(1, 100_000)
    assert await store.pages_of_a_claim() > 2 * fresh

    async def swept():  # not while somebody, such as an analysis by the server, may still see the rows
        await Vacuum(store.backend.connections).run()
        return await store.pages_of_a_claim() <= 2 * fresh

    await eventually(swept, "the dead rows are gone")


async def test_a_claim_in_a_burst_passes_what_was_claimed_before_it_once(store):
    await store.execute("ALTER TABLE {ns}.waiting SET (autovacuum_enabled = false)")
    await store.put(500, grouped=True)
    fresh = await store.pages_of_a_claim()
    for thousands in range(20, 201, 20):  # how many rows it takes depends on the server's version
        await store.leave_dead(1000 * (thousands - 20) + 1, 1000 * thousands)
        if await store.pages_to_the_first_run() > fresh / 2:
            break
    else:
        pytest.fail("dead rows cost nothing here")

    async def passed_once():  # as soon as nobody may see the rows any more, and whoever finds them dead marks them
        claim = await store.pages_of_a_claim()
        return claim <= fresh + 1.5 * await store.pages_to_the_first_run()

    await eventually(passed_once, "the dead rows are walked over once")


async def test_a_claim_reads_no_more_for_a_node_with_many_handlers(store):
    await store.put(500)
    await store.execute("INSERT INTO {ns}.staff VALUES ('few', '', 0), ('few', 'mail', 0), ('many', '', 0)")
    await store.execute("INSERT INTO {ns}.staff SELECT 'many', 'h' || n, 0 FROM generate_series(1, 20000) AS n")
    await store.execute("INSERT INTO {ns}.staff VALUES ('many', 'mail', 0)")
    assert await store.pages_of_a_claim("many") <= 2 * await store.pages_of_a_claim("few")
    assert await store.pages_of_a_plain_claim("many") <= 2 * await store.pages_of_a_plain_claim("few")


async def test_one_statement_lends_runs_that_are_alone_before_empty_groups(store):
    await store.put(500)
    plain = await store.pages_of_a_claim()
    await store.execute("DELETE FROM {ns}.waiting")
    await store.put(500, grouped=True)
    assert await store.pages_of_a_claim() <= 4 * plain


async def test_scheduled_runs_behind_a_backlog_are_found_without_walking_over_it(store):
    await store.put(20_000)
    alone = await store.pages_of_a_claim()
    await store.put(500, cause=Cause.SCHEDULE, ago=30)
    assert await store.pages_of_a_claim() <= 2 * alone


async def test_runs_that_wait_for_a_node_are_found_without_reading_those_that_wait_for_none(store):
    await store.execute(_BACKLOG)
    assert await store._pages("{waiting_for}", 1, "n", 500) < 100


async def test_handlers_that_the_store_has_forgotten_are_told_again(store):
    await store.put(2)
    for request in (1, 2):
        claimed = await store.backend.queue.claim("n", None, frozenset({"mail"}), 1, 15.0, request)
        assert [claim.run.handler for claim in claimed.claims] == ["mail"]
        await store.execute("DELETE FROM {ns}.staff")
    assert await store.backend.queue.holds() == {}


# --- the short statement


def _waiting(**fields):
    """A run that is due."""
    past = datetime.now(UTC) - timedelta(seconds=60)
    values = {"id": f"r-{uuid.uuid4().hex}", "job": "mail", "handler": "mail", "due": past, "ready_at": past}
    return Run(**(values | fields))


async def test_the_short_statement_lends_plain_runs_in_order(store):
    runs = sorted((_waiting() for _ in range(5)), key=lambda run: (run.ready_at, run.id))
    await store.backend.queue.put(runs[::-1])
    assert await store.lend_plain(3) == [run.id for run in runs[:3]]
    assert await store.lend_plain(3) == [run.id for run in runs[3:]]
    assert await store.lend_plain(3) == []
    fenced = [(run.fence, run.state) for run in [await store.backend.store.run(run.id) for run in runs]]
    assert fenced == sorted(fenced)
    assert {state for _, state in fenced} == {State.RUNNING}


async def test_the_short_statement_takes_from_the_most_urgent_line_if_that_is_enough(store):
    runs = [_waiting(), _waiting(priority=7), _waiting(priority=3, queue="other")]
    await store.backend.queue.put(runs)
    assert await store.lend_plain(1) == [runs[1].id]
    assert await store.lend_plain(2) is None
    assert await store.lend_plain(1) == [runs[2].id]


async def test_the_short_statement_says_when_the_next_run_is_due(store):
    soon = datetime.now(UTC) + timedelta(hours=1)
    await store.backend.queue.put([_waiting(ready_at=soon)])
    claimed = await store.backend.queue.claim("n", None, None, 1, 15.0, 1)
    assert (claimed.claims, claimed.next_due) == ([], soon)


async def _two_queues(store):
    await store.backend.queue.put([_waiting(queue="other")])


async def _two_priorities(store):
    await store.backend.queue.put([_waiting(priority=7)])


async def _paused_job(store):
    await store.execute("INSERT INTO {ns}.jobs (name, blocked, record) VALUES ('mail', true, '{{}}')")


async def _scheduled_and_not(store):
    await store.backend.queue.put([_waiting(cause=Cause.SCHEDULE)])


async def _held_for_a_handler(store):
    await store.backend.queue.put([_waiting(handler="unknown", hold=hold_for_handler("unknown"))])


async def _entrant(store):
    await store.backend.queue.put([_waiting(queue="other", group="g")])


async def _member(store):
    await store.backend.queue.put([_waiting(group="g", member=True)])


@pytest.mark.parametrize(
    "special", [_two_queues, _two_priorities, _scheduled_and_not, _paused_job, _held_for_a_handler, _entrant, _member]
)
async def test_the_short_statement_leaves_what_is_special_to_the_other_one(store, special):
    await store.backend.queue.put([_waiting()])
    await special(store)
    before = await store.backend.store.counts()
    assert await store.lend_plain() is None
    assert await store.backend.store.counts() == before


async def test_the_short_statement_leaves_unknown_handlers_to_the_other_one(store):
    await store.backend.queue.put([_waiting(), _waiting()])
    assert await store.lend_plain(handlers={"mail"}) is None  # the store has not heard of that set yet
    await store.backend.queue.claim("n", None, {"mail"}, 1, 15.0, 1)
    store.requests = 1
    assert await store.lend_plain(handlers={"sms"}) is None
    assert len(await store.lend_plain(handlers={"mail"})) == 1


async def test_the_short_statement_leaves_a_repeated_request_to_the_other_one(store):
    await store.backend.queue.put([_waiting(), _waiting()])
    assert len(await store.lend_plain(1, request=7)) == 1
    assert await store.lend_plain(1, request=7) is None
    assert await store.lend_plain(1, request=6) is None
    assert len(await store.lend_plain(1, request=8)) == 1


async def test_runs_that_are_not_in_the_way_do_not_prevent_the_short_statement(store):
    await store.execute("INSERT INTO {ns}.jobs (name, blocked, record) VALUES ('paused', true, '{{}}')")
    await store.execute("INSERT INTO {ns}.queues (name, paused) VALUES ('stopped', true)")
    later = datetime.now(UTC) + timedelta(hours=1)
    mine = _waiting()
    others = [
        _waiting(job="paused", hold=hold_for_job("paused")),
        _waiting(queue="stopped"),
        _waiting(queue="other"),
        _waiting(ready_at=later, queue="later"),
        _waiting(ready_at=later, group="g"),
    ]
    await store.backend.queue.put([mine, *others])
    assert await store.lend_plain(queues=["default", "stopped", "later"]) == [mine.id]


async def test_after_special_claims_the_short_statement_is_tried_less_and_less_often(store):
    plain = plain_claims.PlainClaims()
    asking = claiming.Asking("n", None, None, None, 1, None, 15_000_000)
    await store.backend.queue.put([_waiting(), _waiting(queue="other")])
    tried = []
    for number in range(200):
        if plain.promising:
            tried.append(number)
            await store.backend.queue._server.run("claiming", lambda unit: plain.lend(unit, asking, 1))
    assert [later - earlier for earlier, later in itertools.pairwise(tried)] == [1, 2, 4, 8, 16, 32, 64, 64]
