"""Log lines about a store that cannot be reached: one when it begins, few while it lasts, one when it ends.

Every service of a node tries again every few seconds, and each failure is an event. Which of them are written is
decided by `rules.repeats`.
"""

from __future__ import annotations

from collections.abc import Callable

from duly.model import event as events
from duly.rules.durations import span
from duly.rules.repeats import Repeats, repeat

Line = tuple[str, dict[str, object]]


class StoreOutages:
    """Knows which services cannot reach which part of the store."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._current: dict[str, _Outage] = {}
        self._repeats: dict[str, Repeats] = {}

    def away(self, event: events.StoreAway) -> Line | None:
        """A service could not reach a part of the store; return what to write, if anything."""
        now = self._monotonic()
        outage = self._current.get(event.part)
        began = outage is None
        if outage is None:
            outage = self._current[event.part] = _Outage(now)
        outage.services.add(event.service)
        outage.failures += 1
        self._repeats[event.part], left_out = repeat(self._repeats.get(event.part), now)
        if left_out is None:
            return None
        outage.written = True
        if began:
            earlier = f"; {left_out} failed calls before this were not logged" if left_out else ""
            text = f"the {event.part} cannot be reached: {event.message}; the node keeps trying{earlier}"
        else:
            lasted = f"{span(now - outage.since)} and {outage.failures} failed calls"
            text = f"the {event.part} still cannot be reached after {lasted}: {event.message}"
        return text, {"part": event.part, "failures": outage.failures, "error": event.message}

    def back(self, event: events.StoreBack) -> Line | None:
        """A service reaches the store again; the last of them ends the outage."""
        for part, outage in list(self._current.items()):
            outage.services.discard(event.service)
            if not outage.services:
                del self._current[part]
                if outage.written:
                    seconds = self._monotonic() - outage.since
                    text = f"the {part} can be reached again after {span(seconds)} and {outage.failures} failed calls"
                    return text, {"part": part, "failures": outage.failures, "seconds": seconds}
        return None

    def forget(self) -> None:
        """The node has stopped: its services will not say that they reach the store."""
        self._current.clear()


def outage_detail(event: events.StoreAway | events.StoreBack) -> str:
    """One failed or successful call of a service, for DEBUG."""
    match event:
        case events.StoreAway(service, message, retry_in, part):
            return f"{service}: the {part} cannot be reached ({message}), next try in {retry_in:.1f} s"
        case events.StoreBack(service, seconds):
            return f"{service}: the store can be reached again after {seconds:.1f} s"


class _Outage:
    """One outage of one part of the store, as this process sees it."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.services: set[str] = set()
        self.failures = 0
        self.written = False
