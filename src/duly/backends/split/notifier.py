"""What a session announces after a write, and what it receives while it waits.

After a commit it announces ready runs by their ids, on a stream; an earlier due time, and anything else, by a message
to all nodes. It keeps the entries that it has read until its next claim, which they are for. Entries that its node
cannot start (it only plans, serves other queues, lacks the handler, has no free slot) it hands over to all nodes at
once; also entries that its node has not claimed for within a moment. Now and then one node of the cluster announces
again the runs that wait although they are ready, in case no node had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from duly.backends.redis.pubsub import MISSED
from duly.backends.split.node_capacity import NodeCapacity
from duly.backends.split.priority_bands import ANY, ReadyRuns, band_of, ready_entries
from duly.backends.split.stream_notifier import LOOK, Entry, StreamNotifier
from duly.model import Claimed, Run, seconds_between, to_micros
from duly.ports import Clock, Queue, Store

T = TypeVar("T")

_SWEEP_INTERVAL = 2.0  # seconds between sweeps of the whole cluster
_OVERDUE = 1.0  # seconds a run may wait before it counts as not announced
_MAX_SWEPT = 200
_MAX_READ = 64
_POLL_INTERVAL = 1.0  # seconds between polls of the store while the streams are away
_LONGEST_KEPT = 0.1  # seconds that entries are kept for a claim that does not come
_UNKNOWN_BAND = "middle"  # where the priority is not known

_pairs = msgspec.json.Decoder(list[tuple[str, str]])


class Notifier:
    """Belongs to one session."""

    def __init__(self, stream: StreamNotifier, queue: Queue, store: Store, clock: Clock) -> None:
        self.stream = stream
        self.next_due: datetime | None = None
        self._queue = queue
        self._store = store
        self._clock = clock
        self._capacity = NodeCapacity()
        self._node = ""
        self._unclaimed: list[Entry] = []
        self._reading: asyncio.Task[list[Entry] | None] | None = None
        self._wake: asyncio.Future[None] | None = None
        self._outbox = _Outbox(stream)
        self._sweep_at = 0.0

    # --- announcing

    async def runs_added(self, runs: Iterable[Run]) -> None:
        """Announce these runs: ready ones on the streams, of the others the earliest due time.

        A held one is for the leader, which is not known here: all nodes are notified.
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
            message = LOOK if held else _due_message(later)
            await self.stream.publish(ready_entries(ready), message)

    async def runs_returned(self, waiting: Iterable[tuple[str, str, datetime]]) -> None:
        """These runs, by id and queue, wait again, from that time on."""
        now = self._clock.now()
        known = list(waiting)
        ready = [ReadyRuns(_UNKNOWN_BAND, (run_id,), queue, ANY) for run_id, queue, at in known if at <= now]
        if known:
            await self.stream.publish(ready, _due_message([at for _, _, at in known if at > now]))

    async def runs_planned(self, instants: Sequence[datetime]) -> None:
        """Runs were planned for these instants."""
        if instants:
            await self.stream.publish([], _due_message(instants))

    async def notify_all(self) -> None:
        """Something changed that may concern any node."""
        await self.stream.publish([], LOOK)

    async def notify_if(self, changed: T) -> T:
        """The same, if this is true or not zero; returns it."""
        if changed:
            await self.notify_all()
        return changed

    def notify_soon(self) -> None:
        """A call to the store has also released or cancelled other runs than requested."""
        self._outbox.send(LOOK)

    # --- entries and claims

    def claim_started(self) -> list[Entry]:
        """The entries that were read so far are for this claim."""
        self._capacity.claim_started()
        return self._take_unclaimed()

    def _take_unclaimed(self) -> list[Entry]:
        taken, self._unclaimed = self._unclaimed, []
        return taken

    def claim_failed(self, entries: list[Entry]) -> None:
        """If the claim is not repeated soon, other nodes get the entries."""
        self._capacity.claim_ended()
        self._keep(entries)

    def claim_done(self, entries: list[Entry], handlers: Collection[str] | None, limit: int, claimed: Claimed) -> None:
        """If the claim has filled the node, the entries with runs that are left are for other nodes.

        Nothing here is awaited: the claimed runs start first.
        """
        self.next_due = claimed.next_due
        self._capacity.claim_ended()
        self._capacity.claimed(handlers, limit, claimed)
        if self._capacity.room:
            self._outbox.acknowledge(entries)
            if self._wake is not None and self._reading is None and not self._wake.done():
                self._wake.set_result(None)
            return
        ids = {claim.run.id for claim in claimed.claims}
        self._outbox.acknowledge([entry for entry in entries if ids.issuperset(entry.ready.runs)])
        left = [entry for entry in entries if not ids.issuperset(entry.ready.runs)]
        self._hand_over(left + self._take_unclaimed())

    def node_stops(self, node: str) -> None:
        """If that is this session's node, it claims nothing more."""
        if node == self._node:
            self._capacity.stops()
            self._hand_over(self._take_unclaimed())

    def _keep(self, entries: list[Entry]) -> None:
        """Keep these for the next claim; not for long, because other nodes could start their runs."""
        if entries:
            self._unclaimed += entries
            asyncio.get_running_loop().call_later(_LONGEST_KEPT, self._hand_over_unclaimed, entries)

    def _hand_over_unclaimed(self, entries: list[Entry]) -> None:
        unclaimed = [entry for entry in entries if entry in self._unclaimed]
        self._unclaimed = [entry for entry in self._unclaimed if entry not in unclaimed]
        self._hand_over(unclaimed)

    def _hand_over(self, entries: list[Entry]) -> None:
        self._outbox.acknowledge(entries, announce=True)

    # --- waiting

    async def wait(self, node: str, queues: Sequence[str] | None, timeout: float) -> None:
        """Return when something was received, at the latest after that time. Without streams, the store waits."""
        self._node = node
        self._capacity.waits_for(queues)
        if await self._sweep(node):
            return
        deadline = asyncio.get_running_loop().time() + timeout
        while (left := deadline - asyncio.get_running_loop().time()) > 0:
            if self.stream.away is not None and self.stream.pause:
                await self._queue.wait(node, queues, min(left, _POLL_INTERVAL))
                return
            if await self._wait_once(node, left):
                return

    async def _wait_once(self, node: str, left: float) -> bool:
        """Wait for entries and for messages; whether one of them concerns this node."""
        if self._reading is None and self._capacity.reads_entries:
            self._reading = asyncio.create_task(self.stream.read(node, self._capacity.room or _MAX_READ, left))
        listening = asyncio.create_task(self.stream.messages(left))
        self._wake = asyncio.get_running_loop().create_future()
        sources: list[asyncio.Future[Any]] = [listening, self._wake]
        sources += [] if self._reading is None else [self._reading]
        try:
            await asyncio.wait(sources, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._wake = None
            messages = listening.result() if listening.done() and not listening.cancelled() else []
            listening.cancel()
        concerned = any(self._concerns(message) for message in messages)
        if self._reading is not None and self._reading.done():
            reading, self._reading = self._reading, None
            concerned = self._received(reading.result() or []) or concerned
        return concerned

    def _received(self, entries: list[Entry]) -> bool:
        """Keep the entries that this node can start, and hand over the others; whether any are kept.

        Before its first claim it is unknown what a node can start: it keeps all, and other nodes are notified as well.
        """
        if self._capacity.room is None:
            self._keep(entries)
            self._outbox.send(*(_message_for(entry.ready) for entry in entries))
            return bool(entries)
        kept = [entry for entry in entries if self._capacity.can_start_all(entry.ready)]
        self._keep(kept)
        self._hand_over([entry for entry in entries if entry not in kept])
        return bool(kept)

    def _concerns(self, message: bytes) -> bool:
        """Whether a message concerns this node. A due time does not if an earlier one is known."""
        if message in {LOOK, MISSED}:
            return True
        if message.startswith(b"["):
            return any(self._capacity.can_start(queue, handler) for queue, handler in _pairs.decode(message))
        return self.next_due is None or int(message) < to_micros(self.next_due)

    async def close(self) -> None:
        """Hand over the entries that were read and not claimed for."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])
            if not reading.cancelled() and reading.exception() is None:
                self._unclaimed += reading.result() or []
        self._hand_over(self._take_unclaimed())
        await self._outbox.close()

    # --- sweeping

    async def _sweep(self, node: str) -> bool:
        """Sweep if it is time and no other node has; whether entries were taken over that this node can start."""
        now = asyncio.get_running_loop().time()
        if now < self._sweep_at:
            return False
        self._sweep_at = now + _SWEEP_INTERVAL
        if not await self.stream.take_turn(node, _SWEEP_INTERVAL):
            return False
        taken = self._received(await self.stream.take_over(node))
        if overdue := await self._overdue():
            await self.stream.republish(overdue)
        return taken

    async def _overdue(self) -> list[ReadyRuns]:
        waiting = await self._store.upcoming(_MAX_SWEPT)
        if not waiting:
            return []
        now = await self._store.time()
        late = (run for run in waiting if seconds_between(run.ready_at, now) > _OVERDUE)
        return [ReadyRuns(band_of(run.priority), (run.id,), run.queue, run.handler) for run in late]


class _Outbox:
    """Entries to acknowledge and messages to all nodes, sent in the background so that no call waits for them."""

    def __init__(self, stream: StreamNotifier) -> None:
        self._stream = stream
        self._entries: list[Entry] = []
        self._messages: set[bytes] = set()
        self._sending: asyncio.Task[None] | None = None

    def acknowledge(self, entries: Sequence[Entry], *, announce: bool = False) -> None:
        """These entries are handled; or other nodes are notified of their runs instead."""
        self._entries += entries
        self.send(*(_message_for(entry.ready) for entry in entries if announce))

    def send(self, *messages: bytes) -> None:
        self._messages.update(messages)
        if (self._entries or self._messages) and self._sending is None:
            self._sending = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._entries or self._messages:
                entries, messages = self._entries, self._messages
                self._entries, self._messages = [], set()
                await self._stream.acknowledge(entries, _combined(messages))
        finally:
            self._sending = None

    async def close(self) -> None:
        if self._sending is not None:
            await self._sending


def _message_for(ready: ReadyRuns) -> bytes:
    """The message to the nodes that can start these runs."""
    return msgspec.json.encode([(ready.queue, ready.handler)])


def _combined(messages: Collection[bytes]) -> bytes:
    """Several messages as one: LOOK includes all others."""
    if LOOK in messages or not messages:
        return LOOK if messages else b""
    return msgspec.json.encode([pair for message in sorted(messages) for pair in _pairs.decode(message)])


def _due_message(instants: Sequence[datetime]) -> bytes:
    """The message for the earliest of these due times; none if there are none."""
    return str(to_micros(min(instants))).encode() if instants else b""
