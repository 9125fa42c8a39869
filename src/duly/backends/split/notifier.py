"""The notifier: what a session announces on the stream after a write, and what it hears while it waits.

After a commit it announces: runs that are ready by their ids, an earlier due time by its instant, anything else by
"look". What it has read stays in its hands until the next claim has been made, which is what the bell was for. What its
node cannot start (it only plans, serves other queues, lacks the handler, has no free slot) it passes on to everybody at
once, and what its node has not claimed for within a moment, for any other reason, as well. Now and then one notifier of
the cluster announces again what waits though it is ready, in case nobody had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from duly.backends.redis.notify import MANY
from duly.backends.split.priority_bands import ANY, Ready, band_of, ready_entries
from duly.backends.split.stream_notifier import LOOK, Entry, StreamNotifier
from duly.backends.split.taker import Taker
from duly.model import Claimed, Run, seconds_between, to_micros
from duly.ports import Clock, Queue, Store

_SWEEP = 2.0  # seconds between sweeps, of all porters together
_OVERDUE = 1.0  # seconds a run may wait before it counts as not announced
_MOST_SWEPT = 200
_MOST_READ = 64
_LONGEST_DEAF = 1.0  # seconds between looks at the store while the doorbell is away
_LONGEST_HELD = 0.1  # seconds that entries are kept for a claim that does not come
_AT_HAND = "middle"  # where the priority is not at hand

_pairs = msgspec.json.Decoder(list[tuple[str, str]])


class Notifier:
    """Belongs to one session."""

    def __init__(self, stream: StreamNotifier, queue: Queue, store: Store, clock: Clock) -> None:
        self.stream = stream
        self.next_due: datetime | None = None
        self._queue = queue
        self._store = store
        self._clock = clock
        self._taker = Taker()
        self._node = ""
        self._in_hand: list[Entry] = []
        self._reading: asyncio.Task[list[Entry] | None] | None = None
        self._stir: asyncio.Future[None] | None = None
        self._outbox = _Outbox(stream)
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
                ready.append(run)
            else:
                later.append(run.ready_at)
        if ready or later or held:
            await self.stream.ring(ready_entries(ready), LOOK if held else instant(min(later)) if later else b"")

    async def returned(self, waiting: Iterable[tuple[str, str, datetime]]) -> None:
        """These runs, by id and queue, wait again, from that time on."""
        now = self._clock.now()
        known = list(waiting)
        ready = [Ready(_AT_HAND, (run_id,), queue, ANY) for run_id, queue, at in known if at <= now]
        later = [at for _, _, at in known if at > now]
        if known:
            await self.stream.ring(ready, instant(min(later)) if later else b"")

    async def due(self, instants: Sequence[datetime]) -> None:
        """Runs were planned for these instants."""
        if instants:
            await self.stream.ring([], instant(min(instants)))

    async def look(self) -> None:
        """Something changed that may concern anybody."""
        await self.stream.ring([], LOOK)

    def stirred(self) -> None:
        """The store has let runs wait again, or asked for some to be cancelled, in the course of something else."""
        self._outbox.say(LOOK)

    # --- hearing

    def asks(self) -> list[Entry]:
        """A claim begins: what was read so far is for it."""
        self._taker.asks()
        return self._take()

    def _take(self) -> list[Entry]:
        taken, self._in_hand = self._in_hand, []
        return taken

    def failed(self, entries: list[Entry]) -> None:
        """The claim was not made. If it is not repeated soon, others get what was read."""
        self._taker.asked()
        self._keep(entries)

    def claimed(self, entries: list[Entry], handlers: Collection[str] | None, limit: int, claimed: Claimed) -> None:
        """The claim was made. If it has filled the node, what is left of what was read is for others.

        None of this need be known before the runs start.
        """
        self.next_due = claimed.next_due
        self._taker.asked()
        self._taker.claimed(handlers, limit, claimed)
        if self._taker.room:
            self._outbox.forget(entries)
            if self._stir is not None and self._reading is None and not self._stir.done():
                self._stir.set_result(None)
            return
        lent = {claim.run.id for claim in claimed.claims}
        self._outbox.forget([entry for entry in entries if lent.issuperset(entry.ready.runs)])
        self._pass_on([entry for entry in entries if not lent.issuperset(entry.ready.runs)] + self._take())

    def leaves(self, node: str) -> None:
        """If that is this session's node, it claims nothing more."""
        if node == self._node:
            self._taker.leaves()
            self._pass_on(self._take())

    def _keep(self, entries: list[Entry]) -> None:
        """Keep these for the next claim; not for long, because others could make it."""
        if entries:
            self._in_hand += entries
            asyncio.get_running_loop().call_later(_LONGEST_HELD, self._let_go, entries)

    def _let_go(self, entries: list[Entry]) -> None:
        held = [entry for entry in entries if entry in self._in_hand]
        self._in_hand = [entry for entry in self._in_hand if entry not in held]
        self._pass_on(held)

    def _pass_on(self, entries: list[Entry]) -> None:
        self._outbox.forget(entries, told=True)

    async def wait(self, node: str, queues: Sequence[str] | None, timeout: float) -> None:
        """Until something is heard, at the latest after that time. While the doorbell is away, as the store does it."""
        self._node = node
        self._taker.waits(queues)
        if await self._swept(node):
            return
        deadline = asyncio.get_running_loop().time() + timeout
        while (left := deadline - asyncio.get_running_loop().time()) > 0:
            if self.stream.away is not None and self.stream.pause:
                await self._queue.wait(node, queues, min(left, _LONGEST_DEAF))
                return
            if await self._heard(node, left):
                return

    async def _heard(self, node: str, left: float) -> bool:
        """One wait for both ways in which something can be said; whether it was for us."""
        if self._reading is None and self._taker.reads:
            self._reading = asyncio.create_task(self.stream.read(node, self._taker.room or _MOST_READ, left))
        listening = asyncio.create_task(self.stream.words(left))
        self._stir = asyncio.get_running_loop().create_future()
        told: list[asyncio.Future[Any]] = [listening, self._stir]
        told += [] if self._reading is None else [self._reading]
        try:
            await asyncio.wait(told, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stir = None
            words = listening.result() if listening.done() and not listening.cancelled() else []
            listening.cancel()
        heard = any(self._concerns(word) for word in words)
        if self._reading is not None and self._reading.done():
            reading, self._reading = self._reading, None
            heard = self._received(reading.result() or []) or heard
        return heard

    def _received(self, entries: list[Entry]) -> bool:
        """Keep the entries that this node can look after, and pass the others on; whether any are kept.

        A node that has made no claim yet may or may not: then the others are told as well.
        """
        if self._taker.room is None:
            self._keep(entries)
            self._outbox.say(*(_word(entry.ready) for entry in entries))
            return bool(entries)
        mine = [entry for entry in entries if self._taker.takes_all(entry.ready)]
        self._keep(mine)
        self._pass_on([entry for entry in entries if entry not in mine])
        return bool(mine)

    def _concerns(self, word: bytes) -> bool:
        """Whether a word is news: an instant is not, where something earlier is known to be due."""
        if word in {LOOK, MANY}:
            return True
        if word.startswith(b"["):
            return any(self._taker.takes(queue, handler) for queue, handler in _pairs.decode(word))
        return self.next_due is None or int(word) < to_micros(self.next_due)

    async def close(self) -> None:
        """Others get what was read here and not claimed for."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])
            if not reading.cancelled() and reading.exception() is None:
                self._in_hand += reading.result() or []
        self._pass_on(self._take())
        await self._outbox.close()

    # --- sweeping

    async def _swept(self, node: str) -> bool:
        """Have a turn at sweeping if it is time and nobody else has; whether somebody's entries were taken over."""
        now = asyncio.get_running_loop().time()
        if now < self._sweep_at:
            return False
        self._sweep_at = now + _SWEEP
        if not await self.stream.my_turn(node, _SWEEP):
            return False
        taken = self._received(await self.stream.collect(node))
        if overdue := await self._overdue():
            await self.stream.sweep(overdue)
        return taken

    async def _overdue(self) -> list[Ready]:
        waiting = await self._store.upcoming(_MOST_SWEPT)
        if not waiting:
            return []
        now = await self._store.time()
        late = (run for run in waiting if seconds_between(run.ready_at, now) > _OVERDUE)
        return [Ready(band_of(run.priority), (run.id,), run.queue, run.handler) for run in late]


class _Outbox:
    """What is to be said at the door without holding anybody up: entries to forget, words to everybody."""

    def __init__(self, stream: StreamNotifier) -> None:
        self._stream = stream
        self._entries: list[Entry] = []
        self._words: set[bytes] = set()
        self._sending: asyncio.Task[None] | None = None

    def forget(self, entries: Sequence[Entry], *, told: bool = False) -> None:
        """These entries are done with; or others are told of their runs."""
        self._entries += entries
        if told:
            self.say(*(_word(entry.ready) for entry in entries))
        self._send()

    def say(self, *words: bytes) -> None:
        self._words.update(words)
        self._send()

    def _send(self) -> None:
        if (self._entries or self._words) and self._sending is None:
            self._sending = asyncio.create_task(self._sent())

    async def _sent(self) -> None:
        try:
            while self._entries or self._words:
                entries, words = self._entries, self._words
                self._entries, self._words = [], set()
                await self._stream.forget(entries, _together(words))
        finally:
            self._sending = None

    async def close(self) -> None:
        if self._sending is not None:
            await self._sending


def _word(ready: Ready) -> bytes:
    """To whoever can start these runs."""
    return msgspec.json.encode([(ready.queue, ready.handler)])


def _together(words: Collection[bytes]) -> bytes:
    """Several words as one: "look" says more than all others."""
    if LOOK in words or not words:
        return LOOK if words else b""
    return msgspec.json.encode([pair for word in sorted(words) for pair in _pairs.decode(word)])


def instant(at: datetime) -> bytes:
    """A due time as a word."""
    return str(to_micros(at)).encode()
