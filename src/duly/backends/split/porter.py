"""The porter: what a session says at the door after a write, and what it hears there while it waits.

After a commit it announces: runs that are ready by their ids, an earlier due time by its instant, anything else by
"look". What it has read stays in its hands until the next claim has been made, which is what the bell was for. Now
and then one porter of the cluster announces again what waits though it is ready: nobody may have announced it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime

from duly.backends.redis.bell import MANY
from duly.backends.split.bands import band_of, entries_of
from duly.backends.split.doorbell import LOOK, Doorbell, Entry
from duly.model import Run, seconds_between, to_micros
from duly.ports import Clock, Queue, Store
from duly.ports.waiting import noticed

_SWEEP = 2.0  # seconds between sweeps, of all porters together
_OVERDUE = 1.0  # seconds a run may wait before it counts as not announced
_MOST_SWEPT = 200
_LONGEST_DEAF = 1.0  # seconds between looks at the store while the doorbell is away
_AT_HAND = "middle"  # where the priority is not at hand


class Porter:
    """Belongs to one session."""

    def __init__(self, doorbell: Doorbell, queue: Queue, store: Store, clock: Clock) -> None:
        self.doorbell = doorbell
        self.next_due: datetime | None = None
        self._queue = queue
        self._store = store
        self._clock = clock
        self._in_hand: list[Entry] = []
        self._looked_after: list[Entry] = []
        self._forgetting: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[list[Entry] | None] | None = None
        self._sweep_at = 0.0

    # --- announcing

    async def added(self, runs: Iterable[Run]) -> None:
        """These runs were put: the ready ones are rung for, of the others the earliest is made known.

        One that is held is for whoever leads, and nobody here knows who that is.
        """
        now = self._clock.now()
        ready, later, held = [], [], False
        for run in runs:
            if run.hold is not None:
                held = True
            elif run.ready_at <= now:
                ready.append((run.id, run.priority))
            else:
                later.append(run.ready_at)
        if ready or later or held:
            await self.doorbell.ring(entries_of(ready), LOOK if held else instant(min(later)) if later else b"")

    async def returned(self, waiting: Iterable[tuple[str, datetime]]) -> None:
        """These runs wait again, from that time on."""
        now = self._clock.now()
        known = list(waiting)
        ready = [(_AT_HAND, run_id) for run_id, at in known if at <= now]
        later = [at for _, at in known if at > now]
        if known:
            await self.doorbell.ring(ready, instant(min(later)) if later else b"")

    async def due(self, instants: Sequence[datetime]) -> None:
        """Runs were planned for these instants."""
        if instants:
            await self.doorbell.ring([], instant(min(instants)))

    async def look(self) -> None:
        """Something changed that may concern anybody."""
        await self.doorbell.ring([], LOOK)

    # --- hearing

    def take(self) -> list[Entry]:
        """What was read so far, for whoever makes a claim now."""
        taken, self._in_hand = self._in_hand, []
        return taken

    def give_back(self, entries: list[Entry]) -> None:
        """The claim was not made."""
        self._in_hand = entries + self._in_hand

    def forget(self, entries: list[Entry]) -> None:
        """The claim was made: nobody else has to look. That need not be known before its runs start."""
        self._looked_after += entries
        if entries and self._forgetting is None:
            self._forgetting = asyncio.create_task(self._forget())

    async def _forget(self) -> None:
        try:
            while entries := self._looked_after:
                self._looked_after = []
                await self.doorbell.forget(entries)
        finally:
            self._forgetting = None

    async def wait(self, node: str, queues: Sequence[str] | None, timeout: float) -> None:
        """Until something is heard, at the latest after that time. While the doorbell is away, as the store does it."""
        if await self._swept(node):
            return
        deadline = asyncio.get_running_loop().time() + timeout
        while (left := deadline - asyncio.get_running_loop().time()) > 0:
            if self.doorbell.away is not None and self.doorbell.pause:
                await self._queue.wait(node, queues, min(left, _LONGEST_DEAF))
                return
            if await self._heard(node, left):
                return

    async def _heard(self, node: str, left: float) -> bool:
        """One wait for both ways in which something can be said; whether it was for us."""
        if self._reading is None:
            self._reading = asyncio.create_task(self.doorbell.read(node, left))
        listening = asyncio.create_task(self.doorbell.words(left))
        try:
            await asyncio.wait([self._reading, listening], timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            words = listening.result() if listening.done() and not listening.cancelled() else []
            listening.cancel()
        heard = any(self._concerns(word) for word in words)
        if self._reading.done():
            reading, self._reading = self._reading, None
            entries = reading.result()
            self._in_hand += entries or []
            heard = heard or bool(entries)
        return heard

    def _concerns(self, word: bytes) -> bool:
        """Whether a word is news: an instant is not, where something earlier is known to be due."""
        if word in {LOOK, MANY}:
            return True
        return self.next_due is None or int(word) < to_micros(self.next_due)

    async def close(self) -> None:
        if self._forgetting is not None:
            await self._forgetting
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])
            noticed(reading)

    # --- sweeping

    async def _swept(self, node: str) -> bool:
        """Have a turn at sweeping if it is time and nobody else has; whether somebody's entries were taken over."""
        now = asyncio.get_running_loop().time()
        if now < self._sweep_at:
            return False
        self._sweep_at = now + _SWEEP
        if not await self.doorbell.my_turn(node, _SWEEP):
            return False
        taken = await self.doorbell.collect(node)
        self._in_hand += taken
        if overdue := await self._overdue():
            await self.doorbell.sweep(overdue)
        return bool(taken)

    async def _overdue(self) -> list[tuple[str, str]]:
        waiting = await self._store.upcoming(_MOST_SWEPT)
        if not waiting:
            return []
        now = await self._store.time()
        return [(band_of(run.priority), run.id) for run in waiting if seconds_between(run.ready_at, now) > _OVERDUE]


def instant(at: datetime) -> bytes:
    """A due time as a word."""
    return str(to_micros(at)).encode()
