"""A simulated process: everything that runs in its name, and what can be done to it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class SimNode:
    """One process on a simulated loop. Made by `SimLoop.node`; a process that is started again is a new one.

    What it starts carries its name in a context variable, and so does everything that follows from it, since tasks and
    callbacks inherit their context.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self.name = name
        self.paused = False
        self.killed = False
        self.failure: BaseException | None = None
        self._loop = loop

    def __repr__(self) -> str:
        state = " killed" if self.killed else " paused" if self.paused else ""
        return f"<node {self.name}{state}>"

    @property
    def awake(self) -> bool:
        """Whether its callbacks run now."""
        return not (self.paused or self.killed)

    def context(self) -> Context:
        """A context in which everything belongs to this node."""
        context = copy_context()
        context.run(_node.set, self)
        return context

    def start(self, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as part of this node. An exception that ends it is kept as the node's `failure`."""
        context = self.context()
        name = f"{self.name}:{getattr(main, '__qualname__', 'main')}"
        task = self._loop.create_task(main, name=name, context=context)
        task.add_done_callback(self._ended, context=context)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()

    def pause(self) -> None:
        """As SIGSTOP: nothing of it runs until it is resumed, while time goes on."""
        self.paused = True

    def resume(self) -> None:
        """As SIGCONT: what became due meanwhile runs now, late, in its order."""
        self.paused = False

    def kill(self) -> None:
        """As kill -9: nothing of it ever runs again, no `finally` either, and no other node is notified."""
        self.killed = True


_node: ContextVar[SimNode | None] = ContextVar("duly_sim_node", default=None)


def current_node() -> SimNode | None:
    """The node in whose name the present code runs; None on the stage itself."""
    return _node.get()


def node_of(context: Context) -> SimNode | None:
    """The node that a context belongs to."""
    return context.get(_node)
