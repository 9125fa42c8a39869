"""The run that this task or thread is executing, for logs and traces."""

from __future__ import annotations

from contextvars import ContextVar

from duly.model.run import Run

current_run: ContextVar[Run | None] = ContextVar("duly_current_run", default=None)
