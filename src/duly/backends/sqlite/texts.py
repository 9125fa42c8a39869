"""SQLite's texts of the statements in `backends.sql`, which are written in the words of PostgreSQL.

A namespace is the beginning of a table's name. Lists travel as one JSON array, so that one prepared statement serves
every length and the whole list is worked off in one step without giving the interpreter lock away in between.

A run's line is a number here: that of its queue (`interning`) times 1000, plus its rank; job, handler, policies and the
rule of the group are those of its kind. Runs that wait to enter their group have a table of their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from duly.backends.codec import run_columns
from duly.backends.sql.unit import Delete, Insert, Many, Texts, Update

_WAITING = 'line, ready_at, id, seq, kind, "group"'
_URGENCY = "CASE WHEN line % 1000 < 400 THEN line % 1000 + 400 ELSE line % 1000 END"
_ALL_WAITING = (
    "SELECT {0} FROM {{ns}}.waiting UNION ALL SELECT {0} FROM {{ns}}.entrants UNION ALL SELECT {0} FROM {{ns}}.held"
)
# What waits in a table, by line: due, not yet due, running, and the first ready time of what is due. ?1 is now.
_DEPTHS = """
SELECT line, sum(ready_at <= $1) AS due, sum(ready_at > $1) AS later, 0 AS running,
    min(CASE WHEN ready_at <= $1 THEN ready_at END) AS oldest
FROM {{ns}}.{} GROUP BY line
"""

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
    "member": "member = 1",
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
    # 0.1.0 goes by the expiry alone.
    "released": "holder = '', expires_at = 0",
    # A node's metrics are part of its record.
    "metrics": "NULL",
    "no_metrics": "",
    "set_metrics": """
        node = CASE WHEN $4 IS NULL OR NOT json_valid(node) THEN node ELSE json_set(node, '$.metrics', json($4)) END
    """,
    # Walk over all that waits: an index by kind would make every claim pay for what few people ask.
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
        SELECT q.name, sum(w.due + w.later), sum(w.due) FROM {{ns}}.queues AS q
        CROSS JOIN ({_DEPTHS.format("waiting")} UNION ALL {_DEPTHS.format("entrants")}) AS w
            ON w.line BETWEEN q.number * 1000 AND q.number * 1000 + 999
        WHERE instr(q.name, '@') > 0
        GROUP BY q.name
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
    "depths": f"""
        SELECT substr(q.name, 1, CASE instr(q.name, '@') WHEN 0 THEN length(q.name) ELSE instr(q.name, '@') - 1 END),
            w.due, w.later, w.running, w.oldest
        FROM (
            {_DEPTHS.format("waiting")} UNION ALL {_DEPTHS.format("entrants")}
            UNION ALL
            SELECT line, 0, count(*), 0, NULL FROM {{ns}}.held GROUP BY line
            UNION ALL
            SELECT r.line, 0, 0, count(*), NULL
            FROM {{ns}}.claims AS c CROSS JOIN {{ns}}.runs AS r ON r.seq = c.seq GROUP BY r.line
        ) AS w
        INNER JOIN {{ns}}.queues AS q ON q.number = w.line / 1000
    """,
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
