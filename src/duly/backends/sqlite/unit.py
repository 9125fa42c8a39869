"""A unit of work on SQLite, and the texts of its statements.

A unit's coroutines never suspend: they are driven to their end on the session's thread.

The fast paths use the plain methods (`select`, `execute`, …). Rows to insert travel as many VALUES of one statement,
which halves their cost; their number is split into a few sizes, so that those statements stay prepared too.

The statements of `backends.sql` are written in PostgreSQL's syntax. Here a namespace is the prefix of a table's
name. Lists travel as one JSON array, so that one prepared statement serves every length and the whole list is
processed in one step without releasing the interpreter lock in between. A run's line is a number: that of its queue
(`interning`) times 1000, plus its rank; job, handler, policies and the rule of the group are those of its kind. Runs
that wait to enter their group have a separate table.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from duly.backends.codec import run_columns
from duly.backends.sql import unit as sql
from duly.backends.sql.unit import Delete, Insert, Many, Row, Texts, Update
from duly.backends.sqlite.interning import Names
from duly.model import to_micros
from duly.ports import Clock

T = TypeVar("T")

_SIZES = (100, 25, 5, 1)
_FENCES_PER_SECOND = 1 << 20
_HIGHEST_START = 1 << 52

_SET_META = "INSERT INTO {ns}.meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_META = "SELECT value FROM {ns}.meta WHERE name = ?"


def driven(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("a unit of work on SQLite must not wait for anything")


class Statements(Protocol):
    """What a unit needs of a connection."""

    def execute(self, sql: str, parameters: Sequence[Any], /) -> sqlite3.Cursor: ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> sqlite3.Cursor: ...


class Memory(sql.Memory):
    """What a session remembers between units. Forgotten whenever a transaction is rolled back."""

    def __init__(self) -> None:
        super().__init__()
        self.names = Names()
        self.fenced = False

    def forget(self) -> None:
        """Forget everything: numbers from a transaction that was rolled back do not exist."""
        self.names = Names()
        self.lent.clear()
        self.fenced = False


class SqliteUnit(sql.Unit):
    """Wraps one connection for the length of a batch of calls."""

    memory: Memory

    def __init__(
        self, connection: Statements, texts: SqliteTexts, clock: Clock, memory: Memory, dialect: sql.Dialect[Any]
    ) -> None:
        super().__init__()
        self._connection = connection
        self._execute = connection.execute
        self._texts = texts
        self._clock = clock
        self.dialect = dialect
        self.namespace = texts.namespace
        self.memory = memory
        self.names = memory.names
        self.barrier = False

    # --- the clock

    def micros(self, now: datetime | None) -> int:
        """The instant this call happens at, in microseconds."""
        return to_micros(now or self._clock.now())

    def moment(self, now: datetime | None) -> int | None:
        return self.micros(now)

    async def at(self, now: datetime | None) -> int:
        return self.micros(now)

    # --- statements, at once

    def execute(self, sql: str, *parameters: Any) -> int:
        """Execute a statement; how many rows it changed."""
        return self._execute(self._texts[sql], parameters).rowcount

    def select(self, sql: str, *parameters: Any) -> list[Row]:
        """All rows of a query."""
        return self._execute(self._texts[sql], parameters).fetchall()

    def select_one(self, sql: str, *parameters: Any) -> Row | None:
        """The first row of a query, if there is one."""
        rows = self._execute(self._texts[sql], parameters).fetchall()  # an unfinished statement keeps its lock
        return rows[0] if rows else None

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement once per row. For what is rare."""
        self._connection.executemany(self._texts[sql], rows)

    def insert_many(self, sql: str, rows: Sequence[Sequence[Any]], *shared: Any) -> int:
        """Insert rows with few statements; how many were inserted.

        `{rows}` in the statement stands for the VALUES; `?1`, `?2`, … in a row's template are the shared parameters,
        plain `?` the row's own. None and bytes are slow to bind: templates say NULL, rows carry bytearrays.
        """
        return sum(cursor.rowcount for cursor in self._multiplied(sql, rows, *shared))

    def _multiplied(self, sql: str, rows: Sequence[Sequence[Any]], *shared: Any) -> Iterable[sqlite3.Cursor]:
        start = 0
        for size in _SIZES:
            while len(rows) - start >= size:
                parameters = [*shared]
                for row in rows[start : start + size]:
                    parameters += row
                yield self._execute(self._texts.multiplied(sql, size), parameters)
                start += size

    # --- the same as coroutines, as on other stores

    async def all(self, sql: str, *parameters: Any) -> list[Row]:
        return self.select(sql, *map(_bound, parameters))

    async def one(self, sql: str, *parameters: Any) -> Row | None:
        return self.select_one(sql, *map(_bound, parameters))

    async def run(self, sql: str, *parameters: Any) -> None:
        self.select(sql, *map(_bound, parameters))

    async def insert(self, statement: Insert, rows: Sequence[Sequence[Any]]) -> list[Row]:
        here = [present(statement, row) for row in rows]
        cursors = self._multiplied(self._texts.of(statement), here)
        return [row for cursor in cursors for row in cursor.fetchall()]

    async def change(self, statement: Update | Delete, rows: Sequence[Sequence[Any]]) -> set[Any]:
        text = self._texts.of(statement)
        if isinstance(statement, Update):
            return {row[0] for cursor in self._multiplied(text, rows) for row in cursor.fetchall()}
        return {row[0] for row in rows if self.execute(text, *row)}

    # --- fences and other numbers

    def fences(self, count: int) -> int:
        """The first of `count` fences that were never given out; all stay below 2**53.

        A session begins at the clock, 2**20 per second: if the file is an older copy or has lost its latest changes,
        the fences given out since then are not given out again.
        """
        first = 1 + (self.meta("fence") or 0)
        if not self.memory.fenced:
            first = max(first, min(self.micros(None) * _FENCES_PER_SECOND // 1_000_000, _HIGHEST_START))
            self.memory.fenced = True
        self.set_meta("fence", first + count - 1)
        return first

    def meta(self, name: str) -> int | None:
        """One of the store's own numbers."""
        row = self.select_one(_META, name)
        return None if row is None else int(row[0])

    def set_meta(self, name: str, value: int) -> None:
        self.execute(_SET_META, name, value)


def _bound(value: Any) -> Any:
    return as_list(value) if isinstance(value, list) else value


def as_list(values: Iterable[Any]) -> str:
    """Values as the JSON array that `json_each` takes."""
    return msgspec.json.encode(list(values)).decode()


_WAITING = 'line, ready_at, id, seq, kind, "group"'
_URGENCY = "CASE WHEN line % 1000 < 400 THEN line % 1000 + 400 ELSE line % 1000 END"
_ALL_WAITING = (
    "SELECT {0} FROM {{ns}}.waiting UNION ALL SELECT {0} FROM {{ns}}.entrants UNION ALL SELECT {0} FROM {{ns}}.held"
)
# Lines that have runs in a table, found by a loose index scan.
_LINES = """
{0}_lines (line) AS (
    SELECT min(line) FROM {{ns}}.{0}
    UNION ALL
    SELECT (SELECT min(line) FROM {{ns}}.{0} WHERE line > {0}_lines.line)
    FROM {0}_lines WHERE {0}_lines.line IS NOT NULL
)
"""
# What waits in lines of a table, counted up to $2 each. A key is twice the line, plus one for those that want to enter.
_LINE_DEPTHS = """
SELECT key, line,
    (SELECT count(*) FROM (SELECT 1 FROM {{ns}}.{0} WHERE line = k.line AND ready_at <= $1 LIMIT $2)) AS due,
    (SELECT count(*) FROM (SELECT 1 FROM {{ns}}.{0} WHERE line = k.line AND ready_at > $1 LIMIT $2)) AS later,
    (SELECT min(ready_at) FROM {{ns}}.{0} WHERE line = k.line AND ready_at <= $1) AS oldest
FROM (SELECT value AS key, value / 2 AS line FROM json_each($3)) AS k WHERE key % 2 = {1}
"""
_QUEUE = """(
    SELECT substr(name, 1, CASE instr(name, '@') WHEN 0 THEN length(name) ELSE instr(name, '@') - 1 END)
    FROM {ns}.queues WHERE number = line / 1000
)"""
_IN_QUEUE = "line BETWEEN q.number * 1000 AND q.number * 1000 + 999"

WORDS = {
    "run": run_columns(
        {
            "line": "q.name",
            "rank": "r.line % 1000",
            "job": "k.job",
            "handler": "k.handler",
            "cause": "k.cause",
            "policy": "p.policy",
            "limit": 'k."limit"',
            "when_full": "k.when_full",
            "entering": "n.seq IS NOT NULL",
            "hold": "h.hold",
            "member": "h.member",
            "claim.reason_json": "NULL",
            "ended.story": "NULL",
        }
    ),
    "standing": """
        LEFT JOIN {ns}.kinds AS k ON k.number = r.kind
        LEFT JOIN {ns}.policies AS p ON p.number = k.policy
        LEFT JOIN {ns}.queues AS q ON q.number = r.line / 1000
        LEFT JOIN {ns}.held AS h ON h.seq = r.seq
        LEFT JOIN {ns}.entrants AS n ON n.line = r.line AND n.ready_at = r.ready_at AND n.id = r.id
        LEFT JOIN {ns}.claims AS c ON c.seq = r.seq
        LEFT JOIN {ns}.ended AS e ON e.seq = r.seq
    """,
    "entry": """
        r.extra, (SELECT "limit" FROM {ns}.kinds WHERE number = r.kind),
        (SELECT when_full FROM {ns}.kinds WHERE number = r.kind)
    """,
    "line": "(SELECT name FROM {ns}.queues WHERE number = r.line / 1000)",
    "line_named": "(SELECT number FROM {ns}.queues WHERE name = $2) * 1000 + line % 1000",
    "clock": "clock AS MATERIALIZED (SELECT $1 AS now)",
    "now": "$1",
    "true": "1",
    "false": "0",
    "paused": "paused = 1",
    "plannable": "plannable = 1",
    "with_plan": "INNER JOIN {ns}.plans AS p ON p.name = j.name",
    "needed_handler": "handler",
    "job": "(SELECT job FROM {ns}.kinds WHERE number = r.kind)",
    "jobs_named": "{ns}.kinds AS j WHERE j.job = ANY($1::text[])",
    "run_of_job": "r.kind = j.number",
    "run_of_one_job": "r.kind IN (SELECT number FROM {ns}.kinds WHERE job = $1)",
    "is_upcoming": """(
        EXISTS (SELECT 1 FROM {ns}.waiting AS w WHERE w.line = r.line AND w.ready_at = r.ready_at AND w.id = r.id)
        OR EXISTS (SELECT 1 FROM {ns}.entrants AS w WHERE w.line = r.line AND w.ready_at = r.ready_at AND w.id = r.id)
        OR EXISTS (SELECT 1 FROM {ns}.held AS w WHERE w.seq = r.seq AND w.hold = 'place')
    )""",
    "is_retired": "retired",
    "member": "member = 1",
    "claim_is_free": "true",
    "with_newest_lines": """
        LEFT JOIN {ns}.claims AS c ON c.seq = r.seq
        LEFT JOIN {ns}.ended AS e ON e.seq = r.seq
        LEFT JOIN {ns}.run_lines AS l ON l.seq = r.seq AND (l.number, l.fence) = (
            SELECT number, fence FROM {ns}.run_lines WHERE seq = r.seq ORDER BY number DESC, fence DESC LIMIT 1
        )
    """,
    "entered": "{ns}.waiting",
    "entrants": "{ns}.entrants",
    "all_waiting": f"({_ALL_WAITING.format('seq')}) AS w",
    "into_line": f"{{ns}}.waiting ({_WAITING}) SELECT {_WAITING}",
    "into_entrants": f"{{ns}}.entrants ({_WAITING}) SELECT {_WAITING}",
    "into_held": f"""{{ns}}.held (hold, rank, ready_at, id, seq, line, kind, "group", member)
        SELECT $2, {_URGENCY}, ready_at, id, seq, line, kind, "group", $3""",
    "leave_line": """
        DELETE FROM {ns}.waiting WHERE (line, ready_at, id) IN (
            SELECT line, ready_at, id FROM {ns}.runs WHERE seq = ANY($1::bigint[])
        )
        RETURNING seq
    """,
    "leave_entrants": """
        DELETE FROM {ns}.entrants WHERE (line, ready_at, id) IN (
            SELECT line, ready_at, id FROM {ns}.runs WHERE seq = ANY($1::bigint[])
        )
        RETURNING seq
    """,
    "without_start_by": "json_remove(extra, '$.start_by')",
    "expire_keys": """
        DELETE FROM {ns}.unique_keys WHERE (handler, key) IN (
            SELECT handler, key FROM {ns}.unique_keys WHERE until <= $1 ORDER BY until LIMIT $2
        )
        RETURNING 1
    """,
    "free_keys": "DELETE FROM {ns}.keys WHERE seq = ANY($1::bigint[])",
    "totals_key": "state",
    "statistics_key": "job",
    # 0.1.0 uses only the expiry.
    "released": "holder = '', expires_at = 0",
    # A node's metrics are part of its record.
    "metrics": "NULL",
    "no_metrics": "",
    "set_metrics": """
        node = CASE WHEN $4 IS NULL OR NOT json_valid(node) THEN node ELSE json_set(node, '$.metrics', json($4)) END
    """,
    # Scan all waiting runs: an index by kind would slow down every claim for a rare question.
    "waiting_of": f"""
        SELECT seq, "group" FROM ({_ALL_WAITING.format('seq, kind, "group"')})
        WHERE kind IN (SELECT number FROM {{ns}}.kinds WHERE job = $1) ORDER BY seq
    """,
    "waiting_for": """
        SELECT w.seq, w."group" FROM {ns}.queues AS q
        CROSS JOIN (
            SELECT line, ready_at, id, seq, "group" FROM {ns}.waiting
            UNION ALL
            SELECT line, ready_at, id, seq, "group" FROM {ns}.entrants
        ) AS w ON w.line BETWEEN q.number * 1000 AND q.number * 1000 + 999
        WHERE substr(q.name, -length($1) - 1) = '@' || $1
        ORDER BY w.line, w.ready_at, w.id LIMIT $2
    """,
    "node_depths": f"""
        SELECT q.name,
            (SELECT count(*) FROM {{ns}}.waiting WHERE {_IN_QUEUE})
            + (SELECT count(*) FROM {{ns}}.entrants WHERE {_IN_QUEUE}),
            (SELECT count(*) FROM {{ns}}.waiting WHERE {_IN_QUEUE} AND ready_at <= $1)
            + (SELECT count(*) FROM {{ns}}.entrants WHERE {_IN_QUEUE} AND ready_at <= $1)
        FROM {{ns}}.queues AS q WHERE instr(q.name, '@') > 0 AND (
            EXISTS (SELECT 1 FROM {{ns}}.waiting WHERE {_IN_QUEUE})
            OR EXISTS (SELECT 1 FROM {{ns}}.entrants WHERE {_IN_QUEUE})
        )
    """,
    "first_ready": """
        SELECT k.job, min(w.first) FROM (
            SELECT kind, min(ready_at) AS first FROM {ns}.waiting GROUP BY kind
            UNION ALL
            SELECT kind, min(ready_at) FROM {ns}.entrants GROUP BY kind
            UNION ALL
            SELECT kind, min(ready_at) FROM {ns}.held WHERE hold = $1 GROUP BY kind
        ) AS w
        INNER JOIN {ns}.kinds AS k ON k.number = w.kind
        GROUP BY k.job
    """,
    "waiting_lines": f"""
        WITH RECURSIVE {_LINES.format("waiting")}, {_LINES.format("entrants")}
        SELECT line * 2 FROM waiting_lines WHERE line IS NOT NULL
        UNION ALL
        SELECT line * 2 + 1 FROM entrants_lines WHERE line IS NOT NULL
    """,
    "line_depths": f"""
        SELECT key, {_QUEUE}, due, later, oldest
        FROM ({_LINE_DEPTHS.format("waiting", 0)} UNION ALL {_LINE_DEPTHS.format("entrants", 1)})
    """,
    "queue": _QUEUE,
    "renamed": "{ns}.",
}

_TRANSLATIONS = [
    (re.compile(pattern), text)
    for pattern, text in (
        (r"= ANY\(\$(\d+)::\w+\[\]\)", r"IN (SELECT value FROM json_each($\1))"),
        (r"= ANY\(ARRAY\((SELECT [^()]*)\)\)", r"IN (\1)"),
        (r"unnest\(\$(\d+)::\w+\[\]\) AS (\w+)", r"(SELECT value AS \2 FROM json_each($\1))"),
        (r"::\w+", ""),
        (r"\$(\d+)", r"?\1"),
        (r"\s+FOR (UPDATE|SHARE)( SKIP LOCKED)?\b", ""),
        (r"\bgreatest\(", "max("),
        (r"\bleast\(", "min("),
        (r"\bstrpos\(", "instr("),
        (r"\{ns\}\.unique_keys\b", "{ns}_unique"),
        (r"\{ns\}\.", "{ns}_"),
    )
]

_ROW = re.compile(r"\{rows:(.*?)\}", re.DOTALL)
_OWN = re.compile(r"\?(?!\d)")


class SqliteTexts(Texts):
    """Statements for one namespace."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace, WORDS)
        self._multiplied: dict[tuple[str, int], str] = {}
        self._declared: dict[int, tuple[Many, str]] = {}

    def translated(self, sql: str) -> str:
        for pattern, text in _TRANSLATIONS:
            sql = pattern.sub(text, sql)
        return sql.replace("{ns}", self.namespace)

    def multiplied(self, sql: str, times: int) -> str:
        """The statement with `{rows:(?, ?1)}` written `times` times; numbered parameters stand for all rows."""
        text = self._multiplied.get((sql, times))
        if text is None:
            text = self._multiplied[sql, times] = self._multiply(sql, times)
        return text

    def _multiply(self, sql: str, times: int) -> str:
        found = _ROW.search(sql)
        assert found is not None
        template = found.group(1)
        shared = max((int(number) for number in re.findall(r"\?(\d+)", template)), default=0)
        numbers = iter(range(shared + 1, 1 << 20))
        rows = [_OWN.sub(lambda _: f"?{next(numbers)}", template) for _ in range(times)]
        return self[sql[: found.start()] + ", ".join(rows) + sql[found.end() :]]

    def of(self, statement: Many) -> str:
        """The text of a statement on many rows, as `multiplied` takes it; for a deletion, on one."""
        known = self._declared.get(id(statement))
        if known is None:
            known = self._declared[id(statement)] = (statement, _declared(statement))
        return known[1]


def _declared(statement: Many) -> str:
    match statement:
        case Insert():
            present = [column.quoted for column in statement.columns if not _is_absent(statement.table, column.name)]
            marks = ", ".join("?" * len(present))
            head = f"INSERT INTO {{ns}}.{statement.table} AS t ({', '.join(present)})"
            return f"{head} VALUES {{rows:({marks})}} {statement.then}"
        case Update():
            places = enumerate([*statement.keys, *statement.columns], 1)
            named = {column.name: f"i.column{place}" for place, column in places}
            changes = [f"{column.quoted} = {named[column.name]}" for column in statement.columns]
            settings = ", ".join([*changes, *([statement.constants] if statement.constants else [])])
            same = [f"t.{column.quoted} = {named[column.name]}" for column in statement.keys]
            where = " AND ".join([*same, *([statement.condition] if statement.condition else [])])
            marks = ", ".join("?" * len(named))
            rows = f"(VALUES {{rows:({marks})}}) AS i"
            answer = f" RETURNING {statement.keys[0].quoted}" if statement.answers else ""
            return f"UPDATE {{ns}}.{statement.table} AS t SET {settings} FROM {rows} WHERE {where}{answer}"
        case Delete():
            where = " AND ".join(f"{column.quoted} = ?" for column in statement.keys)
            return f"DELETE FROM {{ns}}.{statement.table} WHERE {where}"


_ABSENT = {
    "totals": frozenset({"node"}),
    "statistics": frozenset({"node"}),
    "ended": frozenset({"story"}),
}


def _is_absent(table: str, column: str) -> bool:
    return column in _ABSENT.get(table, ())


def present(statement: Insert, row: Sequence[Any]) -> list[Any]:
    """The values of a row for the columns that its table has here."""
    return [
        value
        for column, value in zip(statement.columns, row, strict=True)
        if not _is_absent(statement.table, column.name)
    ]
