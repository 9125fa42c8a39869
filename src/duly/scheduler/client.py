"""A client: one opened session on a store, and what this process can ask of it. It plans and runs nothing."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from duly.errors import (
    BackendUnavailable,
    ConfigurationError,
    DulyError,
    ResultExpired,
    RunCancelled,
    RunFailed,
    RunLost,
    RunSkipped,
    shown,
)
from duly.model import (
    SCAN,
    Attempt,
    CancelReply,
    Cause,
    Ids,
    LogLine,
    Page,
    RedriveReply,
    Run,
    RunOrder,
    RunQuery,
    SchedulerConfig,
    State,
    is_job_name,
    is_run_id,
    sanitize,
)
from duly.model.event import CancelAsked, QueuePaused, QueueResumed, RunRedriven, SettingsApplied
from duly.model.job import COMMAND_HANDLER
from duly.model.run_log import MOST_KEPT
from duly.model.transfer import FROZEN
from duly.observe.bus import Bus
from duly.observe.logs import set_log_level
from duly.observe.publisher import Publisher
from duly.ports import Backend, Tracer
from duly.ports.waiting import noticed
from duly.rules.cluster_settings import LOG_LEVEL, InForce, changes
from duly.runtime.environment import new_node_id
from duly.runtime.live_config import LiveConfig, SettingsWatcher
from duly.runtime.service import ServiceHealth, serve
from duly.scheduler.audit import Audit
from duly.scheduler.backfills import Backfills
from duly.scheduler.code_deploys import CodeDeploys
from duly.scheduler.explaining import Explainer
from duly.scheduler.job_admin import JobAdmin
from duly.scheduler.job_files import JobFiles
from duly.scheduler.job_history import JobHistory
from duly.scheduler.registry import Registry
from duly.scheduler.run_lookup import absent, find_run
from duly.scheduler.submitting import Submitter

_LAST_WORDS = 5.0
_LONGEST_WAIT = 60.0
_LONGEST_OUTAGE = 30.0
_ASK_AGAIN = 0.1
_LONGEST_SEARCHED = 1000
_LAST_LINE = 1 << 53
_LONGEST_CURSOR = 300
_CLOCK_PERIOD = 60.0
_STATES: dict[str, State] = {state.value: state for state in State}


class Client:
    """Belongs to the event loop it was opened on."""

    def __init__(
        self,
        backend: Backend,
        registry: Registry,
        config: SchedulerConfig,
        events: Bus,
        rng: random.Random,
        tracer: Callable[[], Tracer | None] = lambda: None,
    ) -> None:
        self.backend = backend
        self.config = config
        self.clock = clock = backend.clock
        self.node_id = config.node_id or new_node_id(rng)
        self.live = live = LiveConfig(config)
        self.publisher = self._make_publisher() if config.publish_events else None
        self.emit = emit = events if self.publisher is None else Bus(self.publisher, events)
        self.registry = registry
        self.ids = Ids(clock.now, rng)
        self.clock_reader = ClockReader(backend)
        self.submitter = Submitter(backend, registry, live, self.ids, clock, tracer, emit)
        self._when_changed: Callable[[], None] = lambda: None
        self.definitions = JobAdmin(backend, registry, live, self.ids, clock.now, emit, self._changed)
        self.history = JobHistory(backend, registry, live, clock.now, emit, self._changed)
        self.backfills = Backfills(backend, live, self.definitions.schedule, emit)
        by = f"node {self.node_id}"
        self.code_deploys = CodeDeploys(backend, registry, live, self.ids, clock.now, emit, self._changed, by)
        self.audit = Audit(backend.store, config.audit_key)
        self.explainer = Explainer(backend, config, self.definitions.schedule)
        self.job_files = JobFiles(backend, config, self.ids, clock.now, emit, self._changed)
        self._following: asyncio.Task[None] | None = None
        live.subscribe(self._settings_changed)

    def when_changed(self, call: Callable[[], None]) -> None:
        """Set the function to call after definitions were written through this client; its node uses this."""
        self._when_changed = call

    def _changed(self) -> None:
        self._when_changed()

    def _make_publisher(self) -> Publisher:
        keep = lambda: self.live.config.keep_events  # noqa: E731
        return Publisher(self.backend.store, self.clock.now, self.node_id, keep)

    async def close(self, patience: float = _LAST_WORDS) -> None:
        """Publish the events that are left and close the store, within `patience` seconds whatever the store does."""
        closing = asyncio.get_running_loop().create_task(self._close(), name="duly-close")
        await asyncio.wait([closing], timeout=patience)
        if not closing.done():
            closing.add_done_callback(noticed)
            closing.cancel()
            return
        closing.result()

    async def _close(self) -> None:
        self.clock_reader.stop()
        if self._following is not None:
            self._following.cancel()
        if self.live.in_force.text(LOG_LEVEL) is not None:
            set_log_level(None)
        try:
            if self.publisher is not None:
                await self.publisher.close()
        finally:
            await self.backend.close()

    async def read_settings(self) -> None:
        """Apply the cluster's current settings; while the coordinator is unreachable, the configuration applies."""
        with suppress(BackendUnavailable):
            await SettingsWatcher(self.backend.coordinator, self.live).read()

    def follow_settings(self) -> None:
        """Apply every change of the cluster's settings until this client is closed; a node does that on its own."""
        if self._following is None:
            watcher = SettingsWatcher(self.backend.coordinator, self.live)
            serving = serve(watcher, self.emit, ServiceHealth(self.clock.monotonic))
            self._following = asyncio.get_running_loop().create_task(serving, name="duly-settings")

    def _settings_changed(self, before: InForce, after: InForce) -> None:
        set_log_level(after.text(LOG_LEVEL))
        news = tuple(why for name, why in after.problems.items() if before.problems.get(name) != why)
        self.emit(SettingsApplied(after.revision, tuple(changes(before, after)), news))

    # --- queues

    async def pause_queue(self, name: str) -> bool:
        """Start no run of a queue until it is resumed; False if it was already paused."""
        _check_not_frozen(name)
        changed = await self.backend.store.pause(name)
        if changed:
            self.emit(QueuePaused(name))
        return changed

    async def resume_queue(self, name: str) -> bool:
        """Resume a paused queue; False if it was not paused."""
        _check_not_frozen(name)
        changed = await self.backend.store.resume(name)
        if changed:
            self.emit(QueueResumed(name))
        return changed

    # --- runs

    async def run(self, run_id: str) -> Run:
        found = await self.backend.store.run(_checked_id(run_id))
        if found is None:
            raise absent(run_id)
        return found

    async def find_run(self, text: str) -> Run:
        """The run with this id, or the only one whose id can be shortened to this text.

        `AmbiguousRun` if there are several; `RunNotFound` if there is none among the runs that were searched.
        """
        return await find_run(self.backend.store, text)

    async def runs(self, query: RunQuery, limit: int, cursor: str | None, scan: int = SCAN) -> Page:
        sanitize.checked_whole("limit", limit, 1, sanitize.MOST_LISTED)
        if cursor is not None:
            sanitize.checked_text("cursor", cursor, _LONGEST_CURSOR)
        _check_texts(query)
        if not _can_match(query):
            return Page([])
        return await self.backend.store.runs(query, limit, cursor, scan=scan)

    async def attempts(self, run_id: str) -> list[Attempt]:
        return await self.backend.store.attempts(run_id) if is_run_id(run_id) else []

    async def logs(self, run_id: str, after: int, limit: int | None, attempt: int | None) -> list[LogLine]:
        run = await self.run(run_id)
        sanitize.checked_whole("after", after, 0, _LAST_LINE)
        if limit is not None:
            sanitize.checked_whole("limit", limit, 0, _LAST_LINE)
        return await self.backend.store.lines(run.id, after, MOST_KEPT if limit is None else limit, attempt=attempt)

    async def cancel(self, run_id: str, reason: str | None) -> CancelReply:
        why = None if reason is None else sanitize.text_of(reason, sanitize.MOST_REASON)
        [reply] = await self.backend.store.cancel([_checked_id(run_id)], why)
        if reply is CancelReply.UNKNOWN:
            raise absent(run_id)
        if reply is not CancelReply.TOO_LATE and self.emit.wants(CancelAsked):
            run = await self.backend.store.run(run_id)
            if run is not None:
                self.emit(CancelAsked(run, done=reply is CancelReply.DONE))
        return reply

    async def cancel_each(self, runs: Sequence[Run], reason: str | None) -> list[CancelReply]:
        """Cancel waiting runs, ask the workers of running ones; in order."""
        why = None if reason is None else sanitize.text_of(reason, sanitize.MOST_REASON)
        replies = await self.backend.store.cancel([run.id for run in runs], why)
        if self.emit.wants(CancelAsked):
            for run, reply in zip(runs, replies, strict=True):
                if reply in {CancelReply.DONE, CancelReply.REQUESTED}:
                    self.emit(CancelAsked(run, done=reply is CancelReply.DONE))
        return replies

    async def redrive_each(self, runs: Sequence[Run], payload: bytes | None = None) -> list[RedriveReply]:
        """Run ended runs again, with their own payload or this one; in order."""
        replies = await self.backend.store.redrive([run.id for run in runs], payload=payload)
        if self.emit.wants(RunRedriven):
            for run, reply in zip(runs, replies, strict=True):
                if reply is RedriveReply.DONE:
                    self.emit(RunRedriven(run))
        return replies

    async def redrive(self, run_id: str, payload: Mapping[str, Any] | None = None) -> Run:
        before = await self.run(run_id)
        [reply] = await self.redrive_each([before], self.checked_payload(before.handler, payload))
        if reply is RedriveReply.UNKNOWN:
            raise absent(run_id)
        run = await self.run(run_id)
        if reply is RedriveReply.NOT_ENDED:
            way_out = "only failed, lost and cancelled runs are redriven; trigger the job for a new run"
            raise ConfigurationError(f"run {run_id} is {run.state.value}: {way_out}")
        if reply is RedriveReply.DUPLICATE:
            raise ConfigurationError(
                f"run {run_id}: another run has its dedupe_key {run.dedupe_key!r}, because it is unfinished or was"
                " submitted less than its unique_for ago"
            )
        return run

    def checked_payload(self, handler: str, payload: Mapping[str, Any] | None) -> bytes | None:
        """Arguments as they are stored, checked if this process has the handler; None if there are none."""
        if payload is None:
            return None
        return self.registry.payload(handler, payload, self.live.config.max_payload_bytes)

    # --- results

    async def ended(self, run_id: str, timeout: float | None) -> Run:
        """Wait until a run is final; the builtin TimeoutError if that takes too long. Short outages are tolerated."""
        _checked_id(run_id)
        deadline = math.inf if timeout is None else self.clock.monotonic() + timeout
        away_since: float | None = None
        while True:
            left = deadline - self.clock.monotonic()
            try:
                for run in await self.backend.store.finished([run_id], max(0.0, min(left, _LONGEST_WAIT))):
                    return run
                await self.run(run_id)
                away_since = None
            except BackendUnavailable:
                now = self.clock.monotonic()
                away_since = away_since or now
                if now >= min(deadline, away_since + _LONGEST_OUTAGE):
                    raise
                await asyncio.sleep(_ASK_AGAIN)
            if self.clock.monotonic() >= deadline:
                raise TimeoutError(f"run {run_id} has not ended within {timeout:g} s; it goes on")

    async def result(self, run_id: str, timeout: float | None) -> Any:
        """The value of a run, decoded to the handler's return type, or the reason why there is none."""
        run = await self.ended(run_id, timeout)
        if run.state is not State.COMPLETED:
            raise _no_result(run)
        if run.result is None:
            if run.reason is not None:
                raise ResultExpired(f"run {run.id} of {run.job!r} completed, {run.reason}")
            return None
        return self.decoded(run)

    def decoded(self, run: Run) -> Any:
        """The stored result of a completed run as a value."""
        import msgspec  # noqa: PLC0415

        assert run.result is not None
        signature = self.registry.signature(run.handler)
        return msgspec.json.decode(run.result) if signature is None else signature.decode_result(run.result)

    def knows(self, name: str) -> bool:
        """Whether this process defines a job of that name."""
        return self.registry.get(name) is not None

    def handlers(self) -> list[str]:
        """The handlers that this process has."""
        return self.registry.handlers()


def _check_not_frozen(queue: str) -> None:
    if queue == FROZEN:
        raise ConfigurationError(f"{queue!r} is not a queue: `duly copy` and `duly export` use it to freeze a store")


def _checked_id(run_id: str) -> str:
    if not is_run_id(run_id):
        raise absent(run_id)
    return run_id


def _check_texts(query: RunQuery) -> None:
    for name in ("node", "error", "text", "key", "id", "short"):
        if (text := getattr(query, name)) is not None:
            sanitize.checked_text(name, text, _LONGEST_SEARCHED)
    for excluded in query.none_of:
        _check_texts(excluded)


def _can_match(query: RunQuery) -> bool:
    """Whether any run can match: False if the filter has a name or an id that is not valid."""
    names = (query.job, query.handler, query.queue)
    printable = all(text is None or text.isprintable() for text in (query.node, query.id, query.short))
    return printable and all(name is None or is_job_name(name) or name == COMMAND_HANDLER for name in names)


def _no_result(run: Run) -> Exception:
    name = f"run {run.id} of {run.job!r}"
    match run.state:
        case State.FAILED:
            failure = f"{run.failure.type}: {run.failure.message}" if run.failure else run.reason
            count = max(1, run.failures + run.losses)
            return RunFailed(f"{name} failed after {count} attempt{'s' * (count > 1)}: {failure}", run)
        case State.CANCELLED:
            return RunCancelled(f"{name} was cancelled{f': {run.reason}' if run.reason else ''}", run)
        case State.LOST:
            why = run.reason or "its worker vanished"
            return RunLost(f"{name} is lost ({why}): it may have begun, and must not be tried twice", run)
        case _:
            return RunSkipped(f"{name} was skipped: {run.reason}", run)


def states_of(state: State | str | Iterable[State | str] | None) -> tuple[State, ...]:
    """The states that a caller selects; none means any."""
    if state is None:
        return ()
    try:
        given = [state] if isinstance(state, str) else list(state)
        return tuple(_STATES[each] for each in given)
    except (KeyError, TypeError) as exc:
        raise ConfigurationError(f"state={shown(state)}: expected any of {', '.join(State)}") from exc


def cause_of(cause: object) -> Cause:
    """The cause that a caller selects."""
    if not isinstance(cause, str) or cause not in tuple(Cause):
        raise ConfigurationError(f"cause={shown(cause)}: expected one of {', '.join(Cause)}")
    return Cause(cause)


def order_of(order: object) -> RunOrder:
    """The order that a caller selects."""
    if not isinstance(order, str) or order not in tuple(RunOrder):
        raise ConfigurationError(f"order={shown(order)}: expected one of {', '.join(RunOrder)}")
    return RunOrder(order)


class ClockReader:
    """One timer on the loop of an opened session. A failed reading is ignored; the next one replaces it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        if not self._backend.clock.direct:
            self._timer = asyncio.get_running_loop().call_later(_CLOCK_PERIOD, self._read_soon)

    def stop(self) -> None:
        for each in (self._timer, self._reading):
            if each is not None:
                each.cancel()

    def _read_soon(self) -> None:
        self._reading = asyncio.get_running_loop().create_task(self._read())
        self.start()

    async def _read(self) -> None:
        clock = self._backend.clock
        with suppress(DulyError):
            sent = clock.monotonic()
            clock.read(await self._backend.store.time(), sent)
