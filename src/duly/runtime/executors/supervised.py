"""The processes that a node has started, controlled through its supervisor.

`SupervisedProcesses` starts the supervisor at the first spawn and again after it died; `Supervised` is one process,
until its exit is known.
Nothing here waits but `Supervised.end` and `SupervisedProcesses.close`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import msgspec
from msgspec import Struct

from duly.model.confinement import Confinement
from duly.runtime.confining import order_of
from duly.runtime.executors.base import RemoteFailure
from duly.runtime.executors.channel import Channel
from duly.runtime.executors.failures import executor_failed
from duly.runtime.executors.import_path import loading_main
from duly.runtime.executors.supervisor import signal_group

_log = logging.getLogger("duly.executor")
_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_MAX_FRAME = 1 << 20
_SLACK = 5.0  # how much longer than the grace a killed process may take to be dead


class Trouble(Struct, frozen=True, array_like=True):
    """Why a program could not be started: at which stage (fork, start, confine, cwd, exec), and the system's reason."""

    stage: str
    errno: int | None
    text: str


class Exit(Struct, frozen=True):
    """How a process ended. `code` is the exit code, negative for a signal, None if the supervisor died first.

    `stopped`: it had been asked to stop before it ended.
    """

    code: int | None
    stopped: bool = False
    trouble: Trouble | None = None

    @property
    def text(self) -> str:
        if self.code is None:
            return "the supervisor process that watches over handlers ended unexpectedly, and its processes with it"
        return f"exit code {self.code}" if self.code >= 0 else f"killed by signal {-self.code}{_name(-self.code)}"


class Supervised:
    """One process, in its own session; killed with all that it started."""

    def __init__(self, processes: SupervisedProcesses, ident: int) -> None:
        self._processes = processes
        self._ident = ident
        self.pid: int | None = None
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def kill(self, grace: float) -> None:
        """SIGTERM to its group now, SIGKILL after `grace` seconds; 0 is SIGKILL at once. A new call may shorten it."""
        if not self.ended.done():
            self._processes.order(["kill", self._ident, grace])

    def limit(self, seconds: float | None) -> None:
        """Have the supervisor kill it after that many seconds, even if this worker dies; None removes the limit."""
        if not self.ended.done():
            self._processes.order(["limit", self._ident, seconds])

    async def end(self, grace: float) -> bool:
        """Kill it and return when it is dead. A cancellation only speeds this up; True: there was one."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace + _SLACK
        hurried = False
        self.kill(grace)
        while not self.ended.done() and (left := deadline - loop.time()) > 0:
            try:
                await asyncio.wait({self.ended}, timeout=left)
            except asyncio.CancelledError:
                hurried = True
                self.kill(0)
        if not self.ended.done():
            _log.warning("process %s was killed and is not dead after %g seconds", self.pid, grace + _SLACK)
            if self.pid is not None:
                signal_group(self.pid, signal.SIGKILL)  # whatever the supervisor is doing
        return hurried


class SupervisedProcesses:
    """The processes of one node and their supervisor. Belongs to one event loop."""

    def __init__(self) -> None:
        self._idents = count(1)
        self._processes: dict[int, Supervised] = {}
        self._channel: Channel | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._dying: list[subprocess.Popen[bytes]] = []
        self._closed = False

    @property
    def supervisor_pid(self) -> int | None:
        """The supervisor's process id, None while there is none."""
        return None if self._supervisor is None else self._supervisor.pid

    def spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        fds: Sequence[int],
        confine: Confinement | None = None,
    ) -> Supervised:
        """Start a program with `fds` as its stdout, stderr and so on upwards; stdin is /dev/null.

        The descriptors are closed here in any case. A program that cannot be started is a process that ends
        at once, with its `trouble`. Raises `RemoteFailure` if there can be no supervisor.
        """
        try:
            channel = self._open()
        except RemoteFailure:
            for fd in fds:
                os.close(fd)
            raise
        process = Supervised(self, ident := next(self._idents))
        self._processes[ident] = process
        order = ["spawn", ident, list(argv), dict(env), cwd, len(fds), order_of(confine)]
        channel.send(json.dumps(order).encode(), fds)  # stdlib: file names may hold what is not UTF-8
        return process

    def order(self, order: list[object]) -> None:
        """Send a message to the supervisor; it is dropped if there is none."""
        if self._channel is not None:
            self._channel.send(json.dumps(order).encode())

    async def close(self) -> None:
        """End the supervisor and with it whatever still runs. Idempotent."""
        self._closed = True
        if self._channel is not None:
            self._channel.close()
            self._dismiss()
        for patience in (2 * _SLACK, 1.0):
            await self._funerals(patience)
            for supervisor in self._dying:
                supervisor.kill()
        self._mourn()

    def _open(self) -> Channel:
        if self._closed:
            raise executor_failed("the executor is closed")
        if loading_main():
            raise executor_failed(
                "this process runs a handler and is loading your main script; "
                'start the scheduler only under `if __name__ == "__main__":`'
            )
        if os.name != "posix":
            raise executor_failed("handlers in processes and commands need a POSIX system")
        if self._channel is None:
            self._channel = self._start()
        return self._channel

    def _start(self) -> Channel:
        ours, theirs = socket.socketpair()
        argv = [sys.executable, "-I", "-S", "-X", "utf8", str(_SUPERVISOR), str(theirs.fileno()), str(os.getpid())]
        try:
            self._supervisor = subprocess.Popen(  # noqa: S603  # our own interpreter and our own file
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError as exc:
            ours.close()
            raise executor_failed(f"the supervisor process cannot be started: {exc}") from exc
        finally:
            theirs.close()
        return Channel(ours, self._hear, self._lost, _MAX_FRAME)

    def _hear(self, frame: bytes) -> None:
        match json.loads(frame):  # as above: the system's message may contain a file name that is not UTF-8
            case ["spawned", int(ident), int(pid)]:
                self._processes[ident].pid = pid
            case ["exited", int(ident), int(status), bool(stopped), trouble]:
                why = None if trouble is None else msgspec.convert(trouble, Trouble)
                self._processes.pop(ident).ended.set_result(Exit(os.waitstatus_to_exitcode(status), stopped, why))

    def _lost(self) -> None:
        """The supervisor died. Its direct children died with it; this process has to kill their groups."""
        self._dismiss()
        for process in self._processes.values():
            if process.pid is not None:
                signal_group(process.pid, signal.SIGKILL)
        self._mourn()
        self._bury()

    def _dismiss(self) -> None:
        assert self._supervisor is not None
        self._dying.append(self._supervisor)
        self._channel = self._supervisor = None

    def _mourn(self) -> None:
        """Report an unknown exit for these processes."""
        processes, self._processes = self._processes, {}
        for process in processes.values():
            process.ended.set_result(Exit(None))

    async def _funerals(self, patience: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while self._dying and loop.time() < deadline:
            self._dying = [supervisor for supervisor in self._dying if supervisor.poll() is None]
            await asyncio.sleep(0.002)

    def _bury(self) -> None:
        """Reap the supervisor, so that it does not stay a zombie even if this object is not used again."""
        self._dying = [supervisor for supervisor in self._dying if supervisor.poll() is None]
        if self._dying and not self._closed:
            asyncio.get_running_loop().call_later(0.02, self._bury)


def forget_cancellation() -> None:
    """This task was cancelled too late: what it waited for had already ended, and it goes on with the outcome."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _name(number: int) -> str:
    with suppress(ValueError):
        return f" ({signal.Signals(number).name})"
    return ""
