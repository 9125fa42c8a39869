"""Handlers that tests run in child interpreters."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import msgspec
import pydantic
from executor_support import announce

from duly.errors import GiveUp, Retry
from duly.model.current_run import current_run
from duly.runtime.context import Context


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int


class Order(msgspec.Struct):
    id: UUID
    total: Decimal
    at: datetime


class Person(pydantic.BaseModel):
    name: str
    born: date


class Refused(ValueError):
    pass


def add(a: int, b: int = 10) -> int:
    return a + b


def echo(value: Any = None) -> Any:
    return value


def typed(when: datetime, key: UUID, price: Decimal, point: Point, order: Order, colour: Colour, **rest: date) -> Any:
    kinds = [type(each).__name__ for each in (when, key, price, point, order, order.total, colour, *rest.values())]
    return {"kinds": kinds, "next": when + timedelta(days=1), "point": point, "order": order, "colour": colour}


def older(person: Person) -> Person:
    return Person(name=person.name, born=person.born - timedelta(days=1))


async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


def pid() -> int:
    return os.getpid()


def allocate(size: int) -> int:
    return len(bytearray(size))


def compute() -> NoReturn:
    while True:
        pass


def facts(ctx: Context) -> dict[str, Any]:
    run = current_run.get()
    return {
        "run_id": ctx.run_id,
        "job": ctx.job,
        "attempt": ctx.attempt,
        "due": ctx.due,
        "deadline": ctx.deadline,
        "fence": ctx.fence,
        "key": ctx.idempotency_key,
        "cancelled": ctx.cancelled,
        "current": None if run is None else run.id,
    }


def surroundings() -> dict[str, Any]:
    return {
        "path": sys.path,
        "argv": sys.argv,
        "cwd": str(Path.cwd()),
        "session": os.getsid(0) == os.getpid(),
        "threads": threading.active_count(),
        "link_is_private": not os.get_inheritable(3),
    }


def move(to: str) -> None:
    os.chdir(to)


# --- ways to fail


def refuse() -> NoReturn:
    raise Refused("not today")


def retry(after: float | None = None) -> NoReturn:
    raise Retry(after)


def retry_in_a_while() -> NoReturn:
    raise Retry(timedelta(minutes=2))


def give_up() -> NoReturn:
    raise GiveUp("no use")


def unspeakable() -> NoReturn:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    raise Mute


def odd_text() -> NoReturn:
    raise ValueError("name \udcff\0")


def leave() -> NoReturn:
    raise SystemExit(3)


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


def vanish(code: int) -> NoReturn:
    os._exit(code)


def crash() -> None:
    ctypes.string_at(0)


def recurse() -> None:
    recurse()


def unencodable() -> object:
    return object()


def not_a_number() -> dict[str, list[float | None]]:
    return {"values": [1.0, None, float("nan")]}


def big(size: int) -> str:
    return "x" * size


def close_link() -> None:
    os.close(3)


def fork_and_return() -> int:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return os.getpid()


# --- being stopped


def hang(ready: str) -> None:
    announce(ready, os.getpid())
    while True:
        time.sleep(60)


async def hang_async(ready: str, cleaned: str) -> None:
    try:
        announce(ready, os.getpid())
        await asyncio.Event().wait()
    finally:
        announce(cleaned, "yes")


def until_cancelled(ctx: Context, ready: str, seen: str) -> str:
    announce(ready, os.getpid())
    while not ctx.cancelled:
        time.sleep(0.001)
    announce(seen, "cancelled")
    return "stopped"


def until_check_fails(ctx: Context, ready: str) -> None:
    announce(ready, os.getpid())
    while True:
        ctx.check()
        time.sleep(0.001)


def spawn_and_hang(ready: str) -> None:
    """A handler with a child in its group, and one that has detached itself with all its might."""
    child = subprocess.Popen(["sleep", "1000"])
    announce(ready, os.getpid(), child.pid, _daemon())
    while True:
        time.sleep(60)


def spawn_and_return() -> list[int]:
    return [os.getpid(), subprocess.Popen(["sleep", "1000"]).pid, _daemon()]


def _daemon() -> int:
    reader, writer = os.pipe()
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writer, str(os.getpid()).encode())
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.execvp("sleep", ["sleep", "1000"])
        os._exit(0)
    os.waitpid(first, 0)
    return int(os.read(reader, 32))


# --- telling


def report(ctx: Context, ready: str, go: str) -> None:
    ctx.progress(1, 4, "a quarter")
    announce(ready, os.getpid())
    while not Path(go).exists():
        time.sleep(0.001)


def report_every_step(ctx: Context, steps: int) -> int:
    for step in range(steps):
        ctx.progress(step, steps)
    return steps


def transact(ctx: Context) -> None:
    ctx.transaction()


def log(ctx: Context) -> None:
    logging.getLogger("app.part").warning("%d things", 3, extra={"colour": "red", "thing": object()})
    logging.getLogger("app.part").debug("nobody wants this")
    ctx.log.info("hello")
    try:
        refuse()
    except Refused:
        logging.getLogger("app").exception("failed")


def say(text: str) -> None:
    print(text)  # noqa: T201  # what becomes of it is the question
    print(text, file=sys.stderr)  # noqa: T201


class Tool:
    @staticmethod
    def shared() -> str:
        return "static"

    @classmethod
    def of_class(cls) -> str:
        return cls.__name__

    def bound(self) -> str:
        return "bound"


class Handle:
    """What a decorator may leave in place of the function."""

    def __init__(self, function: Any) -> None:
        self.function = function


@Handle
def wrapped() -> str:
    return "inside"


def shadowed() -> str:
    return "first"


first_shadowed = shadowed


def shadowed() -> str:  # a name that means something else by now is the point
    return "second"
