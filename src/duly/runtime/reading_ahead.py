"""Reading ahead: reads scheduled runs shortly before they are due, so that only ids are sent at the due time.

What is read stays where it is in the store. At the due time the worker asks the store to begin the runs it has read
(`Queue.begin`), and the store decides about each as about a claim. A run that was changed meanwhile, or that another
node has, does not begin here; a run that was not read is claimed as usual. Nodes divide what they read by their rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime

from duly.model import Claim, Role, Run, seconds_between, shift
from duly.ports import Backend, Queue
from duly.runtime.environment import Environment, NodeService
from duly.runtime.handler import Catalog
from duly.runtime.next_due import NextDue

_LEAD = 1.0  # how long before their time runs are read
_SLICE = 500  # in one call: a server must answer others in between
_MOST = 20_000  # that a node keeps
_FEW = 8
_STALE = 5.0
_LOOK_AROUND = 5.0  # how old the list of nodes may be


class ReadAhead(NodeService):
    """The runs that this node has read, in order."""

    name = "read ahead"

    def __init__(self, env: Environment, queue: Queue, backend: Backend, catalog: Catalog, next_due: NextDue) -> None:
        super().__init__(env, next_due.soon)
        self._node_id = env.card.id
        self._able = backend.capabilities.reads_ahead
        self._queue = queue
        self._coordinator = backend.coordinator
        self._catalog = catalog
        self._next_due = next_due
        self._runs: deque[Run] = deque()
        self._claimed: set[str] = set()
        self._refused = ""
        self._read_until: datetime | None = None
        self._rank = (0, 1)
        self._look_at = 0.0

    async def tick(self) -> float:
        longest = self._live.config.safety_tick
        due = self._next_due.at
        if due is None or not self._enabled or (self._read_until is not None and due <= self._read_until):
            return longest
        now = self._clock.now()
        left = seconds_between(now, due)
        if left > _LEAD:
            return min(left - _LEAD, longest)
        await self._look_around()
        await self._read(shift(now, _LEAD))
        return 0.0

    @property
    def _enabled(self) -> bool:
        return self._able and not isinstance(self._live.config.queues, Mapping)  # weights decide about every claim

    async def _look_around(self) -> None:
        """Learn which part of the runs is this node's: its rank among the nodes that work."""
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_AROUND
        workers = sorted(node.id for node in await self._coordinator.nodes() if Role.WORKER in node.roles)
        self._rank = (workers.index(self._node_id), len(workers)) if self._node_id in workers else (0, 1)

    async def _read(self, until: datetime) -> None:
        """Read what is due by `until` and was not read before."""
        self._skip()
        known = {run.id for run in self._runs}
        what = (self._node_id, self._live.config.queue_names, self._catalog.names, until, _SLICE, *self._rank)
        runs, cursor = await self._queue.read_ahead(*what)
        self._runs.extend(run for run in runs if run.id not in known)
        while cursor is not None and len(self._runs) < _MOST:
            runs, cursor = await self._queue.read_ahead(*what, cursor)
            self._runs.extend(run for run in runs if run.id not in known)
        self._read_until = until

    # --- what the worker asks

    def first_due(self) -> datetime | None:
        """The ready time of the first run that was read, if several are ready: for a few, a claim is as good."""
        self._skip()
        runs = self._runs
        return runs[0].ready_at if len(runs) >= _FEW and runs[_FEW - 1].ready_at <= self._clock.now() else None

    def take(self, limit: int) -> list[Run]:
        """Remove and return up to `limit` runs that are ready."""
        now = self._clock.now()
        runs: list[Run] = []
        while self._runs and len(runs) < limit and self._runs[0].ready_at <= now:
            run = self._runs.popleft()
            if run.id not in self._claimed:
                runs.append(run)
        return runs

    def refused(self, runs: Sequence[Run]) -> None:
        """None of these began. Our clock may be ahead of the store's: they are kept for one more try."""
        if runs and runs[0].id != self._refused:
            self._refused = runs[0].id
            self._runs.extendleft(reversed(runs))

    def note(self, claims: Sequence[Claim]) -> None:
        """These were claimed: they need not begin."""
        if self._runs:
            self._claimed.update(claim.run.id for claim in claims)

    def forget(self) -> None:
        """Keep nothing."""
        self._runs.clear()
        self._claimed.clear()

    def _skip(self) -> None:
        """Drop runs that were claimed, and runs due for so long that another node has certainly claimed them."""
        past = shift(self._clock.now(), -_STALE)
        while self._runs and (self._runs[0].id in self._claimed or self._runs[0].ready_at < past):
            self._runs.popleft()
        if not self._runs:
            self._claimed.clear()
