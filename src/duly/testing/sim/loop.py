"""SimLoop: an asyncio event loop with virtual time, whose random choices come from a seed.

When nothing is ready, time jumps to the next timer, so an idle hour costs nothing. Of several nodes that are
ready at the same moment the seed chooses who goes next; within one node callbacks keep their order. The same seed gives
the same run, step for step: tasks and futures hash by their number, so sets of them iterate alike every time.

Tasks, futures, timeouts, task groups, queues and events are asyncio's own. Threads are simulated: `run_in_executor`
calls the function on a later turn. There are no sockets (`offline`). A killed node's coroutines stay where they are
until the loop is closed, and are then thrown away: whatever their `finally` blocks still schedule goes nowhere.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import logging
import random
import sys
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context, copy_context
from itertools import count
from typing import Any, TypeVar, TypeVarTuple, cast
from weakref import WeakSet

from msgspec import Struct

from duly.testing.sim.node import SimNode, node_of
from duly.testing.sim.offline import OfflineLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]

_log = logging.getLogger("duly.testing.sim")
_PRUNE_ABOVE = 1000
_CLOSINGS = 10


class SimulationStopped(Exception):
    """The simulation cannot or may not go on."""


class Deadlock(SimulationStopped):
    """Nothing is ready, no timer is set, and what was waited for is not done."""


class OutOfBounds(SimulationStopped):
    """More steps or more virtual time than allowed."""


class Step(Struct, frozen=True):
    """One callback that ran: when, in whose name, and what it was."""

    at: float
    node: str
    what: str


class SimLoop(OfflineLoop):
    """See above. `run` is the way in; `trace=True` keeps every step in `steps`."""

    def __init__(
        self, seed: int = 0, *, max_steps: int = 20_000_000, max_time: float = 1e8, trace: bool = False
    ) -> None:
        self.seed = seed
        self.nodes: list[SimNode] = []
        self.complaints: list[BaseException] = []
        self.steps: list[Step] | None = [] if trace else None
        self.taken = 0
        self._max_steps = max_steps
        self._max_time = max_time
        self._rng = random.Random(f"loop/{seed}")
        self._time = 0.0
        self._ready: dict[SimNode | None, deque[_Turn]] = {}
        self._timers: list[tuple[float, int, _Turn]] = []
        self._numbers = count(1)
        self._tasks: list[asyncio.Task[Any]] = []
        self._asyncgens: WeakSet[AsyncGenerator[Any, Any]] = WeakSet()
        self._handler: ExceptionHandler | None = None
        self._running = False
        self._stopping = False
        self._burying = False
        self._closed = False

    # --- nodes

    def node(self, name: str) -> SimNode:
        """A new simulated process."""
        node = SimNode(self, name)
        self.nodes.append(node)
        return node

    # --- running

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` on the stage until it is done, then close. Complaints of callbacks and failed nodes are raised."""
        try:
            answer = self.run_until_complete(main)
        finally:
            self.close()
        failures = [node.failure for node in self.nodes if node.failure is not None]
        if self.complaints or failures:
            raise BaseExceptionGroup("the simulation ended with errors", [*self.complaints, *failures])
        return answer

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        awaited = asyncio.ensure_future(cast("Awaitable[T]", future), loop=self)
        awaited.add_done_callback(self._stop_for)
        try:
            self.run_forever()
        finally:
            awaited.remove_done_callback(self._stop_for)
        if not awaited.done():
            raise RuntimeError("the loop was stopped before the future was done")
        return awaited.result()

    def _stop_for(self, _: object) -> None:
        self.stop()

    def run_forever(self) -> None:
        self._check_open()
        if self._running:
            raise RuntimeError("this loop is already running")
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._asyncgens.add, finalizer=self._finalize)
        self._running, self._stopping = True, False
        _set_running_loop(self)
        try:
            while not self._stopping:
                self._step()
        finally:
            _set_running_loop(None)
            self._running = False
            sys.set_asyncgen_hooks(*hooks)

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def time(self) -> float:
        return self._time

    def _step(self) -> None:
        turn = self._next()
        if turn is None:
            raise Deadlock(f"at {self._time:.3f}s of seed {self.seed} nothing can happen any more:\n{self._pending()}")
        self.taken += 1
        if self.taken > self._max_steps or self._time > self._max_time:
            raise OutOfBounds(f"seed {self.seed} took {self.taken} steps and {self._time:.3f}s:\n{self._pending()}")
        if self.steps is not None:
            self.steps.append(Step(self._time, turn.node.name if turn.node else "", turn.what))
        turn.take()

    def _next(self) -> _Turn | None:
        """The callback whose turn it is; time passes if it must."""
        while True:
            nodes = [node for node, queue in self._ready.items() if queue and (node is None or node.awake)]
            if not nodes:
                if not self._pass_time():
                    return None
                continue
            turn = self._ready[nodes[0] if len(nodes) == 1 else self._rng.choice(nodes)].popleft()
            if not turn.cancelled():
                return turn

    def _pass_time(self) -> bool:
        """Jump to the next timer of a node that is awake. Timers of paused nodes have no effect yet."""
        while self._timers:
            self._time = max(self._time, self._timers[0][0])
            awake = False
            while self._timers and self._timers[0][0] <= self._time:
                turn = heapq.heappop(self._timers)[2]
                awake |= self._line_up(turn) and (turn.node is None or turn.node.awake)
            if awake:
                return True
        return False

    def _line_up(self, turn: _Turn) -> bool:
        if turn.cancelled() or (turn.node is not None and turn.node.killed):
            return False
        self._ready.setdefault(turn.node, deque()).append(turn)
        return True

    def _pending(self) -> str:
        """What is still waited for, and where."""
        lines = [f"  {task.get_name()}: {_place(task)}" for task in self._tasks if not task.done()]
        return "\n".join([*map(repr, [node for node in self.nodes if not node.awake]), *lines])

    # --- callbacks

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> _Turn:
        return self._schedule(self._time, callback, args, context)

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> _Turn:
        return self._schedule(self._time, callback, args, context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> _Turn:
        return self._schedule(self._time + delay, callback, args, context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> _Turn:
        return self._schedule(when, callback, args, context)

    def _schedule(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> _Turn:
        turn = _Turn(when, callback, args, self, copy_context() if context is None else context)
        if self._burying:
            return turn
        self._check_open()
        if when <= self._time:
            self._line_up(turn)
        else:
            heapq.heappush(self._timers, (when, next(self._numbers), turn))
        return turn

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asyncio reports it; cancelled turns are passed over when they come up."""

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """No thread: the function runs on a later turn of the same node."""
        future: asyncio.Future[T] = self.create_future()

        def call() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - a thread hands every exception to its future
                future.set_exception(error)

        self.call_soon(call)
        return future

    # --- tasks and futures

    def create_future(self) -> asyncio.Future[Any]:
        return _SimFuture(next(self._numbers), self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Any,
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        self._check_open()
        task: asyncio.Task[T] = _SimTask(next(self._numbers), coro, self, name, context)
        if len(self._tasks) > _PRUNE_ABOVE:
            self._tasks = [kept for kept in self._tasks if not kept.done()]
        self._tasks.append(task)  # or a killed node's coroutine would be collected, and its `finally` run
        return task

    def get_task_factory(self) -> None:
        return None

    # --- complaints

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._closed or self._burying:
            return
        if self._handler is not None:
            self._handler(self, context)
        else:
            self.default_exception_handler(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an exception for `run` to raise, and log the report."""
        error = context.get("exception")
        if isinstance(error, BaseException):
            self.complaints.append(error)
        _log.error("%s at %.3fs: %s", context.get("message"), self._time, error)

    def set_exception_handler(self, handler: ExceptionHandler | None) -> None:
        self._handler = handler

    def get_exception_handler(self) -> ExceptionHandler | None:
        return self._handler

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """There is no debug mode: it would read the real clock."""

    # --- the end

    async def shutdown_asyncgens(self) -> None:
        for generator in list(self._asyncgens):
            await generator.aclose()

    async def shutdown_default_executor(self) -> None:
        """There are no threads to wait for."""

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not (self._closed or self._burying):
            self.call_soon(self.create_task, generator.aclose())

    def close(self) -> None:
        """Close the coroutines that have not ended; what they still schedule is dropped."""
        if self._running:
            raise RuntimeError("a running loop cannot be closed")
        if self._closed:
            return
        self._burying = True
        self._ready.clear()
        self._timers.clear()
        for task in self._tasks:
            if not task.done():
                _bury(task.get_coro())
        self._burying, self._closed = False, True

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the simulated loop is closed")


class _Turn(asyncio.TimerHandle):
    """A callback that is to run once, and the node it belongs to."""

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: SimLoop, context: Context
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.node = node_of(context)
        self.callback = callback

    def take(self) -> None:
        self._run()

    @property
    def what(self) -> str:
        owner = getattr(self.callback, "__self__", None)
        if isinstance(owner, asyncio.Task):
            return getattr(owner.get_coro(), "__qualname__", "task")
        return getattr(self.callback, "__qualname__", type(self.callback).__name__)


class _SimFuture(asyncio.Future[Any]):
    """A future that hashes by its number, not by its address in memory."""

    def __init__(self, number: int, loop: SimLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _SimTask(asyncio.Task[T]):
    """A task that hashes by its number, not by its address in memory."""

    def __init__(
        self, number: int, coro: Coroutine[Any, Any, T], loop: SimLoop, name: str | None, context: Context | None
    ) -> None:
        self._number = number
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number


def _place(task: asyncio.Task[Any]) -> str:
    """Where a task waits: its innermost line."""
    frames = task.get_stack()
    if not frames:
        return "not begun"
    return f"{frames[-1].f_code.co_qualname}, line {frames[-1].f_lineno}"


def _bury(coroutine: Any) -> None:
    """Close a coroutine, however often it awaits again while it is closed."""
    for _ in range(_CLOSINGS):
        if not inspect.iscoroutine(coroutine) or inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED:
            return
        with suppress(BaseException):
            coroutine.close()
