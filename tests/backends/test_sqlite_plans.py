"""How SQLite goes about the statements of the hot paths: by their indexes, without sorting, whatever else is stored."""

import re
import sqlite3

import pytest

from duly.backends.sql import coordinator, groups, moves, operating, planning, run_lines
from duly.backends.sql import settling as shared_settling
from duly.backends.sql.unit import Delete, Insert, Update
from duly.backends.sqlite import claiming, dialect, settling
from duly.backends.sqlite.session import steps
from duly.backends.sqlite.unit import SqliteTexts

# Every statement that putting, claiming, renewing, settling, reaping, planning and purging may run.
HOT = [
    (dialect, ["_LAST", "_ADD_PLAIN", "_ADD_RICH", "_ADDED", "_WAIT", "_WAIT_TO_ENTER", "_WITH_IDS", "_WITH_KEYS"]),
    (dialect, ["_ADD_ODD", "_WITH_UNIQUE_KEYS", "_KEEP_KEY", "_KEEP_UNIQUE"]),
    (claiming, ["_SURVEY", "_READY", "_READY_TO_ENTER", "_DUE_ENTRANTS", "_LEAVE", "_LEAVE_ENTERING", "_ANY_CROWD"]),
    (claiming, ["_LAST_REQUEST", "_SET_REQUEST", "_ANY_BLOCKED", "_BLOCKED", "_HANDLER_HOLDS", "_LEND", "_LEND_RICH"]),
    (claiming, ["_STILL_WAITING", "_HOLD"]),
    (groups, ["_MEMBERS_THAT_WAIT", "_HELD_FOR", "_ASK_TO_CANCEL", "_EXCUSE"]),
    (moves, ["_BY_IDS", "_BY_SEQS", "_MEMBERS", "_FIRST_HELD", "_WAIT", "_WAIT_TO_ENTER", "_HOLD", "_LEAVE"]),
    (moves, ["_LEAVE_ENTRANTS", "_LEAVE_HELD", "_RELOCATE", "_WITH_RUNS", "_END", "_COUNT", "AGAIN", "_FORGET"]),
    (settling, ["_STANDING", "_EXTEND", "_PROGRESS", "_EXPIRED", "_TAKE_OVER", "_COMPLETE", "_NOT_COMPLETE"]),
    (settling, ["_COMPLETE_WITH_RESULT", "_GIVE_BACK", "_COUNT_COMPLETED", "_AWAITED"]),
    (shared_settling, ["_GIVE_BACK", "_KEEP_RESULTS", "_READY_AT", "ATTEMPTS", "STATISTICS"]),
    (planning, ["_JOB_NAMED", "_JOBS", "_LATER", "_EPOCH", "_INSTALL", "_STANDING", "_ADVANCE", "_KEEP_PLANS"]),
    (operating, ["_KEPT", "_OLDER", "_FIRST_ENDED", "_PAUSED", "_ASK_TO_CANCEL", "_NO_LONGER_ENDED"]),
    (moves, ["_FORGET_ATTEMPTS", "_FORGET_LINES"]),
    (run_lines, ["_OWNED", "_APPEND", "_TRIM", "_PROGRESS", "_READ"]),
    (coordinator, ["_RENEW", "_RELEASE", "_HOLDER", "_BEAT"]),
]

# What may be walked over: a list that was given, rows of the statement itself, a recursion, an index of exceptions; and
# for the first row only (EXISTS), what is held.
_FINE = re.compile(
    r"SCAN (wanted|json_each|v|i|l|old|few|clock|first|holds|waiting_lines|entrant_lines|(\d+ )?CONSTANT ROWS?)\b"
    r"|SCAN \(subquery-\d+\)"
    r"|SCAN \w+ USING (COVERING )?INDEX duly_(queues_paused|jobs_blocked|held_run|held_ready)"
)


@pytest.fixture(scope="module")
def connection():
    texts = SqliteTexts("duly")
    connection = sqlite3.connect(":memory:")
    for step in steps():
        for statement in step.statements():
            connection.execute(texts[statement])
    yield connection
    connection.close()


def _plan(connection, statement: str | Insert | Update | Delete) -> list[str]:
    texts = SqliteTexts("duly")
    sql = statement if isinstance(statement, str) else texts.of(statement)
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
    assert not _walks(plan) + _sorts(plan), "\n".join(plan)


def _walks(plan: list[str]) -> list[str]:
    return [detail for detail in plan if detail.startswith("SCAN") and not _FINE.match(detail)]


def _sorts(plan: list[str]) -> list[str]:
    return [detail for detail in plan if "TEMP B-TREE" in detail]


@pytest.mark.parametrize("statement", [*operating._PURGE, "{expire_keys}"])
def test_deleting_what_is_old_neither_walks_nor_sorts(connection, statement):
    plan = _plan(connection, statement)
    assert not _walks(plan) + _sorts(plan), "\n".join(plan)


def test_purging_follows_the_order_of_ends(connection):
    plan = _plan(connection, operating._FIRST_ENDED)
    assert any("duly_ended_state (state=?)" in detail for detail in plan), plan


def test_listing_walks_back_from_the_newest(connection):
    plan = _plan(connection, "SELECT {run} FROM {ns}.runs AS r {standing} WHERE r.kind = ? ORDER BY r.seq DESC LIMIT ?")
    assert any("duly_runs_kind" in detail for detail in plan), plan
    assert not any("TEMP B-TREE" in detail for detail in plan), plan


# Two statements take their first rows in the order of an index, up to a limit, then look up what belongs to these: only
# what was taken is walked over and sorted.


def _taken_in_order(plan: list[str], taken: str) -> bool:
    """Whether the rows called `taken` are found without a walk or a sort, and nothing else is walked over later."""
    start = plan.index(f"SCAN {taken}")
    return not _walks(plan[:start]) + _sorts(plan[:start]) and _walks(plan[start:]) == [plan[start]]


def test_finding_what_to_plan_follows_the_order_of_times(connection):
    plan = _plan(connection, planning._DUE)
    walked = [detail for detail in _walks(plan) if detail not in {"SCAN come", "SCAN next", "SCAN p"}]
    assert sum("duly_plans_due (shard=? AND plan_at" in detail for detail in plan) == 2, plan
    assert not walked, plan


def test_the_runs_held_for_a_group_are_found_by_their_hold(connection):
    plan = _plan(connection, moves._FIRST_IN_LINE)
    assert "SEARCH duly_held USING PRIMARY KEY (hold=?)" in plan, plan
    assert _taken_in_order(plan, "h"), plan
