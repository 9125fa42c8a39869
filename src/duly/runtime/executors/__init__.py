"""Executors: where a handler runs. Each takes one call and returns what the handler returned, or raises what it raised.

Cancelling `invoke` stops the handler as far as its kind allows: an async handler sees CancelledError, a process or
command is killed with its whole group, a thread cannot be stopped and is left behind as the live run's `residue`.
"""

from duly.runtime.executors.base import Executor, RemoteFailure
from duly.runtime.executors.inline import InlineExecutor
from duly.runtime.executors.threads import ThreadExecutor

__all__ = ["Executor", "InlineExecutor", "RemoteFailure", "ThreadExecutor"]
