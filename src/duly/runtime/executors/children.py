"""Children: the worker's view of its child interpreters."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from duly.errors import ClaimLost, RunCancelled
from duly.model import LineSource
from duly.model.confinement import Confinement
from duly.model.current_run import current_run
from duly.runtime.active_runs import ActiveRun
from duly.runtime.context import Context
from duly.runtime.executors.channel import Channel
from duly.runtime.executors.child_output import child_outputs
from duly.runtime.executors.messages import (
    Advanced,
    Began,
    Call,
    Ended,
    Logged,
    Signs,
    decode_for_worker,
    encode,
)
from duly.runtime.executors.supervised import Exit, Supervised, SupervisedProcesses
from duly.runtime.log_text import is_of_job

_CHILD = Path(__file__).with_name("child.py")
_BACKSTOP = 5.0  # how much later than the worker the supervisor stops a handler, should the worker be stuck
_LAST_WORDS = 1.0  # how long a child that has closed its end may take to be gone
_HEADROOM = 1 << 20  # for the parts of a frame other than the value: texts are cut before they are sent


class Died(Struct, frozen=True):
    """The child ended without an answer. `began`: it had taken the call."""

    exit: Exit
    began: bool

    @property
    def never_ran(self) -> bool:
        """Whether the handler was certainly not called; not known if the exit itself is not known."""
        return not self.began and self.exit.code is not None


Answer = Ended | Died


class Child:
    """One child interpreter: idle, or busy with one call."""

    def __init__(
        self, processes: SupervisedProcesses, max_result_bytes: int, confine: Confinement | None = None
    ) -> None:
        self.stopping = False
        self._live: ActiveRun | None = None
        self._context: Context | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._began = False
        self._said = Signs()
        self._outputs = child_outputs()
        ours, theirs = socket.socketpair()
        fds = [*(output.writer for output in self._outputs), theirs.detach()]
        try:
            self.process: Supervised = processes.spawn(
                [sys.executable, *_flags(), str(_CHILD)], os.environ, working_directory(), fds, confine
            )
        except BaseException:
            ours.close()
            self._close_outputs()
            raise
        self._channel = Channel(ours, self._hear, self._lost, max_result_bytes + _HEADROOM)
        self._channel.send(json.dumps({"path": [str(place) for place in sys.path], "argv": sys.argv}).encode())
        self.process.ended.add_done_callback(self._exited)

    @property
    def usable(self) -> bool:
        """Whether it can take the next call."""
        return not self.stopping and not self.process.ended.done()

    def begin(self, call: Call, active: ActiveRun, context: Context) -> asyncio.Future[Answer]:
        """Send a call; the future completes with the answer, or with the child's death."""
        self._live = active
        self._context = context
        self._began = False
        self._said = Signs()
        self._answer = asyncio.get_running_loop().create_future()
        for output, source in zip(self._outputs, (LineSource.STDOUT, LineSource.STDERR), strict=True):
            output.lines = active.output(source)
        self._channel.send(encode(call))
        self.tell(stop=False)
        if (timeout := call.run.policy.timeout) is not None:
            self.process.limit(timeout + _BACKSTOP)
        return self._answer

    def release(self, call: Call) -> None:
        """The call is over; discard what arrives from now on."""
        for output in self._outputs:
            output.finish()
        self._live = self._context = self._answer = None
        if call.run.policy.timeout is not None:
            self.process.limit(None)

    def tell(self, *, stop: bool) -> None:
        """Update the handler's context to the current state. A stop is never revoked."""
        if self._live is None or self._context is None:
            return
        signs = _signs(self._live, self._context, stop=stop or self._said.stop)
        if signs != self._said:
            self._said = signs
            self._channel.send(encode(signs))

    async def stop(self, grace: float) -> bool:
        """Notify the handler, then kill the child and its group; return when it is dead (see `Supervised.end`)."""
        self.stopping = True
        self.tell(stop=True)
        return await self.process.end(grace)

    def retire(self, grace: float) -> None:
        """Ask an idle child to end; kill it, and what its handlers left behind, if it takes longer."""
        self.stopping = True
        self._channel.finish()
        self.process.kill(grace)

    def _hear(self, frame: bytes) -> None:
        match decode_for_worker(frame):
            case Began():
                self._began = True
            case Advanced(progress):
                if self._live is not None:
                    self._live.report(progress)
            case Logged() as logged:
                self._log(logged)
            case Ended() as ended:
                self._settle(ended)
                if self.stopping:
                    self.process.kill(0)  # it has sent its answer: no need to wait for the grace period

    def _log(self, logged: Logged) -> None:
        """Log on behalf of the run. This callback has the context of the first run of the child, not of this one."""
        active = self._live
        token = current_run.set(None if active is None else active.claim.run)
        try:
            if not _relay(logged, self.process.pid) and active is not None and is_of_job(logged.name):
                active.write(LineSource.LOG, logged.text, logging.getLevelName(logged.level), logged.name)
        finally:
            current_run.reset(token)

    def _settle(self, answer: Answer) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _lost(self) -> None:
        """It closed its end or sent invalid data and cannot be used any more. It exits, or is killed."""
        self.stopping = True
        self.process.limit(_LAST_WORDS)

    def _exited(self, ended: asyncio.Future[Exit]) -> None:
        self._channel.drain()  # the answer may have been sent just before the end
        self._channel.close()
        self._close_outputs()
        self._settle(Died(ended.result(), self._began))

    def _close_outputs(self) -> None:
        for output in self._outputs:
            output.close()


def _signs(active: ActiveRun, context: Context, *, stop: bool) -> Signs:
    """The state of the context in the worker, and the flags that record why the worker stops a run."""
    asked = active.cancelled or active.timed_out or active.released or active.lost
    return Signs(
        cancelled=stop or asked or context.cancelled,
        owned=not active.lost and not active.untrusted and _owned(context),
        stop=stop,
    )


def _owned(context: Context) -> bool:
    try:
        context.check()
    except ClaimLost:
        return False
    except RunCancelled:
        pass
    return True


def working_directory() -> str:
    """The worker's working directory; the root directory if that has been removed."""
    try:
        return os.getcwd()  # noqa: PTH109  # text is what is needed
    except OSError:
        return "/"


def _flags() -> Sequence[str]:
    """The options of this interpreter that change how code behaves."""
    flags = ["-P", *(["-O"] * sys.flags.optimize), *(f"-W{option}" for option in sys.warnoptions)]
    for name, wanted in (("dev", sys.flags.dev_mode), ("utf8", sys.flags.utf8_mode)):
        flags += ["-X", name] if wanted else []
    return flags


def _relay(logged: Logged, pid: int | None) -> bool:
    """Log a record of the child here; False if the logger's level is higher."""
    logger = logging.getLogger(logged.name)
    if not logger.isEnabledFor(logged.level):
        return False
    record = logger.makeRecord(
        logged.name, logged.level, logged.path, logged.line, logged.text, (), None, logged.function
    )
    vars(record).update(logged.extra, created=logged.created, process=pid)
    logger.handle(record)
    return True
