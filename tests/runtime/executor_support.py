"""Builders and observers for the tests of executors. Imported by tests and by the scripts they start."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from duly.model import Claim, Progress, Run, RunPolicy
from duly.rules.retry import RetryPolicy
from duly.runtime.active_runs import ActiveRun
from duly.runtime.command import Command
from duly.runtime.context import Context
from duly.runtime.executors import BuiltinExecutor
from duly.runtime.handler import ExecutorKind, Handler

HERE = Path(__file__).parent
DUE = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)
PATIENCE = 30.0


class Closable(Protocol):
    async def close(self) -> None: ...


class LiveTether:
    """What a node answers to a context, from the live run alone."""

    def __init__(self, live: ActiveRun) -> None:
        self._live = live

    @property
    def cancelled(self) -> bool:
        return self._live.cancelled or self._live.timed_out

    @property
    def owned(self) -> bool:
        return not self._live.lost

    def report(self, progress: Progress) -> None:
        self._live.progress = progress

    def keep(self, level: int, logger: str, text: str) -> None:
        raise NotImplementedError

    def transaction(self) -> Any:
        raise NotImplementedError


class Invocation:
    """One call of a handler, with everything an executor is given."""

    def __init__(self, target: Callable[..., Any] | Command, *, timeout: float | None = None, **payload: Any) -> None:
        command = isinstance(target, Command)
        run = Run(
            id="00061f2f9b1c4a00a1b2c3d4e5",
            job="report",
            handler="report",
            due=DUE,
            ready_at=DUE,
            payload=msgspec.json.encode(payload),
            policy=RunPolicy(timeout=timeout),
            failures=1,
            fence=42,
            started_at=DUE,
        )
        self.handler = Handler(
            name="report",
            target=target,
            executor=ExecutorKind.COMMAND if command else ExecutorKind.PROCESS,
            takes_context=not command and next(iter(inspect.signature(target).parameters), "") == "ctx",
            decode=msgspec.json.decode,
            encode=msgspec.json.encode,
            retry=RetryPolicy(),
        )
        self.live = ActiveRun(Claim(run, 42, DUE), self.handler, 0.0, 1e9)

    def of(self, live: ActiveRun) -> Context:
        return Context(live.claim.run, LiveTether(live))

    def begin(self, live: ActiveRun) -> None:
        live.begin(0.0)

    async def on(self, executor: BuiltinExecutor) -> Any:
        return await executor.invoke(self.live, self.handler, self, {})

    def start(self, executor: BuiltinExecutor) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self.on(executor))


async def eventually(check: Callable[[], Any], what: str = "") -> Any:
    """Wait until `check` is true of the world outside this process."""
    deadline = time.monotonic() + PATIENCE
    while not (value := check()):
        assert time.monotonic() < deadline, what or f"{check} never came true"
        await asyncio.sleep(0.005)
    return value


def announce(path: str | Path, *words: object) -> None:
    """Write a file in one step, for somebody who waits for it."""
    unfinished = Path(f"{path}.{os.getpid()}")
    unfinished.write_text(" ".join(str(word) for word in words))
    unfinished.rename(path)


async def announced(path: Path) -> list[str]:
    """The words of a file that somebody else is to write in one step."""
    return await eventually(lambda: path.exists() and path.read_text().split(), f"{path.name} was never written")


def alive(pid: int) -> bool:
    """Whether a process exists and is not just waiting to be buried."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


async def all_dead(*pids: int | str) -> None:
    await eventually(lambda: not any(alive(int(pid)) for pid in pids), f"of {pids} some live on")


def children() -> set[int]:
    """The children of this process, the unburied included."""
    return {int(pid) for listing in Path("/proc/self/task").glob("*/children") for pid in listing.read_text().split()}


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def nothing_left() -> Iterator[None]:
    """Whoever uses this leaves no child process and no file descriptor behind."""
    before = children(), descriptors()
    yield
    assert (children(), descriptors()) == before


def script(name: str) -> list[str]:
    return [sys.executable, str(HERE / name)]


def on_both_loops(test: Callable[..., Any]) -> Callable[..., None]:
    """Run an async test on asyncio's own event loop and on uvloop."""
    import pytest
    import uvloop

    def run(*args: Any, loop_factory: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(test(*args, **kwargs))

    signature = inspect.signature(test)
    chosen = inspect.Parameter("loop_factory", inspect.Parameter.KEYWORD_ONLY)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), chosen])
    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    run.pytestmark = getattr(test, "pytestmark", [])
    factories = [asyncio.new_event_loop, uvloop.new_event_loop]
    return pytest.mark.parametrize("loop_factory", factories, ids=["asyncio", "uvloop"])(run)


@asynccontextmanager
async def opened(executor: Closable) -> AsyncIterator[Any]:
    """An executor, or processes, for one test. Afterwards nothing of it is left."""
    with nothing_left():
        try:
            yield executor
        finally:
            await executor.close()
