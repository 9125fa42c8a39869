"""What a scheduler reports, and to whom: its events, and the logger, collector and tracer that are plugged into it."""

from __future__ import annotations

from collections.abc import Callable

from duly.errors import ConfigurationError, SchedulerRunning, shown
from duly.model.event import Event
from duly.observe import Bus, Collecting, EventLog, Logger, MetricsCollector
from duly.observe.bus import Listening
from duly.ports import Tracer


class Subscriptions:
    """The part of a scheduler that others observe. By default its events are logged under `duly.*`."""

    def __init__(self, logger: Logger | None = None, metrics: MetricsCollector | None = None) -> None:
        self._events = Bus()
        self._silence = self._events.subscribe(EventLog())
        self._tracer: Tracer | None = None
        self._plug_in(logger, metrics, None)

    @property
    def is_running(self) -> bool:
        raise NotImplementedError

    def _refuse_running(self, what: str) -> None:
        if self.is_running:
            raise SchedulerRunning(f"{what} must come before start()")

    def subscribe(self, call: Callable[[Event], None], *kinds: type[Event]) -> Callable[[], None]:
        """Call a function on events of these kinds (all, if none is given); call the result to unsubscribe."""
        return self._events.subscribe(Listening(call, kinds or (Event,)))

    def observe(
        self,
        *,
        logger: Logger | None = None,
        metrics: MetricsCollector | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """Plug in your own logger (instead of `duly.*`), a collector of metrics, a tracer; before `start()`."""
        self._refuse_running("observe()")
        self._plug_in(logger, metrics, tracer)

    def _plug_in(self, logger: Logger | None, metrics: MetricsCollector | None, tracer: Tracer | None) -> None:
        if logger is not None:
            _require("logger", logger, Logger, "debug, info, warning and error, such as a logging.Logger")
            self._silence()
            self._silence = self._events.subscribe(EventLog(logger))
        if metrics is not None:
            _require("metrics", metrics, MetricsCollector, "the methods of duly.MetricsCollector")
            self._events.subscribe(Collecting(metrics))
        if tracer is not None:
            self._tracer = tracer


def _require(name: str, given: object, kind: type, methods: str) -> None:
    if not isinstance(given, kind):
        raise ConfigurationError(f"{name}={shown(given)}: expected an object with {methods}")
