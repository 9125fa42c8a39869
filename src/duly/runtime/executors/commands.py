"""Programs instead of Python callables. See `duly.runtime.command.Command` for what a program is given."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import closing
from typing import Any

import msgspec

from duly.errors import ConfigurationError
from duly.model import Claim, LineSource, iso
from duly.rules.confining import limit_reached
from duly.runtime.active_runs import ActiveRun
from duly.runtime.command import Command
from duly.runtime.confining import check
from duly.runtime.context import Contexts
from duly.runtime.executors.base import RemoteFailure
from duly.runtime.executors.children import working_directory
from duly.runtime.executors.failures import executor_failed, failed
from duly.runtime.executors.output import Tail, fit
from duly.runtime.executors.supervised import Exit, Supervised, SupervisedProcesses, Trouble, forget_cancellation
from duly.runtime.handler import Handler

_BACKSTOP = 5.0


class CommandExecutor:
    """Runs each command in a separate process.

    The value is `{"exit_code": 0, "stdout": …, "stderr": …}`, the last `max_output_bytes` of each, less if it would not
    fit into `max_result_bytes` of JSON. Any other exit is a `RemoteFailure`: `CommandFailed`, `CommandNotFound`,
    `CommandNotExecutable`, `ConfinementRefused`, `DirectoryNotFound`, `ExecutorFailed`. `processes` may be shared; its
    owner then closes it. `grace` is the time between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        processes: SupervisedProcesses | None = None,
        *,
        grace: float = 1.0,
        max_output_bytes: int = 65536,
        max_result_bytes: int = 65536,
    ) -> None:
        self._processes = SupervisedProcesses() if processes is None else processes
        self._owns_processes = processes is None
        self._grace = grace
        self._max_output_bytes = max_output_bytes
        self._max_result_bytes = max_result_bytes
        self._running: set[Supervised] = set()
        self._closed = False

    async def invoke(self, active: ActiveRun, handler: Handler, contexts: Contexts, arguments: dict[str, Any]) -> Any:
        """Run the command; the payload is in its environment. When cancelled, it is dead before this returns."""
        command = handler.target if isinstance(handler.target, Command) else await handler.target(active.claim.run)
        if self._closed:
            raise executor_failed("the executor is closed")
        _check_rights(command, active.claim)
        most, out, err = self._max_output_bytes, active.output(LineSource.STDOUT), active.output(LineSource.STDERR)
        with closing(Tail(most, out)) as stdout, closing(Tail(most, err)) as stderr:
            try:
                contexts.begin(active)
                ended = await self._ended(self._spawn(command, active.claim, stdout, stderr))
            finally:  # also if it was stopped: its log has what it wrote until then
                texts = stdout.finish(), stderr.finish()
            return self._judge(ended, command, active.claim, *texts)

    async def close(self) -> None:
        """End all commands, by force where needed, and the supervisor unless it is shared. Idempotent."""
        self._closed = True
        for process in self._running:
            process.kill(self._grace)
        if self._running:
            await asyncio.wait([process.ended for process in self._running], timeout=self._grace + 5)
        if self._owns_processes:
            await self._processes.close()

    def _spawn(self, command: Command, claim: Claim, stdout: Tail, stderr: Tail) -> Supervised:
        cwd = working_directory() if command.cwd is None else os.fspath(command.cwd)
        fds = [stdout.take_writer(), stderr.take_writer()]
        process = self._processes.spawn(command.words, environment(command, claim), cwd, fds, command.confinement)
        if (timeout := claim.run.policy.timeout) is not None:
            process.limit(timeout + _BACKSTOP)
        self._running.add(process)
        process.ended.add_done_callback(lambda _: self._running.discard(process))
        return process

    async def _ended(self, process: Supervised) -> Exit:
        try:
            await asyncio.wait({process.ended})
        except asyncio.CancelledError:
            if not process.ended.done():
                await process.end(self._grace)
            if not process.ended.done() or process.ended.result().stopped or process.ended.result().code is None:
                raise
            forget_cancellation()  # too late: it had already ended
        return process.ended.result()

    def _judge(self, ended: Exit, command: Command, claim: Claim, stdout: str, stderr: str) -> dict[str, Any]:
        if self._closed and (ended.stopped or ended.code is None):
            raise executor_failed("the executor was closed while the command ran")
        if ended.code is None:
            raise executor_failed(ended.text)
        if ended.trouble is not None:
            raise _not_started(ended.trouble, command, claim)
        if ended.code != 0:
            limit = limit_reached(command.confinement, ended.code, stderr)
            raise failed("CommandFailed", ended.text if limit is None else f"{ended.text}: {limit}", stderr)
        room = self._max_result_bytes - len(msgspec.json.encode(_value("", "")))
        return _value(*fit(stdout, stderr, max(0, room)))


def _check_rights(command: Command, claim: Claim) -> None:
    """The definition may come from another machine: whether this one can confine the command is known only here."""
    try:
        check(f"job {claim.run.job!r}", command.confinement)
    except ConfigurationError as exc:
        raise failed("ConfinementRefused", str(exc)) from exc


def environment(command: Command, claim: Claim) -> dict[str, str]:
    """The complete environment of a command."""
    run = claim.run
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        **(command.env or {}),
        "DULY_RUN_ID": run.id,
        "DULY_JOB": run.job,
        "DULY_ATTEMPT": str(run.attempt),
        "DULY_DUE": iso(run.due),
        "DULY_FENCE": str(claim.fence),
        "DULY_IDEMPOTENCY_KEY": run.id,
        "DULY_PAYLOAD": run.payload.decode(errors="surrogateescape"),
    }


def _value(stdout: str, stderr: str) -> dict[str, Any]:
    return {"exit_code": 0, "stdout": stdout, "stderr": stderr}


def _not_started(trouble: Trouble, command: Command, claim: Claim) -> RemoteFailure:
    program = command.words[0]
    match trouble.stage, trouble.errno:
        case "confine", _:
            return failed("ConfinementRefused", f"the process cannot be confined: {trouble.text}")
        case "cwd", errno.ENOENT | errno.ENOTDIR:
            return failed("DirectoryNotFound", f"no such directory: {os.fspath(command.cwd or '.')!r}")
        case "cwd", _:
            return failed("DirectoryNotFound", f"directory cannot be entered: {trouble.text}")
        case "exec", errno.ENOENT | errno.ENOTDIR:
            return failed("CommandNotFound", f"{program!r} not found, or the interpreter that its first line names")
        case "exec", errno.EACCES | errno.ENOEXEC | errno.EISDIR:
            return failed("CommandNotExecutable", f"{program!r} is not executable: {trouble.text}")
        case "exec", errno.E2BIG:
            size = len(claim.run.payload)
            return failed("CommandFailed", f"arguments and environment are too long; the payload has {size} bytes")
        case "fork", _:
            return executor_failed(f"no process can be started: {trouble.text}")
    return failed("CommandFailed", f"cannot be started: {trouble.text}")
