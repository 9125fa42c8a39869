"""The publisher: writes the events of this process into the store's log of events, which any process can follow.

Best effort by design: it collects events and writes them at most every fifth of a second. Events that are too many, or
that were emitted while the store was unreachable, are only counted; one event reports that count, which is a lower
bound where nobody else needed them. No run ever waits for it, and without events it does nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

import msgspec

from duly.model import event as events
from duly.model import iso
from duly.model.published_event import EVENTS, PublishedEvent, PublishedEventKind
from duly.observe.published_events import PUBLISHED, notices_of
from duly.ports import ValueStore

MOST_AT_ONCE = 1_000
PERIOD = 0.2

_AFTER_FAILURE = 2.0
_LAST_WORDS = 1.0  # seconds for writing the last events when the process stops

_MOST_CREATED = 100  # in a period; those that are created for others, such as metrics, are published beyond that
_FREQUENT = frozenset({events.RunStarted, events.RunEnded})

_log = logging.getLogger("duly.observe")


class Publisher:
    """A subscriber on one event loop, with that loop's session on the store. `node` is the name it publishes under."""

    def __init__(
        self,
        store: ValueStore,
        now: Callable[[], datetime],
        node: str,
        keep: Callable[[], int],
        *,
        period: float = PERIOD,
    ) -> None:
        self._node = node
        self._store = store
        self._now = now
        self._keep = keep
        self._period = period
        self._loop = asyncio.get_running_loop()
        self._waiting: list[PublishedEvent] = []
        self._dropped = 0
        self._away = False
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def wants(self, kind: type[events.Event]) -> bool:
        """Of single runs, only some events are created for this: there may be 20,000 runs a second."""
        return kind in PUBLISHED and (kind not in _FREQUENT or len(self._waiting) < _MOST_CREATED)

    def __call__(self, event: events.Event) -> None:
        if type(event) not in PUBLISHED or self._closing.is_set():
            return
        room = MOST_AT_ONCE - len(self._waiting)
        notices, over = notices_of(event, self._now(), self._node, room)
        self._waiting += notices
        self._dropped += over
        if self._task is None and self._waiting:
            self._task = self._loop.create_task(self._publish(), name="duly-publisher")

    async def _publish(self) -> None:
        """Write the collected events, in batches, until none are left."""
        try:
            while self._waiting or self._dropped:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_AFTER_FAILURE if self._away else self._period):
                        await self._closing.wait()
                await self._send()
                if self._away and self._closing.is_set():
                    return
        finally:
            self._task = None

    async def _send(self) -> None:
        batch, self._waiting = self._waiting, []
        dropped, self._dropped = self._dropped, 0
        if dropped:
            at = iso(self._now())
            batch.append(PublishedEvent(kind=PublishedEventKind.DROPPED, at=at, node=self._node, count=dropped))
        try:
            await self._store.append(EVENTS, [_encode(notice) for notice in batch], keep=self._keep())
        except Exception as exc:  # noqa: BLE001  # the loop of a service: logged once, counted, retried
            self._dropped += dropped + len(batch) - bool(dropped)
            if not self._away:
                _log.warning("events are not published for now, they are only counted: %s", exc)
            self._away = True
        else:
            self._away = False

    async def close(self) -> None:
        """Write the remaining events, if the store is fast enough."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_LAST_WORDS)
        if self._task is not None:
            self._task.cancel()


_encode = msgspec.json.Encoder().encode
