"""The texts of statements for one namespace, each made once."""

from __future__ import annotations

import hashlib

from duly.ports.clock import TOLERANCE

_LONGEST = 63  # signs in an identifier

# A run with everything that tells where it stands: it is in exactly one of the tables that are joined.
RUN = """
r.seq, r.id, r.job, r.handler, r.line, r.rank, r.cause, r.due, r.ready_at, r.created_at, r."group", r.policy, r.extra,
r.payload, r.until,
w.entering, h.hold, h.member,
c.fence, c.node, c.request, c.started_at, c.expires_at, c.cancelling, c.reason, c.progress,
e.state, e.finished_at, e.fence, e.node, e.request, e.started_at, e.story, e.result
"""
# Each row is looked up by its key, whatever the planner believes about the sizes of tables: a plan that was made while
# they were empty is kept for as long as the connection.
STANDING = """
LEFT JOIN LATERAL (
    SELECT * FROM {ns}.waiting AS at
    WHERE at.line = r.line AND at.rank = r.rank AND at.ready_at = r.ready_at AND at.id = r.id LIMIT 1
) AS w ON true
LEFT JOIN LATERAL (SELECT * FROM {ns}.held AS at WHERE at.seq = r.seq LIMIT 1) AS h ON true
LEFT JOIN LATERAL (SELECT * FROM {ns}.claims AS at WHERE at.seq = r.seq LIMIT 1) AS c ON true
LEFT JOIN LATERAL (SELECT * FROM {ns}.ended AS at WHERE at.seq = r.seq LIMIT 1) AS e ON true
"""
# The instant of a statement: $1 where a test gives one, else the server's, read when the statement is at work. A
# negative $1 is what the caller expects the server's clock to show: if that differs by more than a second, one of them
# has jumped, and the expected time counts, until the caller believes the server (`StoreClock`).
_SERVER = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
NOW = f"""CASE
    WHEN $1::bigint >= 0 THEN $1::bigint
    WHEN abs({_SERVER} + $1::bigint) > {round(TOLERANCE * 1_000_000)} THEN -$1::bigint
    ELSE {_SERVER}
END"""
CLOCK = f"clock AS MATERIALIZED (SELECT {NOW} AS now)"


# How urgent a run in line is, the smaller, the more: runs of schedules have ranks of their own (`codec.rank_of`).
URGENCY = "CASE WHEN rank < 400 THEN rank + 400 ELSE rank END"


class SqlTemplates(dict[str, str]):
    """From a statement to its text: `{ns}` is the namespace's schema, quoted; `{bell}` its channel as a literal.

    `{run}` are a run's columns and `{standing}` their joins; `{now}` is the time, and `{clock}` a CTE that tells it;
    `{urgency}` is made of the column `rank`.
    """

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self.namespace = namespace
        self.schema = quoted(namespace)
        self.channel = channel_of(namespace)

    def __missing__(self, sql: str) -> str:
        whole = sql.replace("{run}", RUN).replace("{standing}", STANDING).replace("{clock}", CLOCK)
        whole = whole.replace("{urgency}", URGENCY)
        whole = whole.replace("{now}", f"({NOW})")
        text = self[sql] = whole.replace("{ns}", self.schema).replace("{bell}", f"'{self.channel}'")
        return text


def quoted(name: str) -> str:
    """An identifier as SQL takes it, whatever signs it has."""
    return '"' + name.replace('"', '""') + '"'


def channel_of(namespace: str) -> str:
    """The channel on which a namespace's bell rings; a name that would be too long is abbreviated."""
    whole = f"duly.{namespace}"
    return whole if len(whole) <= _LONGEST else f"duly.{hashlib.sha256(namespace.encode()).hexdigest()[:32]}"
