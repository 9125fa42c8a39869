"""The run that this task or thread is executing, for logs and traces."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from duly.model.run import Run
from duly.model.trace import trace_id

current_run: ContextVar[Run | None] = ContextVar("duly_current_run", default=None)


def run_fields(run: Run) -> dict[str, Any]:
    """The fields of a log record that describe its run; includes the trace if there is one."""
    fields = {"run_id": run.id, "job": run.job, "attempt": run.attempt, "node": run.node}
    trace = trace_id(run.headers)
    return fields if trace is None else fields | {"trace_id": trace}


def current_fields() -> dict[str, Any]:
    """The same fields for the run that is being executed here; empty outside handlers."""
    run = current_run.get()
    return {} if run is None else run_fields(run)
