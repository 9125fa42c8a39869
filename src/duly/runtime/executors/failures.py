"""Failures without an exception class: what can go wrong around a handler in another process."""

from __future__ import annotations

from duly.runtime.executors.base import RemoteFailure


def failed(kind: str, message: str, traceback: str = "") -> RemoteFailure:
    """A failure named `kind`."""
    return RemoteFailure(kind, message, traceback, lineage_of(kind))


def executor_failed(why: str) -> RemoteFailure:
    """The executor itself failed, not the handler."""
    return failed("ExecutorFailed", why)


def lineage_of(kind: str) -> tuple[str, ...]:
    """Such a failure is retried like any Exception."""
    return (f"duly.{kind}", "builtins.Exception", "builtins.BaseException", "builtins.object")
