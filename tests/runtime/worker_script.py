"""A worker to be killed while a handler of its runs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import executor_handlers
from executor_support import Invocation, announce, announced

from duly.runtime.executors import ProcessExecutor, SupervisedProcesses


async def main(ready: str) -> None:
    processes = SupervisedProcesses()
    executor = ProcessExecutor(processes)
    idle = await Invocation(executor_handlers.pid).on(executor)
    task = Invocation(executor_handlers.spawn_and_hang, ready=ready).start(executor)
    pids = await announced(Path(ready))
    announce(f"{ready}.all", processes.supervisor_pid, idle, *pids)
    await task


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
