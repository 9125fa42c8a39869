"""The reporter: sends progress and log lines of running attempts to the store, at most once a second in one call.

It sleeps while there is nothing new. The settler sends what is left of an attempt before its settlement.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence

from duly.errors import BackendUnavailable
from duly.model import Report
from duly.model.event import RunProgressed, ServiceFailed
from duly.ports import Store
from duly.runtime.active_runs import ActiveRun, ActiveRuns
from duly.runtime.environment import Environment, NodeService
from duly.runtime.failures import failure_of
from duly.runtime.isolation import Refused, send_isolated
from duly.runtime.outbox import Outbox

PERIOD = 1.0
_GATHER = 0.1  # most short runs end within this time: then they need no report of their own


class Reporter(NodeService):
    """Belongs to the node's loop. Calls do not overlap, so that lines arrive in order."""

    name = "reporter"

    def __init__(self, env: Environment, store: Store, active_runs: ActiveRuns, outbox: Outbox) -> None:
        super().__init__(env, outbox.signal)
        self._store = store
        self._active_runs = active_runs
        self._outbox = outbox
        self._sending = asyncio.Lock()
        self._sent = -math.inf

    @property
    def busy(self) -> bool:
        """Whether any attempt has reported something and not ended since."""
        return bool(self._outbox.reporting)

    async def tick(self) -> float:
        """Send what is new. On failure it stays where it is; repeating a report does no harm."""
        if not self._outbox.noted:
            return math.inf
        wait = max(self._outbox.since + _GATHER, self._sent + PERIOD) - self._clock.monotonic()
        if wait > 0:
            return wait
        self._sent = self._clock.monotonic()
        self._outbox.noted = False  # first: what is written from now on is noted again
        try:
            async with self._sending:
                await self._send(self._reporting())
        except BaseException:
            self._outbox.noted = True
            raise
        return 0.0 if self._outbox.noted else math.inf

    def _reporting(self) -> list[ActiveRun]:
        """The attempts that report. One that is gone, since it lost its run, is forgotten."""
        reporting = list(self._outbox.reporting.values())
        for active in reporting:
            if active not in self._active_runs:
                self._outbox.reporting.pop(active.claim.fence, None)
        return [active for active in reporting if active in self._active_runs]

    async def flush(self, ended: Sequence[ActiveRun]) -> None:
        """Send what is left of attempts that have ended. An outage is raised; nothing else keeps them from ending."""
        reporting = self._outbox.reporting
        over = [active for active in ended if active.claim.fence in reporting]
        for active in over:
            if active.lines is not None:
                active.lines.close()
        if any(active.unreported for active in over):
            async with self._sending:
                await self._send(over)  # what was taken before and not stored
                await self._send(over)
        for active in over:
            reporting.pop(active.claim.fence, None)

    async def _send(self, active_runs: Iterable[ActiveRun]) -> None:
        sent = [(active, _report_of(active)) for active in active_runs if active.unreported]
        if not sent:
            return
        try:
            answers = await send_isolated(self._store.report, [report for _, report in sent])
        except BackendUnavailable:
            raise
        except Exception as exc:  # noqa: BLE001  # the store refuses all of them: lines must not stop a node
            answers = [Refused(exc)] * len(sent)
        if (refused := next((each for each in answers if isinstance(each, Refused)), None)) is not None:
            self._emit(ServiceFailed(self.name, failure_of(refused.error), 0.0))
        for (active, report), answer in zip(sent, answers, strict=True):
            self._answered(active, report, kept=answer is True)

    def _answered(self, active: ActiveRun, report: Report, *, kept: bool) -> None:
        if report.progress is not None:
            active.reported = report.progress
            if kept and self._emit.wants(RunProgressed):
                self._emit(RunProgressed(active.claim.run, report.progress))
        if active.lines is not None:
            if kept:
                active.lines.stored()
            else:
                active.lines.discard()


def _report_of(active: ActiveRun) -> Report:
    progress = None if active.progress is active.reported else active.progress
    claim, lines = active.claim, active.lines
    taken = None if lines is None else lines.take()
    if lines is None or taken is None:
        return Report(claim.run.id, claim.fence, progress)
    written, some = taken
    return Report(claim.run.id, claim.fence, progress, some, written, lines.keep)
