"""The Tracer port: follows a run from its submission to the handler that executes it.

A scheduler without a tracer has no overhead. `duly.observe.otel` has the tracer for OpenTelemetry.
"""

from __future__ import annotations

from typing import Protocol

from duly.model import Outcome, Run


class Span(Protocol):
    """One attempt, as the tracer sees it."""

    @property
    def headers(self) -> dict[str, str] | None:
        """The trace headers of the run during this attempt: for its logs, and for what it starts."""
        ...

    def end(self, outcome: Outcome | None) -> None:
        """The attempt is over; None: this node no longer owns the run. Called once, in the attempt's own task."""
        ...


class Tracer(Protocol):
    """Makes spans. Neither method waits."""

    def headers(self) -> dict[str, str] | None:
        """The trace headers for a run that is submitted now; None if there is no trace to continue."""
        ...

    def attempt(self, run: Run) -> Span:
        """An attempt begins. Called in its own task, so that the handler sees context variables that are set here."""
        ...
