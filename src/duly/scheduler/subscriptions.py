"""What a scheduler tells, and to whom: its events, and the logger, collector and tracer that are plugged into it."""

from __future__ import annotations

from collections.abc import Callable

from duly.errors import SchedulerRunning
from duly.model.event import Event
from duly.observe import Bus, Collecting, EventLog, Logger, MetricsCollector
from duly.observe.bus import Listening
from duly.ports import Tracer


class Subscriptions:
    """The part of a scheduler that others watch. From the beginning `duly.*` of the standard library is told."""

    def __init__(self) -> None:
        self._events = Bus()
        self._silence = self._events.subscribe(EventLog())
        self._tracer: Tracer | None = None

    @property
    def is_running(self) -> bool:
        raise NotImplementedError

    def _refuse_running(self, what: str) -> None:
        if self.is_running:
            raise SchedulerRunning(f"{what} must come before start()")

    def subscribe(self, call: Callable[[Event], None], *kinds: type[Event]) -> Callable[[], None]:
        """Call a function on events of these kinds (all, if none is given); what is returned ends that."""
        return self._events.subscribe(Listening(call, kinds or (Event,)))

    def observe(
        self,
        *,
        logger: Logger | None = None,
        metrics: MetricsCollector | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """Plug in a logger of your own (instead of `duly.*`), a collector of metrics, a tracer; before `start()`."""
        self._refuse_running("observe()")
        if logger is not None:
            self._silence()
            self._silence = self._events.subscribe(EventLog(logger))
        if metrics is not None:
            self._events.subscribe(Collecting(metrics))
        if tracer is not None:
            self._tracer = tracer
