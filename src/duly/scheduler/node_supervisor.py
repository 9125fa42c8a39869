"""The supervisor of one node: keeps a process of it running, and replaces that process without a gap.

On SIGHUP, or when a source file has changed, it starts a new process, and stops the old one when the new one works. A
process that ends by itself is replaced, and the runs that it had claimed are given back at once. The processes have one
node id; the numbers of their requests tell them apart (`rules.namesakes`). The supervisor does not load the program.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from duly.model import EndedProcess
from duly.rules.namesakes import is_distinct, requests_of
from duly.scheduler.child_processes import (
    FILES,
    LISTEN,
    LOST_RUNS,
    PREPARED,
    REPLACED,
    STARTED,
    ChildProcess,
    Inherited,
    exit_text,
    pause_before_restart,
)
from duly.scheduler.file_changes import WatchedFiles
from duly.scheduler.hand_back import HandBack, commands_ended
from duly.scheduler.node_report import NodeReport

_STEADY = 2.0  # a process whose node worked for so many seconds is replaced at once
_HURRY = 5.0  # seconds that a process has after a second signal
_LATE = 5.0  # seconds after its time limit, when a process that still stops is killed
_LOOK_AGAIN = (0.3, 1.0, 3.0)  # seconds between looks for what a process had claimed
_LAST_WORDS = 2.0  # seconds that giving back may take when the supervisor stops

_log = logging.getLogger("duly.node")


class Supervision(Struct, frozen=True):
    """How a node is supervised.

    `sockets` are the listening sockets that each process inherits. SIGHUP goes to the process if it `reads_again`: it
    has a job file. `drain` limits how long a process that was replaced may go on, None means as long as its own
    settings say. `watches`: a change of a source file, or of `files`, replaces the process, and SIGHUP stops it.
    """

    command: Sequence[str]
    node_id: str
    sockets: Sequence[socket.socket] = ()
    reads_again: bool = False
    drain: float | None = None
    watches: bool = False
    files: Sequence[str] = ()


class _NodeProcess:
    """One process of the node, from its start until its end is dealt with."""

    def __init__(self, child: ChildProcess, now: float) -> None:
        self.child = child
        self.began = now
        self.worked_from: float | None = None
        self.ended_at: float | None = None
        self.report: NodeReport | None = None
        self.started = asyncio.Event()  # its node works, or it has ended
        self.over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.stopping = False

    @property
    def works(self) -> bool:
        return self.report is not None and not self.over.done()

    def requests(self, now: float, why: str = "") -> EndedProcess | None:
        """The requests that it can have made by now; None if its node never started."""
        report, until = self.report, self.ended_at or now
        return None if report is None else requests_of(report.node, report.first, until - self.began, why)

    @property
    def worked(self) -> float:
        """For how many seconds its node worked, if it has ended."""
        return 0.0 if self.worked_from is None or self.ended_at is None else self.ended_at - self.worked_from


class NodeSupervisor:
    """Runs a command as one node until a signal stops it. `run` returns the exit code."""

    def __init__(self, how: Supervision) -> None:
        self._how = how
        self._count = 0
        self._processes: set[_NodeProcess] = set()
        self._replace = asyncio.Event()
        self._stopping = asyncio.Event()
        self._signals = 0
        self._files = WatchedFiles()
        self._store = HandBack()
        self._lost_runs: list[str] = []  # their hooks are to be called by the next process
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Start the first process; if it cannot start, that is the end, unless its files are watched."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._told_to_stop)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)
        current = await self._start()
        await self._until(current.started)
        if not self._how.watches and not self._stopping.is_set() and not current.works:
            _log.error("the process could not start: %s", exit_text(code := await current.over))
            return max(code, 1)
        if self._how.watches:
            self._files.add(self._how.files)
            self._watching = loop.create_task(self._watch())
        await self._supervise(current)
        return await self._stop()

    async def _supervise(self, current: _NodeProcess) -> None:
        """Keep one process working: replace it when that is asked for, and when it has ended."""
        pause = 0.0
        while not self._stopping.is_set():
            await self._until(self._replace, current.over)
            if self._stopping.is_set():
                return
            if current.over.done() and not self._replace.is_set():
                pause = pause_before_restart(current.worked, pause, _STEADY)
                await self._until(self._replace, pause=None if self._waits_for_files(current) else pause)
            if not self._stopping.is_set():
                self._replace.clear()
                current = await self._replaced(current)

    def _waits_for_files(self, ended: _NodeProcess) -> bool:
        """Whether a process that could not start is replaced only when its files have changed."""
        if not self._how.watches or ended.report is not None:
            return False
        self._files.add_folder(Path.cwd())
        _log.warning("the program could not start: waiting for a change of its files")
        return True

    async def _replaced(self, old: _NodeProcess) -> _NodeProcess:
        """Start a new process, and stop the old one if the new one works. Returns the one that goes on."""
        new = await self._start()
        await self._until(new.started)
        if self._stopping.is_set():
            return new
        if not new.works:
            code = exit_text(await new.over)
            if old.over.done():
                return new
            _log.error("the new process could not start (%s): process %d goes on", code, old.child.pid)
            return old
        if not old.over.done():
            _log.info("process %d replaces process %d", new.child.pid, old.child.pid)
            old.stopping = True
            old.child.say(REPLACED)
            if self._how.drain is not None:
                self._do(self._limit(old, self._how.drain))
        return new

    async def _limit(self, old: _NodeProcess, seconds: float) -> None:
        """Stop a process that still drains: a second signal, then SIGKILL."""
        for number, limit in ((signal.SIGTERM, seconds), (signal.SIGKILL, _HURRY)):
            if (await asyncio.wait([old.over], timeout=limit))[0]:
                return
            old.child.signal(number)

    # --- processes

    async def _start(self) -> _NodeProcess:
        self._count += 1
        sockets = [sock.fileno() for sock in self._how.sockets]

        def gets(line: int) -> Inherited:
            listening = sockets[0] if sockets else None
            return Inherited(1, 1, line, listening, self._how.node_id, self._how.watches)

        child = await ChildProcess.start(self._how.command, gets, sockets)
        process = _NodeProcess(child, asyncio.get_running_loop().time())
        self._processes.add(process)
        self._do(self._follow(process))
        return process

    async def _follow(self, process: _NodeProcess) -> None:
        """Listen to a process until it ends; then deal with what it has left behind."""
        while (said := await process.child.said()) is not None:
            self._hear(process, *said)
        code = await process.child.ended()
        process.ended_at = ended_at = asyncio.get_running_loop().time()
        process.over.set_result(code)
        process.started.set()
        if code != 0 and process.report is not None:
            how = exit_text(code)
            if not (process.stopping or self._stopping.is_set()):
                _log.error("process %d has ended: %s; starting another one", process.child.pid, how)
            ended = process.requests(ended_at, how)
            assert ended is not None
            await self._give_back(process, process.report, ended, ended_at)
        self._processes.discard(process)

    def _hear(self, process: _NodeProcess, word: str, value: Any) -> None:
        if word == PREPARED:
            process.child.say(LISTEN)
        elif word == STARTED:
            process.report = msgspec.convert(value, NodeReport)
            process.worked_from = asyncio.get_running_loop().time()
            process.started.set()
            self._do(self._store.prepare(process.report))
            if self._lost_runs:
                process.child.say(LOST_RUNS, self._lost_runs)
                self._lost_runs = []
        elif word == FILES:
            self._files.add(value)

    async def _give_back(self, process: _NodeProcess, report: NodeReport, ended: EndedProcess, now: float) -> None:
        others = [each.requests(now) for each in self._processes if each is not process]
        if report.store is None:
            _log.warning("the store of this program cannot be opened here: its claims expire after lock_ttl")
        elif not is_distinct(ended, [each for each in others if each is not None]):
            _log.warning("the clock went back: the claims of process %d expire after lock_ttl", process.child.pid)
        else:
            await commands_ended(process.child.pid)
            await self._store.give_back(report, ended, self._have_hooks_called)
            self._do(self._look_again(report, ended))

    async def _look_again(self, report: NodeReport, ended: EndedProcess) -> None:
        """Give back what the process had sent before it ended and what reached the store after the first look."""
        for pause in _LOOK_AGAIN:
            await self._until(pause=pause)
            if self._stopping.is_set():
                return
            await self._store.give_back(report, ended, self._have_hooks_called)

    def _have_hooks_called(self, run_ids: list[str]) -> None:
        """Have the hooks for these runs called: by the process that works, else by the next one."""
        working = [each for each in self._processes if each.works and not each.stopping]
        if working:
            working[-1].child.say(LOST_RUNS, run_ids)
        else:
            self._lost_runs += run_ids

    # --- signals and changes

    def _told_to_stop(self) -> None:
        """The first signal stops the processes gracefully; the second one is passed on, and then they are killed."""
        self._signals += 1
        self._stopping.set()
        if self._signals > 1:
            self._signal_all(signal.SIGTERM)
            asyncio.get_running_loop().call_later(_HURRY, self._signal_all, signal.SIGKILL)

    def _hung_up(self) -> None:
        """A process with a job file reads it again; another one is replaced. In a terminal this is its end."""
        if self._how.watches:
            self._told_to_stop()
        elif self._how.reads_again:
            self._signal_all(signal.SIGHUP)
        else:
            self._replace.set()

    def _signal_all(self, number: int) -> None:
        for process in self._processes:
            if not process.over.done():
                process.child.signal(number)

    async def _watch(self) -> None:
        while True:
            changed = await self._files.changed()
            _log.info("%s changed: starting a new process", ", ".join(sorted(changed)[:3]))
            self._replace.set()

    async def _stop(self) -> int:
        """Stop all processes within the time that their settings give them; returns the exit code."""
        if self._watching is not None:
            self._watching.cancel()
        alive = [each for each in self._processes if not each.over.done()]
        limits = [each.report.shutdown_timeout for each in alive if each.report is not None]
        for process in alive:
            if not process.stopping:  # else it drains already, and another signal would interrupt its handlers
                process.child.signal(signal.SIGTERM)
        ends = [each.over for each in alive]
        if ends:
            finite = [limit for limit in limits if limit is not None]
            limit = None if None in limits else max(finite, default=0.0) + _LATE
            _, late = await asyncio.wait(ends, timeout=limit)
            if late:
                self._signal_all(signal.SIGKILL)
                await asyncio.wait(ends)
        following = [task for task in self._tasks if not task.done()]
        if following:
            await asyncio.wait(following, timeout=_LAST_WORDS)
        for task in following:
            task.cancel()
        await self._store.close()
        return 0 if all(end.result() in (0, -signal.SIGTERM) for end in ends) else 1

    # --- waiting

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failed := task.exception()) is not None:
            _log.error("the supervisor failed: %s", failed, exc_info=failed)

    async def _until(self, *what: asyncio.Event | asyncio.Future[int], pause: float | None = None) -> None:
        """Wait for one of these, for a signal to stop, or until the pause is over."""
        loop = asyncio.get_running_loop()
        waits = [loop.create_task(each.wait()) for each in (self._stopping, *what) if isinstance(each, asyncio.Event)]
        ends: list[asyncio.Future[Any]] = [each for each in what if not isinstance(each, asyncio.Event)]
        await asyncio.wait([*waits, *ends], timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
            with suppress(asyncio.CancelledError):
                await wait
