"""The heartbeat: renews all claims of a node in one call.

Together with the node's presence and its timekeeper it has its own thread, event loop and session, so that a
handler which blocks the node's loop does not lose every lease. Where the store cannot be used from another thread they
are ordinary services.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from duly.errors import BackendUnavailable
from duly.model import Beat, BeatReply, Interrupted, Progress, SchedulerConfig, Settlement, StoreLoss
from duly.model.event import ClaimsLost, ClaimUntrusted, Emit, Event, ServiceFailed
from duly.ports import Backend, Queue
from duly.ports.waiting import shielded
from duly.rules.lease_limits import longest_call, trusted_until
from duly.rules.settling import settle
from duly.runtime.active_runs import ActiveRun, ActiveRuns
from duly.runtime.environment import Environment, NodeService
from duly.runtime.failures import failure_of
from duly.runtime.outages import OutageLog
from duly.runtime.presence import Presence
from duly.runtime.service import LONGEST_RETRY, Nudge, ServiceHealth, serve
from duly.runtime.timekeeper import Timekeeper
from duly.runtime.worker import Worker

NUDGE_PERIOD = 0.2
_BUSY_PERIOD = 0.2
_LOOK_UP = 1.0  # how often the thread checks whether the node's loop is still open
_LAST_MOMENT = 0.1  # how long a thread may take to end after it has announced its end


def at_once(call: Callable[..., None], *arguments: object) -> None:
    """Call directly: the heartbeat and the node share a loop."""
    call(*arguments)


def longest_retry(config: SchedulerConfig) -> float:
    """How soon a failed renewal is tried again: well within the amnesty that begins when the store is back."""
    return min(LONGEST_RETRY, config.refresh / 2)


class Heartbeat(NodeService):
    """Renews claims. `tell` carries a call to the node's own loop."""

    name = "heartbeat"

    def __init__(
        self,
        env: Environment,
        queue: Queue,
        active_runs: ActiveRuns,
        worker: Worker,
        outages: OutageLog,
        tell: Callable[..., None],
    ) -> None:
        super().__init__(env)
        self._queue = queue
        self._outages = outages
        self._active_runs = active_runs
        self._worker = worker
        self._tell = tell
        self._lease = env.config.lease
        self._refresh = env.config.refresh
        self._silence = env.config.silence

    async def tick(self) -> float:
        self._distrust()
        try:
            busy = await self._renew()
        except BackendUnavailable:
            self._distrust()
            raise
        await self._outages.write()
        return min(_BUSY_PERIOD, self._refresh / 4) if busy else self._refresh

    async def _renew(self) -> bool:
        """Renew all claims; return whether some could not be renewed now because another process is changing them."""
        active_runs = self._active_runs.snapshot()
        sent = self._clock.monotonic()
        # Attempts are identified by their fences, not by their runs: the replies are in the order of the beats.
        replies = await self._replies(
            [Beat(active.claim.run.id, active.claim.fence, _unreported(active)) for active in active_runs]
        )
        lost: list[ActiveRun] = []
        cancelled: list[ActiveRun] = []
        busy = False
        for active, reply in zip(active_runs, replies, strict=True):
            if reply is BeatReply.LOST:
                lost.append(active)
                continue
            if reply is BeatReply.BUSY:
                busy = busy or active.held
                continue
            active.trusted_until = trusted_until(sent, self._lease)
            active.untrusted = active.untrusted and _stops(active)  # if it is being stopped for that, it stays so
            if reply is BeatReply.CANCEL:
                cancelled.append(active)
        self._report(lost, cancelled)
        return busy

    async def _replies(self, beats: list[Beat]) -> Sequence[BeatReply]:
        """Renew these claims. Handlers provide the progress: if the store refuses it, it is left out."""
        try:
            renewal = await self._queue.renew(beats, self._lease, self._silence)
        except BackendUnavailable:
            raise
        except Exception as exc:  # noqa: BLE001  # whatever an adapter makes of a value that it cannot send
            self._emit(ServiceFailed("heartbeat", failure_of(exc), 0.0))
            bare = [Beat(beat.run_id, beat.fence) for beat in beats]
            renewal = await self._queue.renew(bare, self._lease, self._silence)
        if renewal.silent_since is not None:
            self._outages.note(renewal.silent_since)
        return renewal.replies

    async def give_back(self, unsent: Sequence[tuple[ActiveRun, Settlement]]) -> int:
        """The node's loop is blocked for good: settle known outcomes, release other runs; return how many in all."""
        known = [settlement for _, settlement in unsent]
        settled = {settlement.fence for settlement in known}
        now = self._clock.now()
        for active in self._active_runs.snapshot():
            claim = active.claim
            if claim.fence not in settled:
                stopped = Interrupted(active.began)
                most = self._live.config.max_losses
                known.append(settle(claim.run, claim.fence, stopped, now, dice=0.0, max_losses=most))
        return sum(await self._queue.settle(known)) if known else 0

    def _report(self, lost: Sequence[ActiveRun], cancelled: Sequence[ActiveRun]) -> None:
        # A run that was settled while the renewal was under way is not lost: it has ended.
        really = [active for active in lost if active.held]
        if really:
            runs = tuple(active.claim.run for active in really)
            self._tell(self._worker.lose, really)
            self._emit(ClaimsLost(tuple(run.id for run in runs), runs))
        if cancelled:
            self._tell(self._worker.cancel, cancelled)

    def _distrust(self) -> None:
        """Treat claims that could not be renewed in time as uncertain."""
        now = self._clock.monotonic()
        for active in self._active_runs.snapshot():
            if now >= active.trusted_until and not active.untrusted and active.held:
                active.untrusted = True
                self._emit(ClaimUntrusted(active.claim.run.id, stopped=_stops(active)))
                if _stops(active):
                    self._tell(active.stop)


def _unreported(active: ActiveRun) -> Progress | None:
    """Progress that the reporter has not stored: the node's loop may be blocked."""
    return None if active.progress is active.reported else active.progress


def _stops(active: ActiveRun) -> bool:
    """Whether the handler is to be stopped when its lease is in doubt."""
    return active.claim.run.policy.on_store_loss is StoreLoss.STOP


class HeartbeatThread:
    """Runs heartbeat, presence and timekeeper in a thread with its own loop. Ends with the node's loop in any case."""

    def __init__(
        self,
        env: Environment,
        backend: Backend,
        make: Callable[[Environment, Backend, Callable[..., None]], tuple[Heartbeat, Presence, Timekeeper]],
        health: ServiceHealth,
    ) -> None:
        self._home = asyncio.get_running_loop()
        self._env = replace(env, emit=_Carried(env.emit, self._home))
        self._session = backend.session(longest_call(env.config.lease))
        self._make = make
        self._longest_retry = longest_retry(env.config)
        self._health = health
        self._look_up = min(env.config.refresh / 5, _LOOK_UP)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._heartbeat: Heartbeat | None = None
        self._presence: Presence | None = None
        self._nudge: Nudge | None = None
        self._stopping = False
        self._started: asyncio.Future[None] = self._home.create_future()
        self._ended: asyncio.Future[None] = self._home.create_future()
        self._thread = threading.Thread(target=self._run, name="duly-heartbeat", daemon=True)

    async def start(self) -> None:
        """Return once the thread sends heartbeats; raises the error that kept its session from opening."""
        self._thread.start()
        await self._started

    def nudge(self) -> None:
        """A run of this node may have been cancelled."""
        if self._loop is not None and self._nudge is not None:
            with suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._nudge)

    def announce(self) -> None:
        """What the node announces has changed."""
        if self._loop is not None and self._presence is not None:
            with suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._presence.signal.wake)

    def give_back(self, unsent: Sequence[tuple[ActiveRun, Settlement]], patience: float) -> int:
        """From any thread: release all claims of a node whose loop is blocked for good; return their number."""
        if self._loop is None or self._heartbeat is None:
            return 0
        asked = asyncio.run_coroutine_threadsafe(self._heartbeat.give_back(unsent), self._loop)
        try:
            return asked.result(patience)
        except Exception:  # noqa: BLE001  # the process exits now: what could not be given back expires
            return 0

    async def stop(self) -> None:
        """Wait for the thread to end; it also ends without this call."""
        if self._thread.ident is None:
            return
        self._stopping = True
        loop, main = self._loop, self._main
        if loop is not None and main is not None:
            with suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(main.cancel)
        await shielded(self._ended)
        self._thread.join(_LAST_MOMENT)

    # --- in the thread

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._beat())
        self._tell(_succeed, self._ended)

    async def _beat(self) -> None:
        self._main = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        if self._stopping:
            return
        try:
            await self._session.open()
            await self._serve()
        except Exception as exc:  # noqa: BLE001  # raised where the thread was started
            self._tell(_fail, self._started, exc)
        finally:
            await self._session.close()

    async def _serve(self) -> None:
        services = self._make(self._env, self._session, self._tell)
        self._heartbeat, self._presence, _ = services
        self._nudge = Nudge(self._heartbeat.signal, NUDGE_PERIOD)
        self._tell(_succeed, self._started)
        async with asyncio.TaskGroup() as group:
            emit, health, longest = self._env.emit, self._health, self._longest_retry
            tasks = [group.create_task(serve(each, emit, health, longest)) for each in services]
            while not self._home.is_closed():  # noqa: ASYNC110  # a loop that is closed gives no notice
                await asyncio.sleep(self._look_up)
            for task in tasks:
                task.cancel()

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the node's loop is closed
            self._home.call_soon_threadsafe(call, *arguments)


class _Carried:
    """Emits on the node's own loop what happened in the heartbeat's thread."""

    def __init__(self, emit: Emit, home: asyncio.AbstractEventLoop) -> None:
        self._emit = emit
        self._home = home

    def __call__(self, event: Event) -> None:
        with suppress(RuntimeError):  # the node's loop is closed
            self._home.call_soon_threadsafe(self._emit, event)

    def wants(self, kind: type[Event]) -> bool:
        return self._emit.wants(kind)


def _succeed(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: asyncio.Future[None], exc: Exception) -> None:
    if not future.done():
        future.set_exception(exc)
