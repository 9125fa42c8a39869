"""The bus: carries events to subscribers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from duly.model.event import Event

_log = logging.getLogger("duly.observe")


class Subscriber(Protocol):
    """Receives events, and says in advance which kinds it needs."""

    def __call__(self, event: Event) -> None: ...

    def wants(self, kind: type[Event]) -> bool: ...


class Bus:
    """Calls every subscriber in turn. One that fails is logged and does not affect the node."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = subscribers

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Add a subscriber; returns a function that removes it."""
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            self._subscribers = tuple(each for each in self._subscribers if each is not subscriber)

        return unsubscribe

    def wants(self, kind: type[Event]) -> bool:
        for subscriber in self._subscribers:  # noqa: SIM110  # on every submission: a generator takes twice as long
            if subscriber.wants(kind):
                return True
        return False

    def __call__(self, event: Event) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:  # noqa: BLE001  # a subscriber is the user's code: its failure is logged, not raised
                _log.exception("a subscriber failed on %s", type(event).__name__)


class Listening:
    """A plain function as a subscriber to certain kinds of events."""

    def __init__(self, call: Callable[[Event], None], kinds: tuple[type[Event], ...]) -> None:
        self._call = call
        self._kinds = kinds

    def wants(self, kind: type[Event]) -> bool:
        return issubclass(kind, self._kinds)

    def __call__(self, event: Event) -> None:
        if isinstance(event, self._kinds):
            self._call(event)
