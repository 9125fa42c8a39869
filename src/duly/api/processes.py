"""Several processes that serve one port: the supervisor starts them, restarts those that end, and stops them together.

Each process has its own socket on the port. The supervisor keeps all of them open, so that connections which wait for a
process that died are accepted by the one that replaces it. The processes listen when all are prepared. One whose event
loop does not turn for long is killed.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from duly.api.addresses import Address, bind_each, bound_to
from duly.errors import ConfigurationError
from duly.scheduler.child_processes import (
    LISTEN,
    LISTENING,
    PREPARED,
    ChildProcess,
    Inherited,
    pause_before_restart,
)

MOST = 256

_SILENCE = 30.0  # after so many seconds without a sign of life a process is killed
_HURRY = 5.0  # seconds that processes have after a second signal

_log = logging.getLogger("duly.api")


class Supervisor:
    """Runs a command in several processes on one port until a signal stops it. `run` returns the exit code."""

    def __init__(self, command: Sequence[str], address: Address, count: int, *, reloads: bool = False) -> None:
        self._command = command
        self._address = address
        self._count = count
        self._reloads = reloads
        self._processes: dict[int, ChildProcess] = {}
        self._prepared: set[int] = set()
        self._listening: set[int] = set()
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._signals = 0

    async def run(self, ready: Callable[[Address], object]) -> int:
        """Start the processes, call `ready` with the address when all listen, and supervise them to their end."""
        loop = asyncio.get_running_loop()
        sockets = _sockets(self._address, self._count)
        self._handle_signals(loop)
        serving = [loop.create_task(self._keep_serving(number, sock)) for number, sock in enumerate(sockets, start=1)]
        up, stop = loop.create_task(self._ready.wait()), loop.create_task(self._stopping.wait())
        await asyncio.wait([up, stop, *serving], return_when=asyncio.FIRST_COMPLETED)
        if self._ready.is_set():
            ready(bound_to(self._address, sockets))
            await asyncio.wait([stop, *serving], return_when=asyncio.FIRST_COMPLETED)
        for waiting in (up, stop):
            waiting.cancel()
        for sock in sockets:
            sock.close()
        self._stop(signal.SIGTERM)
        return 1 if any(await asyncio.gather(*serving)) else 0

    # --- signals

    def _handle_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)

    def _signalled(self) -> None:
        """The first signal stops the processes gracefully; the second one is passed on, and then they are killed."""
        self._signals += 1
        if self._signals > 1:
            self._stop(signal.SIGTERM)
            asyncio.get_running_loop().call_later(_HURRY, self._stop, signal.SIGKILL)
        self._stopping.set()

    def _hung_up(self) -> None:
        """Processes with a job file read it again; others stop."""
        if not self._reloads:
            self._signalled()
        for each in self._processes.values() if self._reloads else ():
            each.signal(signal.SIGHUP)

    def _stop(self, number: int) -> None:
        self._stopping.set()
        for each in self._processes.values():
            each.signal(number)

    # --- processes

    async def _keep_serving(self, number: int, sock: socket.socket) -> int:
        """Have a process with this number, until all stop or the first one cannot start. Returns its exit code."""
        loop = asyncio.get_running_loop()
        pause = 0.0
        while True:
            began = loop.time()
            process = self._processes[number] = await self._start(number, sock)
            if self._stopping.is_set():
                process.signal(signal.SIGTERM)
            code = await self._follow(process)
            if self._stopping.is_set():
                return 0 if code == -signal.SIGTERM else code
            if not self._ready.is_set():
                return code or 1
            pause = pause_before_restart(loop.time() - began, pause)
            _log.warning("process %d (pid %d) ended with code %d: starting another one", number, process.pid, code)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
                    return 0

    async def _start(self, number: int, sock: socket.socket) -> ChildProcess:
        def gets(line: int) -> Inherited:
            return Inherited(number, self._count, line, sock.fileno())

        return await ChildProcess.start(self._command, gets, [sock.fileno()])

    async def _follow(self, process: ChildProcess) -> int:
        """Listen to a process until it ends; returns its exit code. One that is silent for long is killed."""
        patience = None  # a program may take long to load
        try:
            while (said := await process.said(patience)) is not None:
                patience = _SILENCE
                self._hear(process.number, said[0])
        except TimeoutError:
            _log.warning("process %d (pid %d) did not respond for %g s: killed", process.number, process.pid, _SILENCE)
            process.signal(signal.SIGKILL)
        return await process.ended()

    def _hear(self, number: int, word: str) -> None:
        if word == PREPARED:
            self._permit(number)
        elif word == LISTENING:
            self._listening.add(number)
            if len(self._listening) == self._count:
                self._ready.set()

    def _permit(self, number: int) -> None:
        """Have processes listen when all are prepared; one that replaces another, at once."""
        self._prepared.add(number)
        if len(self._prepared) == self._count:
            for each in self._processes.values() if not self._ready.is_set() else [self._processes[number]]:
                each.say(LISTEN)


def _sockets(address: Address, count: int) -> list[socket.socket]:
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigurationError(f"processes={count}: this system cannot share a port between processes: use 1")
    try:
        return bind_each(address, count)
    except OSError as exc:
        raise ConfigurationError(f"cannot listen on {address}: {exc.strerror}; choose another address") from exc
