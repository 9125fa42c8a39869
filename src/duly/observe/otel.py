"""OpenTelemetry: a span for every attempt, linked to the span that submitted the run. Needs the extra `otel`.

The submitter's `traceparent` travels in the run's headers, through any store. Only the API package is used: which
spans are kept and where they go is configured by the program, as always with OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Mapping

from duly.errors import MissingExtra
from duly.model import Cancelled, Failed, Interrupted, Lost, Missed, Outcome, OutcomeKind, Run, Succeeded, TimedOut

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as exc:
    raise MissingExtra("tracing with OpenTelemetry", "otel") from exc

_PROPAGATOR = TraceContextTextMapPropagator()


class OpenTelemetry:
    """A tracer for `scheduler.observe(tracer=OpenTelemetry())`.

    An attempt's span is a child of the submitter's span, so that one trace shows both, and also linked to it. With
    `new_trace=True` every attempt begins a new trace that is only linked: for work that starts hours later.
    """

    def __init__(self, provider: trace.TracerProvider | None = None, *, new_trace: bool = False) -> None:
        self._tracer = trace.get_tracer("duly", tracer_provider=provider)
        self._new_trace = new_trace

    def headers(self) -> dict[str, str] | None:
        """The active span's context; None if there is no active span."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier or None

    def attempt(self, run: Run) -> AttemptSpan:
        """Start a span and make it the handler's active one."""
        submitted = _context_of(run.headers)
        span_context = trace.get_current_span(submitted).get_span_context()
        span = self._tracer.start_span(
            f"process {run.job}",
            context=contexts.Context() if self._new_trace else submitted,
            kind=trace.SpanKind.CONSUMER,
            attributes=_attributes(run),
            links=[trace.Link(span_context)] if span_context.is_valid else None,
        )
        active = trace.set_span_in_context(span)
        contexts.attach(active)  # never detached: the attempt's task ends, and its context variables with it
        carrier = {name: value for name, value in (run.headers or {}).items() if name not in _PROPAGATOR.fields}
        _PROPAGATOR.inject(carrier, active)
        return AttemptSpan(span, carrier)


class AttemptSpan:
    """The span of one attempt."""

    def __init__(self, span: trace.Span, headers: dict[str, str]) -> None:
        self._span = span
        self._headers = headers

    @property
    def headers(self) -> dict[str, str] | None:
        return self._headers or None

    def end(self, outcome: Outcome | None) -> None:
        """Record how the attempt ended. A failure is recorded as an OpenTelemetry exception event."""
        match outcome:
            case Succeeded():
                self._span.set_attribute("duly.outcome", OutcomeKind.SUCCEEDED.value)
            case Failed(failure) | TimedOut(failure):
                kind = OutcomeKind.FAILED if isinstance(outcome, Failed) else OutcomeKind.TIMED_OUT
                self._span.set_attributes({"duly.outcome": kind.value, "error.type": failure.type})
                self._span.add_event(
                    "exception",
                    {
                        "exception.type": failure.type,
                        "exception.message": failure.message,
                        "exception.stacktrace": failure.traceback,
                    },
                )
                self._span.set_status(trace.StatusCode.ERROR, f"{failure.type}: {failure.message}")
            case Cancelled():
                self._span.set_attribute("duly.outcome", OutcomeKind.CANCELLED.value)
            case Interrupted() | Missed():
                self._span.set_attribute("duly.outcome", OutcomeKind.INTERRUPTED.value)
            case Lost() | None:
                self._span.set_attribute("duly.outcome", OutcomeKind.LOST.value)
                self._span.set_status(trace.StatusCode.ERROR, "the run was no longer this node's")
        self._span.end()


def _context_of(headers: Mapping[str, str] | None) -> contexts.Context:
    """The context from a run's headers, without a parent from this node: the run was submitted elsewhere."""
    return _PROPAGATOR.extract(headers or {}, contexts.Context())


def _attributes(run: Run) -> dict[str, str | int | float]:
    attributes: dict[str, str | int | float] = {
        "messaging.system": "duly",
        "messaging.operation.type": "process",
        "messaging.destination.name": run.queue,
        "messaging.message.id": run.id,
        "duly.job": run.job,
        "duly.handler": run.handler,
        "duly.attempt": run.attempt,
        "duly.cause": run.cause.value,
        "duly.due": run.due.isoformat(),
    }
    return attributes if run.node is None else attributes | {"duly.node": run.node}
