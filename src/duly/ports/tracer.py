"""The Tracer port: follows a run from its submission to the handler that executes it.

A scheduler without one pays nothing. `duly.observe.otel` has the one for OpenTelemetry.
"""

from __future__ import annotations

from typing import Protocol

from duly.model import Outcome, Run


class Span(Protocol):
    """One attempt, as the tracer sees it."""

    @property
    def headers(self) -> dict[str, str] | None:
        """What the run says about its trace while this attempt lasts: for its logs, and for what it starts."""
        ...

    def end(self, outcome: Outcome | None) -> None:
        """The attempt is over; None: the run is no longer this node's. Called once, in the attempt's own task."""
        ...


class Tracer(Protocol):
    """Makes spans. Neither method waits."""

    def headers(self) -> dict[str, str] | None:
        """What a run that is submitted here and now shall carry; None if there is no trace to carry on."""
        ...

    def attempt(self, run: Run) -> Span:
        """An attempt begins. Called in its own task, so that context variables set here are the handler's."""
        ...
