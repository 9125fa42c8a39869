"""The texts of statements for one namespace, each made once."""

from __future__ import annotations

import re

# A run with everything that tells where it stands: it is in exactly one of the tables that are joined.
RUN = """
r.seq, r.id, r.kind, r.line, r.due, r.ready_at, r.created_at, r."group", r.extra, r.until, r.payload,
h.hold, h.member, n.seq,
c.fence, c.node, c.request, c.started_at, c.expires_at, c.cancelling, c.reason, c.progress,
e.state, e.finished_at, e.fence, e.node, e.request, e.started_at, e.failures, e.losses, e.cancelling, e.reason,
e.progress, e.failure, e.result
"""
STANDING = """
LEFT JOIN {ns}_held AS h ON h.seq = r.seq
LEFT JOIN {ns}_entrants AS n ON n.line = r.line AND n.ready_at = r.ready_at AND n.id = r.id
LEFT JOIN {ns}_claims AS c ON c.seq = r.seq
LEFT JOIN {ns}_ended AS e ON e.seq = r.seq
"""

_ROW = re.compile(r"\{rows:(.*?)\}", re.DOTALL)
_OWN = re.compile(r"\?(?!\d)")


class SqlTemplates(dict[str, str]):
    """From a statement to its text: `{ns}` is the namespace, `{run}` a run's columns, `{standing}` their joins."""

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self.namespace = namespace
        self._multiplied: dict[tuple[str, int], str] = {}

    def __missing__(self, sql: str) -> str:
        whole = sql.replace("{run}", RUN).replace("{standing}", STANDING)
        text = self[sql] = whole.replace("{ns}", self.namespace)
        return text

    def multiplied(self, sql: str, times: int) -> str:
        """The statement with `{rows:(?, ?1)}` written so many times; numbered parameters stand for all rows."""
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
