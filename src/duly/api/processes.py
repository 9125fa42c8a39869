"""Several processes that serve one port: the supervisor starts them, restarts those that end, and stops them together.

Each process has its own socket on the port. The supervisor keeps all of them open, so that connections which wait for a
process that died are accepted by the one that replaces it. Each process has a line to the supervisor, over which it
says that it is prepared, waits for the others before it listens, and shows every second that its event loop turns. If
the supervisor dies, the line breaks and the processes stop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from duly.api.addresses import Address, bind_each, bound_to
from duly.errors import ConfigurationError

VARIABLE = "DULY_SERVING_PROCESS"  # for the processes: what they inherit
MOST = 256

_PREPARED, _LISTENING, _ALIVE = b"P", b"L", b"."
_LISTEN = b"G"
_BEAT = 1.0  # seconds between signs of life
_SILENCE = 30.0  # after so many seconds without a sign of life a process is killed
_STEADY = 10.0  # a process that served for so many seconds is replaced at once
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds before others are replaced; doubled each time
_MOST_SAID = 64
_HURRY = 5.0  # seconds that processes have after a second signal

_log = logging.getLogger("duly.api")


class Inherited(Struct, frozen=True):
    """What a process gets from its supervisor: its number, its socket and its line, by their file descriptors."""

    number: int
    of: int
    listening: int
    line: int


def inherited() -> Inherited | None:
    """What this process inherited, if a supervisor started it. Its own children inherit none of it."""
    given = os.environ.pop(VARIABLE, None)
    return None if given is None else msgspec.json.decode(given, type=Inherited)


class Line:
    """A process's end of the line to its supervisor."""

    def __init__(self, mine: Inherited) -> None:
        self.mine = mine
        self._sock = socket.socket(fileno=mine.line)
        self._sock.setblocking(False)
        self._watching: asyncio.Task[None] | None = None

    async def permission(self) -> None:
        """Say that this process is prepared, and wait until all are. Meanwhile and afterwards, show that it lives."""
        permitted = asyncio.Event()
        self._watching = asyncio.get_running_loop().create_task(self._watch(permitted))
        self._say(_PREPARED)
        await permitted.wait()

    def listening(self) -> None:
        """Say that this process listens."""
        self._say(_LISTENING)

    async def _watch(self, permitted: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        heard = loop.create_task(loop.sock_recv(self._sock, 1))
        while True:
            if not (await asyncio.wait([heard], timeout=_BEAT))[0]:
                self._say(_ALIVE)
            elif heard.exception() is None and heard.result():
                permitted.set()
                heard = loop.create_task(loop.sock_recv(self._sock, 1))
            else:  # the supervisor is gone
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def _say(self, what: bytes) -> None:
        with suppress(OSError):
            self._sock.send(what)


class Supervisor:
    """Runs a command in several processes on one port until a signal stops it. `run` returns the exit code."""

    def __init__(self, command: Sequence[str], address: Address, count: int, *, reloads: bool = False) -> None:
        self._command = command
        self._address = address
        self._count = count
        self._reloads = reloads
        self._processes: dict[int, _Process] = {}
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
            process = self._processes[number] = await _Process.start(self._command, number, self._count, sock)
            if self._stopping.is_set():
                process.signal(signal.SIGTERM)
            code = await self._follow(process)
            if self._stopping.is_set():
                return 0 if code == -signal.SIGTERM else code
            if not self._ready.is_set():
                return code or 1
            pause = 0.0 if loop.time() - began > _STEADY else min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            _log.warning("process %d (pid %d) ended with code %d: starting another one", number, process.pid, code)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
                    return 0

    async def _follow(self, process: _Process) -> int:
        """Listen to a process until it ends; returns its exit code. One that is silent for long is killed."""
        while said := await process.said():
            if _PREPARED in said:
                self._permit(process.number)
            if _LISTENING in said:
                self._listening.add(process.number)
                if len(self._listening) == self._count:
                    self._ready.set()
        return await process.ended()

    def _permit(self, number: int) -> None:
        """Have processes listen when all are prepared; one that replaces another, at once."""
        self._prepared.add(number)
        if len(self._prepared) == self._count:
            for each in self._processes.values() if not self._ready.is_set() else [self._processes[number]]:
                each.permit()


class _Process:
    """One process, and the supervisor's end of its line."""

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, line: asyncio.StreamWriter
    ) -> None:
        self.number = number
        self.pid = process.pid
        self._process = process
        self._reader = reader
        self._line = line
        self._prepared = False

    @classmethod
    async def start(cls, command: Sequence[str], number: int, count: int, sock: socket.socket) -> _Process:
        ours, theirs = socket.socketpair()
        with theirs:
            gets = Inherited(number, count, sock.fileno(), theirs.fileno())
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, VARIABLE: msgspec.json.encode(gets).decode()},
                pass_fds=(sock.fileno(), theirs.fileno()),
                process_group=0,  # Ctrl-C in a terminal is for the supervisor, which stops the processes
            )
        reader, line = await asyncio.open_connection(sock=ours)
        return cls(number, process, reader, line)

    async def said(self) -> bytes:
        """What the process says next; nothing if its line is broken or it was silent for too long."""
        try:
            async with asyncio.timeout(_SILENCE if self._prepared else None):  # a program may take long to load
                said = await self._reader.read(_MOST_SAID)
        except TimeoutError:
            _log.warning("process %d (pid %d) did not respond for %g s: killed", self.number, self.pid, _SILENCE)
            self.signal(signal.SIGKILL)
            return b""
        except OSError:
            return b""
        self._prepared = True
        return said

    def permit(self) -> None:
        with suppress(OSError):
            self._line.write(_LISTEN)

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end of the process; returns its exit code."""
        code = await self._process.wait()
        self._line.close()
        return code


def _sockets(address: Address, count: int) -> list[socket.socket]:
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigurationError(f"processes={count}: this system cannot share a port between processes: use 1")
    try:
        return bind_each(address, count)
    except OSError as exc:
        raise ConfigurationError(f"cannot listen on {address}: {exc.strerror}; choose another address") from exc
