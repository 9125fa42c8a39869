"""A unit of work on PostgreSQL, and the texts of its statements.

A namespace is a schema. Lists travel as arrays. The connection may be one of ours or, in `within`, the user's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from duly.backends.codec import run_columns
from duly.backends.sql.unit import Delete, Dialect, Insert, Locks, Many, Memory, Row, Texts, Unit, Update
from duly.model import to_micros
from duly.ports.clock import TOLERANCE

if TYPE_CHECKING:
    from duly.backends.postgres.connection import Connection, Connections

_LONGEST = 63  # characters in an identifier

# The instant of a statement: $1 where a test gives one, else the server's, read when the statement runs. A
# negative $1 is what the caller expects the server's clock to show: if that differs by more than a second, one of them
# has jumped, and the expected time counts, until the caller accepts the server's (`StoreClock`).
_SERVER = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_NOW = f"""(CASE
    WHEN $1::bigint >= 0 THEN $1::bigint
    WHEN abs({_SERVER} + $1::bigint) > {round(TOLERANCE * 1_000_000)} THEN -$1::bigint
    ELSE {_SERVER}
END)"""

_WAITING = 'seq, line, rank, ready_at, id, "group"'
# Where a waiting run `w` is, by its record `r`.
HERE = "w.line = r.line AND w.rank = r.rank AND w.ready_at = r.ready_at AND w.id = r.id"
# Every line and rank that has runs, found by a loose index scan.
LINES = """lines AS (
    (SELECT line, rank FROM {ns}.waiting ORDER BY line, rank LIMIT 1)
    UNION ALL
    SELECT n.line, n.rank FROM lines AS l CROSS JOIN LATERAL (
        SELECT line, rank FROM {ns}.waiting WHERE (line, rank) > (l.line, l.rank) ORDER BY line, rank LIMIT 1
    ) AS n
)"""

WORDS = {
    # A run with its state: it is in exactly one of the joined tables.
    "run": run_columns(
        {
            "limit": "NULL::int",
            "when_full": "NULL::text",
            "entering": "w.entering",
            "hold": "h.hold",
            "member": "h.member",
            "claim.reason": "NULL::text",
            "claim.reason_json": "c.reason",
            "ended.failures": "NULL::int",
            "ended.losses": "NULL::int",
            "ended.reason": "NULL::text",
            "ended.progress": "NULL::text",
            "ended.failure": "NULL::text",
        }
    ),
    # Each row is looked up by its key, whatever the planner assumes about the sizes of tables: a plan that was made
    # while they were empty is kept for as long as the connection.
    "standing": f"""
        LEFT JOIN LATERAL (SELECT * FROM {{ns}}.waiting AS w WHERE {HERE} LIMIT 1) AS w ON true
        LEFT JOIN LATERAL (SELECT * FROM {{ns}}.held AS at WHERE at.seq = r.seq LIMIT 1) AS h ON true
        LEFT JOIN LATERAL (SELECT * FROM {{ns}}.claims AS at WHERE at.seq = r.seq LIMIT 1) AS c ON true
        LEFT JOIN LATERAL (SELECT * FROM {{ns}}.ended AS at WHERE at.seq = r.seq LIMIT 1) AS e ON true
    """,
    "entry": "r.extra, NULL::int, NULL::text",
    "line": "r.line",
    "line_named": "$2::text",
    "lines": LINES,
    "clock": f"clock AS MATERIALIZED (SELECT {_NOW} AS now)",
    "now": _NOW,
    # The urgency of a run in line, scheduled or not: a smaller number is more urgent (`codec.urgency_of`).
    "urgency": "CASE WHEN rank < 400 THEN rank + 400 ELSE rank END",
    "true": "true",
    "false": "false",
    "paused": "paused",
    "plannable": "plannable",
    # By its key, as above: a slice of jobs must not make the planner read all plans.
    "with_plan": "CROSS JOIN LATERAL (SELECT * FROM {ns}.plans AS at WHERE at.name = j.name LIMIT 1) AS p",
    "needed_handler": '({ns}.needed_handler(record)) COLLATE "C"',
    "is_retired": "{ns}.is_retired(record)",
    "job": "r.job",
    "jobs_named": "unnest($1::text[]) AS j (job)",
    "run_of_job": "r.job = j.job",
    "run_of_one_job": "r.job = $1",
    "is_upcoming": f"""(
        EXISTS (SELECT 1 FROM {{ns}}.waiting AS w WHERE {HERE})
        OR EXISTS (SELECT 1 FROM {{ns}}.held AS w WHERE w.seq = r.seq AND w.hold = 'place')
    )""",
    "member": "member",
    # Nobody else has locked the claim `t`.
    "claim_is_free": "t.seq IN (SELECT at.seq FROM {ns}.claims AS at WHERE at.seq = t.seq FOR UPDATE SKIP LOCKED)",
    "with_newest_lines": """
        LEFT JOIN LATERAL (SELECT * FROM {ns}.claims AS at WHERE at.seq = r.seq LIMIT 1) AS c ON true
        LEFT JOIN LATERAL (SELECT * FROM {ns}.ended AS at WHERE at.seq = r.seq LIMIT 1) AS e ON true
        LEFT JOIN LATERAL (
            SELECT * FROM {ns}.run_lines AS at WHERE at.seq = r.seq ORDER BY at.number DESC, at.fence DESC LIMIT 1
        ) AS l ON true
    """,
    "entered": "(SELECT * FROM {ns}.waiting WHERE NOT entering)",
    "entrants": "(SELECT * FROM {ns}.waiting WHERE entering)",
    "all_waiting": "(SELECT seq FROM {ns}.waiting UNION ALL SELECT seq FROM {ns}.held) AS w",
    "into_line": f"{{ns}}.waiting ({_WAITING}, entering) SELECT {_WAITING}, false",
    "into_entrants": f"{{ns}}.waiting ({_WAITING}, entering) SELECT {_WAITING}, true",
    "into_held": """{ns}.held (seq, line, rank, ready_at, id, "group", member, hold)
        SELECT seq, line, {urgency}, ready_at, id, "group", $3::bool, $2::text""",
    "leave_line": f"""
        DELETE FROM {{ns}}.waiting AS w USING {{ns}}.runs AS r
        WHERE r.seq = ANY($1::bigint[]) AND {HERE} AND NOT w.entering
        RETURNING w.seq
    """,
    "leave_entrants": f"""
        DELETE FROM {{ns}}.waiting AS w USING {{ns}}.runs AS r
        WHERE r.seq = ANY($1::bigint[]) AND {HERE} AND w.entering
        RETURNING w.seq
    """,
    "without_start_by": "(extra::jsonb - 'start_by')::text",
    "free_keys": """
        DELETE FROM {ns}.keys WHERE id = ANY(ARRAY(SELECT id FROM {ns}.runs WHERE seq = ANY($1::bigint[])))
    """,
    "expire_keys": """
        WITH old AS MATERIALIZED (
            SELECT handler, key FROM {ns}.unique_keys WHERE until <= $1 ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED
        )
        DELETE FROM {ns}.unique_keys AS u USING old WHERE u.handler = old.handler AND u.key = old.key
        RETURNING 1
    """,
    # By node, so that nodes do not wait for each other.
    "totals_key": "state, node",
    "statistics_key": "job, node",
    "released": "holder = ''",
    "metrics": "metrics",
    "no_metrics": ", metrics = NULL",
    "set_metrics": "metrics = coalesce($4, metrics)",
    # Scans all waiting runs: rarely needed.
    "waiting_of": """
        SELECT r.seq, r."group" FROM {ns}.runs AS r
        WHERE r.job = $1 AND r.seq IN (SELECT seq FROM {ns}.waiting UNION ALL SELECT seq FROM {ns}.held)
        ORDER BY r.seq
    """,
    # LATERAL, because a plain join reads all waiting runs: the server cannot know that few lines match.
    "waiting_for": """
        WITH RECURSIVE {lines}
        SELECT w.seq, w."group" FROM lines AS l CROSS JOIN LATERAL (
            SELECT seq, "group", ready_at, id FROM {ns}.waiting
            WHERE line = l.line AND rank = l.rank ORDER BY ready_at, id LIMIT $2
        ) AS w
        WHERE strpos(l.line, '@') > 0 AND split_part(l.line, '@', 2) = $1
        ORDER BY l.line, l.rank, w.ready_at, w.id LIMIT $2
    """,
    "node_depths": """
        WITH RECURSIVE {clock}, {lines}
        SELECT l.line, n.number, n.due FROM clock, lines AS l CROSS JOIN LATERAL (
            SELECT count(*) AS number, count(*) FILTER (WHERE w.ready_at <= clock.now) AS due
            FROM {ns}.waiting AS w WHERE w.line = l.line AND w.rank = l.rank
        ) AS n
        WHERE strpos(l.line, '@') > 0
    """,
    "first_ready": """
        SELECT r.job, min(w.ready_at)
        FROM (SELECT seq, ready_at FROM {ns}.waiting UNION ALL SELECT seq, ready_at FROM {ns}.held WHERE hold = $1) AS w
        INNER JOIN {ns}.runs AS r ON r.seq = w.seq
        GROUP BY r.job
    """,
    "waiting_lines": "WITH RECURSIVE {lines} SELECT rank || ' ' || line FROM lines",
    # The order makes the server read the index and stop at the limit.
    "line_depths": """
        WITH {clock}
        SELECT k.key, split_part(k.line, '@', 1), due.number, later.number, due.oldest
        FROM clock, (
            SELECT key, split_part(key, ' ', 1)::int AS rank, substr(key, strpos(key, ' ') + 1) COLLATE "C" AS line
            FROM unnest($3::text[]) AS key
        ) AS k
        CROSS JOIN LATERAL (
            SELECT count(*) AS number, min(ready_at) AS oldest FROM (
                SELECT ready_at FROM {ns}.waiting AS w
                WHERE w.line = k.line AND w.rank = k.rank AND w.ready_at <= clock.now
                ORDER BY w.ready_at, w.id LIMIT $2
            ) AS w
        ) AS due
        CROSS JOIN LATERAL (
            SELECT count(*) AS number FROM (
                SELECT 1 FROM {ns}.waiting AS w
                WHERE w.line = k.line AND w.rank = k.rank AND w.ready_at > clock.now
                ORDER BY w.ready_at, w.id LIMIT $2
            ) AS w
        ) AS later
    """,
    "queue": "split_part(line, '@', 1)",
    "renamed": "",
}

# Columns that a table does not have here: how a run ended is one text.
_ABSENT = {"ended": frozenset({"failures", "losses", "cancelling", "reason", "progress", "failure"})}

_SERVER_CLOCK = f"SELECT {_SERVER}"
_LOCK_GROUPS = "SELECT {ns}.lock_groups($1::text[])"
_GROUPS_OF = 'SELECT DISTINCT "group" FROM {ns}.runs WHERE id = ANY($1::text[]) AND "group" IS NOT NULL'
_LOCK_CLAIMS = """
SELECT seq FROM {ns}.claims
WHERE seq = ANY(ARRAY(SELECT seq FROM {ns}.runs WHERE id = ANY($1::text[]))) ORDER BY seq FOR UPDATE
"""
_LOCK_ONE = "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))"
_LOCK_MANY = "SELECT pg_advisory_xact_lock(hashtextextended('duly many ' || $1, 0))"
_NOTIFY = "SELECT pg_notify({channel}, $1)"


class PostgresTexts(Texts):
    """Statements for one namespace. `{channel}` is the channel of its notifications as a literal."""

    def __init__(self, namespace: str) -> None:
        self.schema = quoted(namespace)
        self.channel = channel_of(namespace)
        super().__init__(namespace, WORDS | {"ns": self.schema, "channel": f"'{self.channel}'"})
        self._declared: dict[int, tuple[Many, str]] = {}

    def of(self, statement: Many) -> str:
        """The text of a statement on many rows, with a parameter for each column."""
        known = self._declared.get(id(statement))
        if known is None:
            known = self._declared[id(statement)] = (statement, self[_declared(statement)])
        return known[1]


def _declared(statement: Many) -> str:
    match statement:
        case Insert():
            present = [column for column in statement.columns if not _is_absent(statement.table, column.name)]
            arrays = ", ".join(f"${place}::{column.type}[]" for place, column in enumerate(present, 1))
            names = ", ".join(column.quoted for column in present)
            head = f"INSERT INTO {{ns}}.{statement.table} AS t ({names})"
            return f"{head} SELECT * FROM unnest({arrays}) {statement.then}"
        case Update():
            return _changed(statement, f"UPDATE {{ns}}.{statement.table} AS t SET {_settings(statement)} FROM")
        case Delete():
            return _changed(statement, f"DELETE FROM {{ns}}.{statement.table} AS t USING")


def _settings(statement: Update) -> str:
    places = enumerate(statement.columns, len(statement.keys) + 1)
    changes = [f"{column.quoted} = i.c{place}" for place, column in places]
    return ", ".join([*changes, *([statement.constants] if statement.constants else [])])


def _changed(statement: Update | Delete, head: str) -> str:
    given = [*statement.keys, *(statement.columns if isinstance(statement, Update) else ())]
    arrays = ", ".join(f"${place}::{column.type}[]" for place, column in enumerate(given, 1))
    names = ", ".join(f"c{place}" for place in range(1, len(given) + 1))
    first = statement.keys[0]
    same = [f"t.{column.quoted} = i.c{place}" for place, column in enumerate(statement.keys, 1)]
    condition = [statement.condition] if isinstance(statement, Update) and statement.condition else []
    where = " AND ".join([f"t.{first.quoted} = ANY($1::{first.type}[])", *same, *condition])
    return f"{head} unnest({arrays}) AS i ({names}) WHERE {where} RETURNING t.{first.quoted}"


def _is_absent(table: str, column: str) -> bool:
    return column in _ABSENT.get(table, ())


def quoted(name: str) -> str:
    """A quoted SQL identifier, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def channel_of(namespace: str) -> str:
    """The channel of a namespace's notifications; a name that would be too long is abbreviated."""
    whole = f"duly.{namespace}"
    return whole if len(whole) <= _LONGEST else f"duly.{hashlib.sha256(namespace.encode()).hexdigest()[:32]}"


class PostgresUnit(Unit):
    """Wraps one connection for the length of a piece of work."""

    def __init__(self, connection: Connection, connections: Connections, memory: Memory, dialect: Dialect[Any]) -> None:
        super().__init__()
        self._connection = connection
        self._connections = connections
        self._texts = connections.texts
        self.dialect = dialect
        self.memory = memory
        self.namespace = connections.texts.namespace
        self.locks = PostgresLocks(self)

    # --- statements

    async def all(self, sql: str, *parameters: Any) -> list[Row]:
        return await self._connection.fetch(self._texts[sql], *parameters)

    async def one(self, sql: str, *parameters: Any) -> Row | None:
        return await self._connection.fetchrow(self._texts[sql], *parameters)

    async def run(self, sql: str, *parameters: Any) -> None:
        await self._connection.fetch(self._texts[sql], *parameters)

    async def insert(self, statement: Insert, rows: Sequence[Sequence[Any]]) -> list[Row]:
        if not rows:
            return []
        present = [
            place for place, column in enumerate(statement.columns) if not _is_absent(statement.table, column.name)
        ]
        arrays = [[row[place] for row in rows] for place in present]
        return await self._connection.fetch(self._texts.of(statement), *arrays)

    async def change(self, statement: Update | Delete, rows: Sequence[Sequence[Any]]) -> set[Any]:
        if not rows:
            return set()
        arrays = [list(column) for column in zip(*rows, strict=True)]
        return {row[0] for row in await self._connection.fetch(self._texts.of(statement), *arrays)}

    # --- the clock

    def moment(self, now: datetime | None) -> int | None:
        return self._connections.moment(now)

    async def at(self, now: datetime | None) -> int:
        """By the server's current clock, not by the start of the transaction."""
        if now is not None:
            return to_micros(now)
        row = await self.one("SELECT {now}", self.moment(None))
        assert row is not None
        return int(row[0])

    async def shown_at(self, now: datetime | None) -> int:
        clock = self._connections.clock
        return clock.micros() if now is None and clock.known else await self.at(now)

    async def server_clock(self) -> int:
        """What the server's clock shows, accepted or not."""
        row = await self.one(_SERVER_CLOCK)
        assert row is not None
        return int(row[0])

    # --- waking others

    async def notify(self) -> None:
        """Wake others at commit for what has happened."""
        if self.rings:
            await self.run(_NOTIFY, str(self.rings))


class PostgresLocks(Locks):
    """Locks that the server holds until the transaction ends."""

    def __init__(self, unit: PostgresUnit) -> None:
        self._unit = unit

    async def one(self, what: str) -> None:
        await self._unit.run(_LOCK_ONE, f"{self._unit.namespace} {what}")

    async def groups(self, groups: Iterable[str | None]) -> None:
        if names := [group for group in groups if group is not None]:
            await self._unit.run(_LOCK_GROUPS, names)

    async def groups_of(self, run_ids: Iterable[str]) -> None:
        await self.groups([row[0] for row in await self._unit.all(_GROUPS_OF, list(run_ids))])

    async def claims(self, run_ids: Sequence[str]) -> None:
        await self._unit.run(_LOCK_CLAIMS, list(run_ids))

    async def many(self, number: int) -> None:
        if number > 1:
            await self._unit.run(_LOCK_MANY, self._unit.namespace)
