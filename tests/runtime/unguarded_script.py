"""A program that forgot to guard its start: loading it again would start it again."""

from __future__ import annotations

import asyncio
import sys

from executor_support import Invocation

from duly.runtime.executors import ProcessExecutor, RemoteFailure


def answer() -> int:
    return 42


async def main() -> None:
    executor = ProcessExecutor()
    try:
        await Invocation(answer).on(executor)
    finally:
        await executor.close()


try:
    asyncio.run(main())
except RemoteFailure as error:
    if __name__ != "__main__":
        raise
    sys.stdout.write(error.message)
