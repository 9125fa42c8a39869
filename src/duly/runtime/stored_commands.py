"""Stored commands: a run of a job with a command executes the command in the job's current stored definition.

Never in the run: a caller that may submit runs cannot choose programs. Looked up for every attempt, so that a changed
definition holds for the next attempt on every node.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from duly.errors import BackendUnavailable, GiveUp
from duly.model import CommandSpec, JobRecord, Run
from duly.model.job import COMMAND_HANDLER
from duly.ports import JobStore
from duly.rules.retry import RetryPolicy
from duly.runtime.command import Command
from duly.runtime.handler import ExecutorKind, Handler

_ASK_AGAIN = 0.5


def stored_commands(store: JobStore) -> Handler:
    """The handler of all jobs that have a command in their definition."""
    return Handler(
        name=COMMAND_HANDLER,
        target=Lookup(store.job),
        executor=ExecutorKind.COMMAND,
        takes_context=False,
        decode=msgspec.json.Decoder(dict[str, Any]).decode,
        encode=msgspec.json.encode,
        retry=RetryPolicy(),
    )


class Lookup:
    """Finds the command of a run. While the store is unreachable it waits: nothing has begun, so nothing has failed."""

    def __init__(self, job: Callable[[str], Any]) -> None:
        self._job = job

    async def __call__(self, run: Run) -> Command:
        while True:
            try:
                return command_of(run, await self._job(run.job), os.environ)
            except BackendUnavailable:  # ends with the run's timeout, its lease, or the node
                await asyncio.sleep(_ASK_AGAIN)


def command_of(run: Run, record: JobRecord | None, env: Mapping[str, str]) -> Command:
    """The command that the definition has for one of its runs; `GiveUp` if there is none any more."""
    if record is None or record.removed_at is not None or record.uid != run.uid:
        raise GiveUp(f"job {run.job!r} was removed; this run has nothing to execute")
    spec = record.spec.command
    if spec is None:
        raise GiveUp(f"the definition of {run.job!r} has no command (any more)")
    return as_command(spec, env)


def as_command(spec: CommandSpec, env: Mapping[str, str]) -> Command:
    """The command, with the environment variables that it passes on; those that are not set are left out."""
    handed_on = {name: env[name] for name in spec.pass_environment if name in env}
    argv = spec.argv[0] if spec.shell else spec.argv
    return Command(argv, cwd=spec.cwd, env={**handed_on, **spec.environment}, shell=spec.shell, confine=spec.confine)
