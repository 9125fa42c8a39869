"""Executors: where a handler runs. Each takes one call and returns what the handler returned, or raises what it raised.

Cancelling `invoke` stops the handler as far as its kind allows: an async handler sees CancelledError, a process or
command is killed with its whole group, a thread cannot be stopped and is left behind as the live run's `residue`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from duly.runtime.executors.base import BuiltinExecutor, InlineExecutor, RemoteFailure
from duly.runtime.executors.threads import ThreadExecutor

if TYPE_CHECKING:
    from duly.runtime.executors.commands import CommandExecutor
    from duly.runtime.executors.import_path import importable
    from duly.runtime.executors.processes import ProcessExecutor
    from duly.runtime.executors.supervised import SupervisedProcesses

__all__ = [
    "BuiltinExecutor",
    "CommandExecutor",
    "InlineExecutor",
    "ProcessExecutor",
    "RemoteFailure",
    "SupervisedProcesses",
    "ThreadExecutor",
    "importable",
]

# Loaded at first use: every child interpreter imports this package, and few nodes need all of it.
_LATE = {
    "CommandExecutor": "commands",
    "ProcessExecutor": "processes",
    "SupervisedProcesses": "supervised",
    "importable": "import_path",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
