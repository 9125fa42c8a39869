"""How SQLite goes about the statements of the hot paths: by their indexes, without sorting, whatever else is stored."""

import re
import sqlite3

import pytest

from duly.backends.sqlite import adding, groups, leases, operating, planning, schema, settling
from duly.backends.sqlite import claiming as lending
from duly.backends.sqlite import transitions as moves
from duly.backends.sqlite import waiting_index as line
from duly.backends.sqlite.sql_templates import SqlTemplates

# Every statement that putting, claiming, renewing, settling, reaping, planning and purging may run.
HOT = [
    (adding, ["_LAST", "_ADD_PLAIN", "_ADD_RICH", "_ADDED", "_WAIT", "_WAIT_TO_ENTER", "_WITH_IDS", "_WITH_KEYS"]),
    (line, ["_SURVEY", "_READY", "_READY_TO_ENTER", "_DUE_ENTRANTS", "_SOME_DUE", "_LEAVE", "_LEAVE_ENTERING"]),
    (
        lending,
        ["_LAST_REQUEST", "_SET_REQUEST", "_ANY_BLOCKED", "_BLOCKED", "_HANDLER_HOLDS", "_LEND"],
    ),
    (groups, ["_ANY_CROWD", "_MEMBERS_THAT_WAIT", "_HELD_FOR", "_ASK_TO_CANCEL", "_LEAVE", "_LEAVE_UP_TO"]),
    (moves, ["_BY_IDS", "_BY_SEQS", "_MEMBERS", "_FIRST_HELD", "_UNHOLD", "_UNHOLD_TO_ENTER", "_LEAVE_HOLD"]),
    (leases, ["_STANDING", "_EXTEND", "_PROGRESS", "_EXPIRED", "_TAKE_OVER"]),
    (
        settling,
        [
            "_CHECK",
            "_COMPLETE",
            "_COMPLETE_WITH_RESULT",
            "_GIVE_BACK",
            "_KEEP_RESULT",
            "_AGAIN",
            "_COUNT",
            "_COUNT_COMPLETED",
        ],
    ),
    (planning, ["_JOB", "_LATER", "_EPOCH", "_DUE", "_NEXT", "_STANDING", "_ADVANCE"]),
    (operating, ["_KEPT", "_OLDER", "_PURGE_ATTEMPTS", "_PURGE_RUNS", "_PURGE_ENDED", "_TWIN", "_PAUSED"]),
]

# What may be walked over: a list that was given, rows of the statement itself, a recursion, an index of exceptions; and
# for the first row only (EXISTS), what is held.
_FINE = re.compile(
    r"SCAN (wanted|json_each|v|l|holds|waiting_lines|entrant_lines|(\d+ )?CONSTANT ROWS?)\b|SCAN \(subquery-\d+\)"
    r"|SCAN \w+ USING (COVERING )?INDEX duly_(queues_paused|jobs_blocked|held_run)"
)


@pytest.fixture(scope="module")
def connection():
    texts = SqlTemplates("duly")
    connection = sqlite3.connect(":memory:")
    for step in schema.steps():
        for statement in step.statements():
            connection.execute(texts[statement])
    yield connection
    connection.close()


def _plan(connection, sql: str) -> list[str]:
    texts = SqlTemplates("duly")
    text = texts.multiplied(sql, 2) if "{rows:" in sql else texts[sql]
    numbered = [int(number) for number in re.findall(r"\?(\d+)", text)]
    number = max(numbered) if numbered else text.count("?")
    return [detail for _, _, _, detail in connection.execute(f"EXPLAIN QUERY PLAN {text}", [1] * number)]


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, names in HOT for name in names],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_hot_statement_neither_walks_nor_sorts(connection, module, name):
    plan = _plan(connection, getattr(module, name))
    walks = [detail for detail in plan if detail.startswith("SCAN") and not _FINE.match(detail)]
    sorts = [detail for detail in plan if "TEMP B-TREE" in detail]
    assert not walks + sorts, "\n".join(plan)


def test_purging_follows_the_order_of_ends(connection):
    plan = _plan(connection, operating._PURGE_ENDED)
    assert any("duly_ended_state (state=?)" in detail for detail in plan), plan


def test_listing_walks_back_from_the_newest(connection):
    plan = _plan(connection, "SELECT {run} FROM {ns}_runs AS r {standing} WHERE r.kind = ? ORDER BY r.seq DESC LIMIT ?")
    assert any("duly_runs_kind" in detail for detail in plan), plan
    assert not any("TEMP B-TREE" in detail for detail in plan), plan
