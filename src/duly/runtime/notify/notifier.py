"""The notifier: finds out what to report and sends it, on one node at a time.

It reads what the store records about runs, so that it needs nothing from the nodes that executed them, and it is no
part of any run: a target that is slow or broken delays other messages only. The store holds everything that it knows
(`NotifyState`). A new state is stored before messages are sent, and again afterwards: if this node dies in between,
the next one sends them again, under the same ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from duly.errors import BackendUnavailable
from duly.model import Cause, Item, JobStatistics, Run, RunOrder, RunQuery, State, shift
from duly.model.event import NotificationFailed, NotificationsLost
from duly.model.notification import (
    NOTIFY,
    NOTIFY_LEASE,
    Delivery,
    NotificationKind,
    NotificationTarget,
    NotifyState,
    TargetState,
)
from duly.model.sanitize import text_of, type_name_of
from duly.ports import Backend
from duly.rules import notifications
from duly.rules.notifications import LOOK_BACK, Pace
from duly.runtime.environment import Environment, NodeService
from duly.runtime.notify.target import DeliveryRejected

_PERIOD = 5.0
_PAGE = 100  # runs may have large payloads
_MOST_PAGES = 100
_LATE_PAGE = 100
_LATE_SCAN = 1_000
_SCAN = 500  # definitions searched for expectations with one tick
_STATISTICS = 200  # jobs whose counters are read with one call
_LONGEST_SEND = 30.0
_LONGEST_TURN = 20.0  # seconds after which a target has had its turn, with messages left
_SOONEST = 0.1

# How many messages one target gets: a few at once, then one every two seconds.
_RATE, _BURST = 0.5, 20.0

_FAILED = (State.FAILED, State.LOST)
_MISSED = (State.SKIPPED,)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(NotifyState).decode

Change = Callable[[NotifyState], NotifyState]


class Notifier(NodeService):
    """Runs where targets are configured; the holder of a lease works, the others wait for it."""

    name = "notifier"

    def __init__(self, env: Environment, backend: Backend, targets: Sequence[NotificationTarget]) -> None:
        super().__init__(env)
        self._store = backend.store
        self._coordinator = backend.coordinator
        self._node = env.card.id
        self._targets = {target.name: target for target in targets}
        self._kinds = {name: tuple(target.on) for name, target in self._targets.items()}
        self._version = 0
        self._lease = 2 * env.config.leader_lease

    async def tick(self) -> float:
        if not await self._leads():
            return _PERIOD
        state = await self._load()
        found = await self._observe(state)
        if found != state and not await self._save(found):
            return _PERIOD  # another node has taken over
        after = await self._deliver(found)
        if after != found:
            await self._save(after)
        return self._delay(after)

    async def _leads(self) -> bool:
        """Take the lease, or extend it. Without it another node would send the same messages, which is no harm."""
        return await self._coordinator.acquire(NOTIFY_LEASE, self._node, self._lease) is not None

    async def _load(self) -> NotifyState:
        """What is known. A store that has nothing yet, or nothing that can be read, begins now."""
        item: Item | None = await self._store.get(*NOTIFY)
        self._version = 0 if item is None else item.version
        if item is not None:
            try:
                return _decode(item.value)
            except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
                self._emit(NotificationsLost(text_of(exc)))
        return notifications.fresh(self._clock.now(), await self._totals())

    async def _save(self, state: NotifyState) -> bool:
        saved = await self._store.put(*NOTIFY, _encode(state), expect=self._version)
        if saved is not None:
            self._version = saved.version
        return saved is not None

    def _delay(self, state: NotifyState) -> float:
        waits = notifications.next_at(state)
        if waits is None:
            return _PERIOD
        return min(_PERIOD, max(_SOONEST, (waits - self._clock.now()).total_seconds()))

    # --- finding out

    async def _observe(self, state: NotifyState) -> NotifyState:
        pace = Pace(*self._live.config.notify_times)
        state = notifications.present(state, self._present(), self._clock.now())
        state = await self._note_ended(state, pace)
        if self._wants(NotificationKind.LATE):
            state = notifications.note_late(state, await self._late(pace), self._clock.now(), pace)
        if self._wants(NotificationKind.OVERDUE):
            state = await self._note_definitions(state)
        if watched := notifications.watched(state):
            counted: dict[str, JobStatistics] = {}
            for start in range(0, len(watched), _STATISTICS):
                counted |= await self._store.statistics(watched[start : start + _STATISTICS])
            state = notifications.note_statistics(state, counted, self._clock.now())
        return await self._make_messages(state, pace)

    def _wants(self, kind: NotificationKind) -> bool:
        return any(kind.value in kinds for kinds in self._kinds.values())

    def _present(self) -> dict[str, TargetState]:
        return {
            name: TargetState(about=text_of(target, 200), on=self._kinds[name], node=self._node)
            for name, target in self._targets.items()
        }

    async def _totals(self) -> dict[str, int]:
        """How many runs have ended in each state since the store was created; one short call."""
        counts = await self._store.counts(scan=1)
        return {state.value: counts.states.get(state, 0) for state in (*_FAILED, *_MISSED)}

    async def _note_ended(self, state: NotifyState, pace: Pace) -> NotifyState:
        """Collect the runs that have ended since the last time. The store is searched only if its totals have grown."""
        totals = await self._totals()
        found: list[Run] = []
        more = False
        for states in (_FAILED, _MISSED):
            wanted = notifications.increase(state, totals, states)
            if wanted:
                some = await self._ended(state, states, wanted)
                found, more = found + some, more or wanted > len(some) >= _PAGE * (_MOST_PAGES - 1)
        if not found and totals == state.totals:
            return state
        return notifications.note_ended(state, found, totals, self._clock.now(), pace, more=more)

    async def _ended(self, state: NotifyState, states: tuple[State, ...], wanted: int) -> list[Run]:
        """The latest runs in these states that were not seen before, until as many are found as have been added.

        Not those with a later time than seen before: a run that ended during an outage is stored long after.
        """
        start = max(shift(self._clock.now(), -LOOK_BACK), state.since)
        query = RunQuery(states=states, order=RunOrder.ENDED, ended_from=start)
        found: list[Run] = []
        cursor = None
        for _ in range(_MOST_PAGES):
            page = await self._store.runs(query, _PAGE, cursor)
            found += map(notifications.without_content, notifications.unseen(state, page.runs))
            cursor = page.next
            if cursor is None or len(found) >= wanted:
                break
        return found[:wanted]

    async def _late(self, pace: Pace) -> list[Run]:
        """Scheduled runs that have been ready for long, and are not held."""
        query = RunQuery(
            states=(State.QUEUED,), order=RunOrder.READY, cause=Cause.SCHEDULE, min_late=max(pace.late_after, 0.001)
        )
        page = await self._store.runs(query, _LATE_PAGE, scan=_LATE_SCAN)
        return page.runs

    async def _note_definitions(self, state: NotifyState) -> NotifyState:
        """Look for expectations in one slice of all definitions."""
        records = await self._store.jobs(after=state.scan, limit=_SCAN)
        return notifications.note_definitions(state, records, self._clock.now(), last=len(records) < _SCAN)

    async def _make_messages(self, state: NotifyState, pace: Pace) -> NotifyState:
        now = self._clock.now()
        ready = sorted({group.job for group in state.groups.values() if group.send_at <= now})
        routes = {record.name: record.spec.notify for record in await self._store.jobs(ready)} if ready else {}
        return notifications.make_messages(state, now, pace, self._kinds, routes)

    # --- sending

    async def _deliver(self, state: NotifyState) -> NotifyState:
        """Send what is due, to all targets at once; returns the state with what came of it."""
        results = await asyncio.gather(*(self._deliver_to(target, state) for target in self._targets.values()))
        for changes in results:
            for change in changes:
                state = change(state)
        return state

    async def _deliver_to(self, target: NotificationTarget, state: NotifyState) -> list[Change]:
        """Send to one target, in order, until a message fails or its turn is over."""
        changes: list[Change] = []
        began = self._clock.monotonic()
        for delivery in notifications.due(state, target.name, self._clock.now()):
            if self._clock.monotonic() - began > _LONGEST_TURN or not await self._may_send(target.name):
                break
            if not await self._leads():
                break
            change, sent = await self._send(target, delivery)
            changes.append(change)
            if not sent:
                break
        return changes

    async def _may_send(self, target: str) -> bool:
        return await self._store.take(f"notify:{target}", 1.0, _RATE, _BURST) <= 0.0

    async def _send(self, target: NotificationTarget, delivery: Delivery) -> tuple[Change, bool]:
        """Send one message; what becomes of it, and whether the target is available."""
        error, for_good = "", False
        try:
            async with asyncio.timeout(_LONGEST_SEND):
                await target.send(delivery.notification)
        except DeliveryRejected as exc:
            error, for_good = text_of(exc), True
        except BackendUnavailable:
            raise
        except Exception as exc:  # noqa: BLE001  # a target may be the user's code; its failure is recorded
            error = f"{type_name_of(exc)}: {text_of(exc, 300)}"
        now = self._clock.now()
        if not error:
            return (lambda state: notifications.delivered(state, delivery, now)), True
        self._emit(NotificationFailed(target.name, delivery.notification.id, error))
        return (lambda state: notifications.refused(state, delivery, error, now, for_good=for_good)), for_good


def read_state(item: Item | None) -> NotifyState | None:
    """What is stored about notifications; None if nothing is, or it cannot be read."""
    try:
        return None if item is None else _decode(item.value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
