"""A program whose handlers are in its main script. Prints what became of them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import NoReturn

from executor_support import Invocation

from duly.runtime.executors import ProcessExecutor, RemoteFailure

os.environ["STARTS"] = str(int(os.environ.get("STARTS", "0")))


class Unhappy(Exception):
    pass


def answer() -> int:
    return 42


def complain() -> NoReturn:
    raise Unhappy


def starts() -> int:
    return int(os.environ["STARTS"])


async def main() -> None:
    executor = ProcessExecutor()
    value = await Invocation(answer).on(executor)
    try:
        await Invocation(complain).on(executor)
    except RemoteFailure as error:
        told = {"type": error.type_name, "lineage": error.lineage[0]}
    told["starts"] = await Invocation(starts).on(executor)
    await executor.close()
    sys.stdout.write(json.dumps({"value": value, **told}))


if __name__ == "__main__":
    os.environ["STARTS"] = str(int(os.environ["STARTS"]) + 1)
    asyncio.run(main())
