"""What a scheduler tells, and to whom: its events, and the logger, collector and tracer that are plugged into it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from duly.errors import SchedulerRunning
from duly.model import SchedulerConfig
from duly.model.event import Event
from duly.observe import Bus, Collecting, EventLog, Logger, MetricsCollector
from duly.observe.bus import Listening
from duly.observe.publisher import Publisher
from duly.ports import Clock, Tracer, ValueStore


def publisher_for(store: ValueStore, config: SchedulerConfig, clock: Clock) -> Publisher | None:
    """Who publishes what a session tells, if the settings say so."""
    if not config.publish_events:
        return None
    name = config.node_id or f"{socket.gethostname()}-{os.getpid()}"
    return Publisher(store, clock.now, name, config.keep_events)


def joined(events: Bus, publisher: Publisher | None) -> Bus:
    """Where a session's events go: to all subscribers, and to its own publisher."""
    if publisher is None:
        return events
    both = Bus()
    both.subscribe(publisher)
    both.subscribe(events)
    return both


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
