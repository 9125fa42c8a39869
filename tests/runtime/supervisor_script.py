"""A worker to be killed: starts a process with descendants of every kind and says their numbers."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from executor_support import announce, announced

from duly.runtime.executors import SupervisedProcesses

DESCENDANTS = """
sleep 1000 & echo $$ $! > {0}.group
(setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}.detached; exec sleep 1000' &)
wait
"""


async def main(ready: str, fork: str) -> None:
    processes = SupervisedProcesses()
    null = os.open(os.devnull, os.O_WRONLY)
    processes.spawn(["sh", "-c", DESCENDANTS.format(ready)], os.environ, "/", [null, os.dup(null)])
    detached = await announced(Path(f"{ready}.detached"))
    group = await announced(Path(f"{ready}.group"))
    if fork:
        announce(f"{ready}.copy", copy_of_this_process())
    announce(ready, processes.supervisor_pid, *group, *detached)
    await asyncio.Event().wait()


def copy_of_this_process() -> int:
    pid = os.fork()
    if pid == 0:
        time.sleep(1000)
        os._exit(0)
    return pid


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
