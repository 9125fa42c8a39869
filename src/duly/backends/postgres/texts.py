"""The texts of statements for one namespace, each made once."""

from __future__ import annotations

import hashlib

_LONGEST = 63  # signs in an identifier

# A run with everything that tells where it stands: it is in exactly one of the tables that are joined.
RUN = """
r.seq, r.id, r.job, r.handler, r.line, r.rank, r.cause, r.due, r.ready_at, r.created_at, r."group", r.policy, r.extra,
r.payload, r.until,
w.entering, h.hold, h.member,
c.fence, c.node, c.request, c.started_at, c.expires_at, c.cancelling, c.reason, c.progress,
e.state, e.finished_at, e.fence, e.node, e.request, e.started_at, e.story, e.result
"""
STANDING = """
LEFT JOIN {ns}.waiting AS w ON w.line = r.line AND w.rank = r.rank AND w.ready_at = r.ready_at AND w.id = r.id
LEFT JOIN {ns}.held AS h ON h.seq = r.seq
LEFT JOIN {ns}.claims AS c ON c.seq = r.seq
LEFT JOIN {ns}.ended AS e ON e.seq = r.seq
"""
# The instant of a statement: $1 where a test gives one, else the server's, read when the statement is at work.
CLOCK = """clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
)"""


class Texts(dict[str, str]):
    """From a statement to its text: `{ns}` is the namespace's schema, quoted; `{bell}` its channel as a literal.

    `{run}` are a run's columns and `{standing}` their joins; `{clock}` is the CTE that tells the time.
    """

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self.namespace = namespace
        self.schema = quoted(namespace)
        self.channel = channel_of(namespace)

    def __missing__(self, sql: str) -> str:
        whole = sql.replace("{run}", RUN).replace("{standing}", STANDING).replace("{clock}", CLOCK)
        text = self[sql] = whole.replace("{ns}", self.schema).replace("{bell}", f"'{self.channel}'")
        return text


def quoted(name: str) -> str:
    """An identifier as SQL takes it, whatever signs it has."""
    return '"' + name.replace('"', '""') + '"'


def channel_of(namespace: str) -> str:
    """The channel on which a namespace's bell rings; a name that would be too long is abbreviated."""
    whole = f"duly.{namespace}"
    return whole if len(whole) <= _LONGEST else f"duly.{hashlib.sha256(namespace.encode()).hexdigest()[:32]}"
