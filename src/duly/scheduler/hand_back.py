"""Giving back the claims of a process that has ended: the supervisor of a node does this when the process has crashed.

Its runs are settled as a reaper settles expired ones, only at once and with the reason: they wait again, or end as lost
if they may not begin twice. The failure hooks are code of the program, which a supervisor does not load: the next
process calls them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from duly.errors import BackendError
from duly.model import EndedProcess, Run, SchedulerConfig
from duly.model.event import Emit
from duly.runtime.active_runs import ActiveRuns
from duly.runtime.environment import Environment, make_card
from duly.runtime.executors import supervisor
from duly.runtime.handler import Catalog, Handler
from duly.runtime.hooks import Hooks
from duly.runtime.next_due import NextDue
from duly.runtime.reaper import Reaper
from duly.runtime.service import Signal
from duly.runtime.settler import Settler
from duly.scheduler.client import Client
from duly.scheduler.node_report import NodeReport
from duly.scheduler.scheduler import Scheduler
from duly.version import __version__

_ASK_AGAIN = 0.5  # while the store is unavailable
_FAREWELL = 5.0  # seconds that the commands of a process have to be dead
_LOOK_PERIOD = 0.005

_log = logging.getLogger("duly.node")


class HandBack:
    """Keeps the store of a node open, because connecting may take long when a machine is busy. One node, one loop."""

    def __init__(self) -> None:
        self._report: NodeReport | None = None
        self._scheduler: Scheduler | None = None

    async def prepare(self, report: NodeReport) -> None:
        """Open the store of a node that has started, if that is possible now."""
        if report.store is not None:
            with suppress(BackendError):
                await (await self._opened(report)).opened()

    async def give_back(self, report: NodeReport, ended: EndedProcess, lost: Callable[[list[str]], None]) -> None:
        """Give back the claims of an ended process; until they have expired, if the store is unavailable.

        `lost` is called with the ids of runs that ended as lost or failed.
        """
        try:
            async with asyncio.timeout(report.lock_ttl):
                taken = await self._until_available(report, ended, lost)
        except TimeoutError:
            _log.warning("the store is unavailable: the claims of the process that ended expire by themselves")
            return
        if taken:
            _log.warning("%d runs of the process that ended (%s) were given back", taken, ended.why)

    async def close(self) -> None:
        """Close the store."""
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is not None:
            await scheduler.close()

    async def _until_available(self, report: NodeReport, ended: EndedProcess, lost: Callable[[list[str]], None]) -> int:
        while True:
            try:
                return await _take_over(await (await self._opened(report)).opened(), ended, lost)
            except BackendError as exc:
                _log.debug("the claims of the process that ended could not be given back yet: %s", exc)
                await asyncio.sleep(_ASK_AGAIN)

    async def _opened(self, report: NodeReport) -> Scheduler:
        """The store of this report: the one that is open, unless the program has changed it since."""
        if self._scheduler is None or self._report != replace(report, first=0):
            await self.close()
            self._report, self._scheduler = replace(report, first=0), _scheduler(report)
        return self._scheduler


def _scheduler(report: NodeReport) -> Scheduler:
    config = SchedulerConfig(
        node_id=report.node,
        namespace=report.namespace,
        lock_ttl=report.lock_ttl,
        max_losses=report.max_losses,
        publish_events=report.publish_events,
    )
    return Scheduler(store=report.store, queue=report.queue, coordinator=report.coordinator, config=config)


async def _take_over(client: Client, ended: EndedProcess, lost: Callable[[list[str]], None]) -> int:
    card = make_card(ended.node, client.config, client.clock, __version__)
    env = Environment(card, client.live, client.clock, client.emit, random.Random())
    queue, ends = client.backend.queue, _Ends(client.emit)
    settler = Settler(env, queue, ActiveRuns(), ends, NextDue(Signal(), client.clock.now))
    taken = await Reaper(env, queue, settler, Catalog()).take_over(ended)
    await settler.flush()
    if ends.run_ids:
        lost(ends.run_ids)
    return taken


class _Ends(Hooks):
    """Notes the runs for which hooks are to be called."""

    def __init__(self, emit: Emit) -> None:
        super().__init__(None, None, emit)
        self.run_ids: list[str] = []

    def ended(self, run: Run, handler: Handler | None, exc: BaseException) -> None:
        self.run_ids.append(run.id)


# --- the commands of a process


async def commands_ended(pid: int) -> None:
    """Return when the commands and child interpreters of a node's process that has died are dead, too.

    They have a supervisor of their own (`runtime.executors.supervisor`), which kills them when the node's process is
    gone, and then ends. It is found by its arguments; where the system has no /proc, nothing is waited for.
    """
    mine = _supervisor_of(pid)
    for _ in range(round(_FAREWELL / _LOOK_PERIOD)):
        if mine is None or mine != _supervisor_of(pid, mine):
            return
        await asyncio.sleep(_LOOK_PERIOD)


def _supervisor_of(pid: int, known: int | None = None) -> int | None:
    """The process that supervises the commands of a node's process; looks only at `known`, if that is given."""
    wanted = [os.fsencode(supervisor.__file__), str(pid).encode()]
    candidates = [str(known)] if known is not None else [name for name in _process_names() if name.isdigit()]
    for name in candidates:
        with suppress(OSError):
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")[:-1]
            if len(words) > 3 and [words[-3], words[-1]] == wanted:
                return int(name)
    return None


def _process_names() -> list[str]:
    try:
        return os.listdir("/proc")  # noqa: PTH208  # names are what is needed
    except OSError:
        return []
