"""The processes of a supervisor, and the line on which each of them talks with it.

A supervisor executes its own command line again; it never forks, because a fork copies threads and locks in unknown
states. A process and its supervisor share a socket pair. Over it the process says that it is prepared, that it listens,
that its node has started, and every second that its event loop works. If the supervisor dies, the line breaks and the
process stops. A message is one line of text: a word, and perhaps a value as JSON.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from duly.runtime.environment import SUPERVISOR

VARIABLE = "DULY_CHILD_PROCESS"  # for the processes: what they inherit

# What a process says, and what its supervisor says.
PREPARED, LISTENING, STARTED, FILES, ALIVE = "prepared", "listening", "started", "files", "alive"
LISTEN, REPLACED, LOST_RUNS = "listen", "replaced", "lost-runs"

STEADY = 10.0  # a process that worked for so many seconds is replaced at once
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds before others are replaced; doubled each time
_NAME = f"{os.getpid()}.{os.urandom(8).hex()}"  # of this process as a supervisor
_BEAT = 1.0  # seconds between signs of life
_MOST_READ = 65536
_FILES_AT_ONCE = 100
_LONGEST_MESSAGE = 1 << 24

_log = logging.getLogger("duly.node")


class Inherited(Struct, frozen=True):
    """What a process gets from its supervisor.

    Its number and how many there are, its line and its listening socket (None if it has none) by their file
    descriptors, and the id of its node if neither code nor settings name one.
    """

    number: int
    of: int
    line: int
    listening: int | None = None
    node_id: str | None = None
    tells_files: bool = False


def inherited() -> Inherited | None:
    """What this process inherited, if a supervisor started it. Its own children inherit none of it."""
    given = os.environ.pop(VARIABLE, None)
    return None if given is None else msgspec.json.decode(given, type=Inherited)


def own_command() -> list[str]:
    """The command line of this process, to execute it again."""
    program = sys.argv[0]
    if os.path.basename(program) == "manage.py":  # noqa: PTH119  # `manage.py duly run`
        return [sys.executable, *sys.argv]
    return [sys.executable, "-m", "duly", *sys.argv[1:]]


def pause_before_restart(worked: float, last_pause: float, steady: float = STEADY) -> float:
    """How long to wait before a process that ended after `worked` seconds is replaced."""
    return 0.0 if worked > steady else min(max(2 * last_pause, _FIRST_PAUSE), _LONGEST_PAUSE)


def exit_text(code: int) -> str:
    """How a process ended, in words, by the exit code that Python reports. Shells report signals as 128 and more."""
    if code < 0:
        return f"killed by {_signal_name(-code)}"
    return f"exit code {code}" + (f" ({_signal_name(code - 128)})" if 128 < code <= 128 + signal.NSIG else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Line:
    """A process's end of the line to its supervisor. It is open from `open` to the end of the process.

    `replaced` is called when another process takes over from this one, before it is stopped; `lost_runs` with the ids
    of runs that the supervisor has recorded as lost or failed after the process before this one had crashed.
    """

    def __init__(self, mine: Inherited) -> None:
        self.mine = mine
        self.replaced: Callable[[], object] = lambda: None
        self.lost_runs: Callable[[list[str]], object] = lambda _: None
        self._sock = socket.socket(fileno=mine.line)
        self._sock.set_inheritable(False)
        self._sock.setblocking(False)
        self._told: set[str] = set()
        self._permitted = asyncio.Event()
        self._hearing: asyncio.Task[None] | None = None

    def open(self) -> None:
        """From now on hear the supervisor, and show that this process lives. Does nothing the second time."""
        if self._hearing is None:
            self._hearing = asyncio.get_running_loop().create_task(self._hear(), name="duly-line")

    async def permission(self) -> None:
        """Say that this process is prepared, and wait until all are."""
        self.open()
        self.say(PREPARED)
        await self._permitted.wait()

    def say(self, word: str, value: object = None) -> None:
        """Send a message; the supervisor may be gone."""
        body = word.encode() if value is None else word.encode() + b" " + msgspec.json.encode(value)
        with suppress(OSError):
            self._sock.send(body + b"\n")

    def _tell_files(self) -> None:
        """Name the source files of modules that were imported since the last time, outside of Python's own folders."""
        if not self.mine.tells_files:
            return
        folders = tuple({sys.prefix, sys.base_prefix, os.path.dirname(os.__file__)})  # noqa: PTH120
        known = [getattr(module, "__file__", None) for module in tuple(sys.modules.values())]
        fresh = [name for name in known if name and name not in self._told and not name.startswith(folders)]
        self._told.update(fresh)
        for first in range(0, len(fresh), _FILES_AT_ONCE):
            self.say(FILES, fresh[first : first + _FILES_AT_ONCE])

    async def _hear(self) -> None:
        loop = asyncio.get_running_loop()
        unread = b""
        heard = loop.create_task(loop.sock_recv(self._sock, _MOST_READ))
        while True:
            self._tell_files()
            if not (await asyncio.wait([heard], timeout=_BEAT))[0]:
                self.say(ALIVE)
            elif heard.exception() is None and heard.result():
                *lines, unread = (unread + heard.result()).split(b"\n")
                for line in lines:
                    self._obey(*_parsed(line))
                heard = loop.create_task(loop.sock_recv(self._sock, _MOST_READ))
            else:  # the supervisor is gone
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def _obey(self, word: str, value: Any) -> None:
        match word:
            case "listen":
                self._permitted.set()
            case "replaced":
                self.replaced()
                os.kill(os.getpid(), signal.SIGTERM)
            case "lost-runs":
                self.lost_runs(value)


class ChildProcess:
    """One process, seen from its supervisor."""

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, line: asyncio.StreamWriter
    ) -> None:
        self.number = number
        self.pid = process.pid
        self._process = process
        self._reader = reader
        self._line = line

    @classmethod
    async def start(cls, command: Sequence[str], gets: Callable[[int], Inherited], fds: Sequence[int]) -> ChildProcess:
        """Execute a command. `gets` is called with the descriptor of the line; `fds` are inherited, too."""
        ours, theirs = socket.socketpair()
        with theirs:
            given = gets(theirs.fileno())
            variables = {VARIABLE: msgspec.json.encode(given).decode(), SUPERVISOR: _NAME}
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **variables},
                pass_fds=(*fds, theirs.fileno()),
                process_group=0,  # Ctrl-C in a terminal is for the supervisor, which stops the processes
            )
        reader, line = await asyncio.open_connection(sock=ours, limit=_LONGEST_MESSAGE)
        return cls(given.number, process, reader, line)

    async def said(self, patience: float | None = None) -> tuple[str, Any] | None:
        """The next message; None if the line is broken, TimeoutError after `patience` seconds without one."""
        try:
            async with asyncio.timeout(patience):
                line = await self._reader.readline()
        except TimeoutError:
            raise
        except (OSError, ValueError):  # the line is broken
            return None
        return _parsed(line.rstrip(b"\n")) if line.endswith(b"\n") else None

    def say(self, word: str, value: object = None) -> None:
        """Send a message; the process may be gone."""
        body = word.encode() if value is None else word.encode() + b" " + msgspec.json.encode(value)
        with suppress(OSError):
            self._line.write(body + b"\n")

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end of the process; returns its exit code, negative for a signal."""
        code = await self._process.wait()
        self._line.close()
        return code


def _parsed(line: bytes) -> tuple[str, Any]:
    word, space, value = line.partition(b" ")
    return word.decode(), msgspec.json.decode(value) if space else None
