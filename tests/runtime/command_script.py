"""A worker to be killed while a command of its runs."""

from __future__ import annotations

import asyncio
import sys

from executor_support import Invocation

from duly.runtime.command import Command
from duly.runtime.executors import CommandExecutor

if __name__ == "__main__":
    asyncio.run(Invocation(Command(sys.argv[2], shell=True)).on(CommandExecutor()))
