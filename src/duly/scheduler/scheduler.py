"""The scheduler: where jobs are defined, a store is opened, and a node is run. Constructing one does no I/O.

closed → open (a client: nothing is planned or run) → running (a node as well). Any call on a closed scheduler opens it
as a client.
"""

from __future__ import annotations

import asyncio
import importlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, overload

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from duly.errors import ConfigurationError, DulyError, SchedulerRunning, shown
from duly.model import (
    Attempt,
    CancelReply,
    Cause,
    Counts,
    JobFile,
    JobStatistics,
    LogLine,
    Node,
    Page,
    Run,
    RunOrder,
    RunQuery,
    SchedulerConfig,
    State,
    as_utc,
    is_run_id,
)
from duly.model.config import config_of
from duly.model.confinement import Confinement
from duly.model.notification import NOTIFY, NotificationTarget, NotifyState
from duly.observe import Logger, MetricsCollector
from duly.ports import Backend, Clock, Finding, SystemClock
from duly.rules.definitions import Revision
from duly.rules.explain import Explanation
from duly.rules.job_files import Difference
from duly.rules.keywords import unknown_keywords
from duly.rules.retry import RetryPolicy
from duly.rules.schedules import Schedule
from duly.runtime.context import Context
from duly.runtime.executors.custom import Executor
from duly.runtime.executors.import_path import loading_main
from duly.runtime.handler import ErrorHook, FailureHook
from duly.runtime.notify.notifier import read_state
from duly.scheduler.backfills import Backfill
from duly.scheduler.client import Client, cause_of, order_of, states_of
from duly.scheduler.cluster_settings import ClusterSettings
from duly.scheduler.examination import examine
from duly.scheduler.executors import checked_executors
from duly.scheduler.handles import JobDecorator, JobHandle, RunHandle
from duly.scheduler.health import health_of
from duly.scheduler.job import (
    DeliveryName,
    Duration,
    Job,
    MisfireName,
    OverlapName,
    StoreLossName,
)
from duly.scheduler.job_history import Rollback
from duly.scheduler.life import Life
from duly.scheduler.locks import Lock, locked
from duly.scheduler.node_report import NodeReport, report_of
from duly.scheduler.registry import Place, Registry, Wrapper, place_of
from duly.scheduler.running_node import RunningNode
from duly.scheduler.sessions import Sessions
from duly.scheduler.store_address import OpenBackend, StoreAddress
from duly.scheduler.submitting import AS_THE_JOB_SAYS, Options, UserTransaction, name_of, options_of
from duly.scheduler.subscriptions import Subscriptions
from duly.scheduler.sync import Portal
from duly.scheduler.unawaited import names_its_call
from duly.scheduler.views import Health, JobView, ShutdownReport, Upcoming

if TYPE_CHECKING:
    from duly.scheduler.sync_scheduler import SyncScheduler

P = ParamSpec("P")
R = TypeVar("R")

_NOTHING = (None,) * 6
_KEYWORDS = tuple(field for field in Job.__struct_fields__ if field not in {"handler", "schedule"})
_LAST_WORDS = 0.2  # how long closing the store may take after a stop, which itself may take two seconds


class Scheduler(Subscriptions):
    """A distributed job scheduler: decorate functions, start as many copies of the program as you like.

    Without arguments it uses the file `duly.db` in the current folder, or `DULY_URL`. `imports` names modules to load
    at start, so that their jobs are defined.

    Every part can be replaced with your own object: `backend` is a `Backend`, or a function that gets an `Opening`
    (namespace, clock, lease) and returns one, such as `RedisBackend.from_client(client)`; `executors` maps names to
    objects that run handlers (`Executor`), which a job chooses with `executor="name"`; `logger` and `metrics` are as in
    `observe`; `config` is a `SchedulerConfig` or a mapping of its fields. `notify` are targets of notifications, such
    as `Webhook(…)` and `Mail(…)`.
    """

    def __init__(
        self,
        url: str | None = None,
        config: SchedulerConfig | Mapping[str, Any] | None = None,
        *,
        store: str | None = None,
        queue: str | None = None,
        coordinator: str | None = None,
        backend: Backend | OpenBackend | None = None,
        executors: Mapping[str, Executor] | None = None,
        logger: Logger | None = None,
        metrics: MetricsCollector | None = None,
        notify: Sequence[NotificationTarget] | None = None,
        imports: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        super().__init__(logger, metrics)
        self._executors = checked_executors(executors)
        chosen = config_of(config)
        if notify is not None:
            chosen = replace(chosen, notify=notify)
        self._binding = StoreAddress(url, chosen, store, queue, coordinator, backend)
        self._imports = tuple(imports)
        self._clock: Clock = clock or SystemClock()
        self._rng = random.Random()
        self._registry = Registry(self._executors)
        self._portal = Portal()
        self._sessions = self._new_sessions()
        self._life = Life()
        self._holds = 0
        self._job_file: JobFile | None = None
        self.settings = ClusterSettings(self._client)

    @cached_property
    def sync(self) -> SyncScheduler:
        """The same methods for code without an event loop."""
        from duly.scheduler.sync_scheduler import SyncScheduler  # noqa: PLC0415  # it is made from this class

        return SyncScheduler(self, self._sync_loop)

    # --- settings

    @property
    def config(self) -> SchedulerConfig:
        return self._binding.config

    @property
    def is_running(self) -> bool:
        """Whether a node runs in this process."""
        return self._running is not None

    @property
    def _running(self) -> RunningNode | None:
        return self._life.running

    def configure(self, url: str | None = None, *, config: SchedulerConfig | Mapping[str, Any] | None = None) -> None:
        """Bind to another store or other settings. What was open is closed."""
        self._refuse_running("configure()")
        chosen = self.config if config is None else config_of(config)
        self._bind(StoreAddress(url, chosen) if url else replace(self._binding, config=chosen))

    def follow(self, address: str) -> None:
        """Bind to the address that `StoreMoved` has given, with the credentials of the present one if they fit."""
        self._refuse_running("follow()")
        self._bind(self._binding.moved_to(address))

    def _bind(self, address: StoreAddress) -> None:
        self._binding = address
        self._sessions.abandon()
        self._sessions = self._new_sessions()

    @contextmanager
    def override(
        self, url: str, *, config: SchedulerConfig | None = None, clock: Clock | None = None
    ) -> Iterator[Self]:
        """Talk to another store inside the block; meant for tests: `with scheduler.override("memory://"):`."""
        self._refuse_running("override()")
        before = (self._binding, self._sessions, self._clock)
        self._binding = StoreAddress(url, config or self.config)
        self._sessions = self._new_sessions()
        self._clock = clock or self._clock
        try:
            yield self
        finally:
            self._sessions.abandon()
            self._binding, self._sessions, self._clock = before

    def wrap(self, wrapper: Wrapper) -> None:
        """Wrap every handler, for frameworks: `wrapper` takes a handler and returns what is called instead.

        Called on the node's loop when the node is built. What it returns is async where the handler is, and runs where
        the handler does, in its task or its thread. Handlers in separate processes are not wrapped.
        """
        self._refuse_running("wrap()")
        self._registry.wrap(wrapper)

    # --- defining jobs

    @overload
    def job(  # type: ignore[overload-overlap]  # the first that fits is meant: a context is never submitted
        self, schedule: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> JobHandle[Callable[Concatenate[Context, P], Awaitable[R]], P, R]: ...

    @overload
    def job(self, schedule: Callable[P, Awaitable[R]], /) -> JobHandle[Callable[P, Awaitable[R]], P, R]: ...

    @overload
    def job(
        self, schedule: Callable[Concatenate[Context, P], R], /
    ) -> JobHandle[Callable[Concatenate[Context, P], R], P, R]: ...

    @overload
    def job(self, schedule: Callable[P, R], /) -> JobHandle[Callable[P, R], P, R]: ...

    @overload
    def job(
        self,
        schedule: Schedule | None = None,
        *,
        name: str = "",
        description: str | None = None,
        payload: Mapping[str, Any] | None = None,
        queue: str = "default",
        priority: int = 0,
        timeout: Duration | None = None,
        retry: RetryPolicy | int | UnsetType | None = UNSET,
        delivery: DeliveryName = "at_least_once",
        overlap: OverlapName | None = None,
        misfire: MisfireName = "latest",
        executor: str | None = None,
        tags: Sequence[str] = (),
        on_error: ErrorHook | None = None,
        on_failure: FailureHook | None = None,
        on_store_loss: StoreLossName = "continue",
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        max_runs: int | None = None,
        selector: Mapping[str, str] | None = None,
        notify: Sequence[str] | bool | None = None,
        expect_every: Duration | None = None,
        keep_logs: int | None = None,
        restore: bool = False,
        confine: Confinement | Mapping[str, Any] | None = None,
    ) -> JobDecorator: ...

    def job(self, schedule: Any = None, **options: Any) -> Any:
        """Define a job by decorating its handler. Keywords as of `Job`; the name is the function's unless given."""
        if callable(schedule) and not hasattr(schedule, "next_run"):
            return self._define(None, {}, schedule)
        return lambda function: self._define(schedule, options, function)

    def _define(
        self, schedule: Schedule | None, options: dict[str, Any], function: Callable[..., Any]
    ) -> JobHandle[Any, Any, Any]:
        plain = function.function if isinstance(function, JobHandle) else function
        if wrong := unknown_keywords(options, _KEYWORDS):
            raise ConfigurationError(f"job {options.get('name') or getattr(plain, '__name__', plain)!r}: {wrong}")
        return self.add(Job(handler=plain, schedule=schedule, **options))

    def add(self, job: Job) -> JobHandle[Any, Any, Any]:
        """Define a job before the start and return its handle. While running, use `register`.

        In an interactive session, such as a notebook, it defines or replaces the job of a running scheduler, too.
        """
        place = place_of(job)
        if self._running is None:
            self._registry.add(job, place)
        elif place.is_typed_in():
            self._redefine(job, place, self._running)
        else:
            raise SchedulerRunning(f"job {job.name!r}: the scheduler runs; use `await scheduler.register(job)`")
        return JobHandle(self, job, job.handler)

    def defined(self) -> list[str]:
        """The names of the jobs that this process defines, in code or in a job file."""
        code = [job.name for job in self._registry.jobs()]
        return code if self._job_file is None else [*code, *(spec.name for spec in self._job_file.jobs)]

    def _redefine(self, job: Job, place: Place, running: RunningNode) -> None:
        """Replace a job while a node runs, from code that cannot wait: the handler now, the stored definition soon."""
        self.refuse_if_frozen(f"registering {job.name!r}")
        self._registry.check(job, self.config)
        if _is_running_elsewhere(running.loop):
            self.sync.register(job)
            return
        self._registry.replace(job, place)
        running.client.submitter.forget(job.name)
        running.redefine(job)

    # --- life

    @names_its_call("`await scheduler.start()`, or `scheduler.sync.start()` without an event loop")
    async def start(self) -> None:
        """Open the store, bring it in line with the code, and run a node. Does nothing if one runs.

        Concurrent callers wait for the same start. A start that fails, or that all its callers have cancelled, leaves
        nothing behind. A call that is not awaited starts nothing, and causes a warning that names its line.
        """
        if loading_main():
            way_out = 'put it under `if __name__ == "__main__":`'
            raise DulyError(f"a handler's process is loading the main script, which starts a scheduler: {way_out}")
        await self._life.start(self._start)

    async def _start(self) -> RunningNode:
        was_open = self._sessions.is_open()
        try:
            running = self._build(await self._client(), self._rng)
            try:
                if self._job_file is not None:
                    await running.carry(self._job_file)
                await running.start()
            except BaseException:
                await running.dispose()
                raise
        except BaseException:
            if not was_open:
                await self.close()
            raise
        return running

    def _build(self, client: Client, rng: random.Random) -> RunningNode:
        self._load()
        return RunningNode(client, rng, self._tracer, self._executors)

    def _load(self) -> None:
        """Import the modules that define jobs."""
        for module in (*self._imports, *self.config.imports):
            importlib.import_module(module)

    async def stop(self, timeout: float | timedelta | None = None) -> ShutdownReport:
        """Stop the node gracefully, within `timeout` seconds (default: `shutdown_timeout`), and close the store.

        What handlers, hooks or the store do cannot delay it by more than two seconds. A second caller waits for
        the same end.
        """
        patience = self._patience(timeout)
        report = await self._life.stop(lambda running: self._stop(running, patience))
        if report is not None:
            return report
        await self.close()
        return ShutdownReport()

    async def _stop(self, running: RunningNode, patience: float | None) -> ShutdownReport:
        report = await running.stop(patience)
        self._life.over()
        await self._close(_LAST_WORDS)
        return report

    def _patience(self, timeout: float | timedelta | None) -> float | None:
        running = self._running
        config = self.config if running is None else running.client.live.config
        chosen = config.shutdown_timeout if timeout is None else timeout
        return chosen.total_seconds() if isinstance(chosen, timedelta) else chosen

    @property
    def patience(self) -> float | None:
        """How many seconds a stop waits for running handlers; None: as long as they take."""
        return self._patience(None)

    def rescue(self, patience: float) -> int:
        """Give back all runs of the node from another thread: its loop is blocked, and the process has to exit."""
        running = self._running
        return 0 if running is None else running.node.rescue(patience)

    def hurry(self) -> None:
        """While stopping: do not wait for running handlers any longer."""
        if self._running is not None:
            self._running.node.hurry()

    def replaced(self) -> None:
        """Another process has the id of this node from now on, and this one is about to be stopped."""
        if self._running is not None:
            self._running.node.replaced()

    def report(self) -> NodeReport | None:
        """What a supervisor needs to know about the node of this process; None if it does not run."""
        running = self._running
        return None if running is None else report_of(self._binding, running, self.patience)

    async def tell_hooks(self, run_ids: Sequence[str]) -> None:
        """Call the failure hooks for runs that a supervisor has settled after a crash of this node."""
        if self._running is not None:
            await self._running.node.tell_hooks(run_ids)

    async def wait(self) -> None:
        """Return when the node has stopped."""
        if self._running is not None:
            await self._running.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Self]:
        """Open the store for the block without running a node."""
        self._holds += 1
        try:
            await self._sessions.client()
            yield self
        finally:
            self._holds -= 1
            await self.close()

    async def close(self) -> None:
        """Close what this event loop has open. Not while a node runs, nor inside `client()`."""
        await self._close(None)

    async def _close(self, patience: float | None) -> None:
        if self._running is None and not self._holds:
            await self._sessions.close(patience)

    def run_forever(self, *, log_level: str = "INFO", log_format: str = "TEXT") -> ShutdownReport:
        """Run a node until SIGINT or SIGTERM: the first drains, the second stops at once. Configures logging."""
        from duly.scheduler.run_forever import run_forever  # noqa: PLC0415  # only programs need signals and log handlers

        return run_forever(self, log_level, log_format)

    def _new_sessions(self) -> Sessions:
        return Sessions(lambda: self._binding.open(self._clock), self._make_client)

    def _make_client(self, backend: Backend) -> Client:
        tracer = lambda: self._tracer  # noqa: E731  # it may be plugged in later
        return Client(backend, self._registry, self.config, self._events, self._rng, tracer)

    async def _client(self) -> Client:
        return await self._sessions.client()

    async def opened(self) -> Client:
        """The client of the running loop, for what is built on a scheduler: its API, a dashboard."""
        return self._sessions.at_hand() or await self._client()

    def _sync_loop(self) -> asyncio.AbstractEventLoop:
        return self._portal.loop() if self._running is None else self._running.loop

    # --- operating jobs

    def refuse_if_frozen(self, what: str) -> None:
        """Raise if the jobs of this running node are not to be changed, for what is built on a scheduler."""
        if self._running is not None and self.config.registry == "frozen":
            raise SchedulerRunning(f"{what} while running is refused: SchedulerConfig(registry='frozen')")

    async def register(self, job: Job) -> JobHandle[Any, Any, Any]:
        """Define a job now, running or not, and return its handle; a job of the same name is replaced."""
        self.refuse_if_frozen(f"registering {job.name!r}")
        client = await self._client()
        self._registry.check(job, self.config)
        self._registry.replace(job, place_of(job))
        client.submitter.forget(job.name)
        if self._running is not None:
            await self._running.register(job)
        else:
            await client.code_deploys.deploy([job], client.clock.now())
        return JobHandle(self, job, job.handler)

    async def remove(self, name: str) -> None:
        """Stop planning a job and cancel its waiting runs; what runs may end. History stays."""
        self.refuse_if_frozen(f"removing {shown(name)}")
        await (await self._client()).definitions.remove(name)

    async def restore(self, name: str) -> None:
        """Plan a removed job again, as its code last defined it; `JobNotFound` if the store has no definition of it."""
        self.refuse_if_frozen(f"restoring {shown(name)}")
        await (await self._client()).definitions.restore(name)

    async def pause(self, name: str, note: str = "") -> None:
        """Neither plan nor start runs of this job until it is resumed; survives restarts and deploys."""
        await (await self._client()).definitions.pause(name, note)

    async def resume(self, name: str) -> None:
        """Resume a paused job; the runs it missed are recorded as skipped."""
        await (await self._client()).definitions.resume(name)

    async def trigger(self, name: str, payload: Mapping[str, Any] | None = None) -> RunHandle[Any]:
        """Run a job once more, now, with its own payload or this one."""
        return RunHandle.of(self, await (await self._client()).submitter.trigger(name, payload))

    async def get_job(self, name: str) -> JobView:
        """A job in its present state; `JobNotFound` if there is none."""
        return await (await self._client()).definitions.view(name)

    async def jobs(self, *, removed: bool = False) -> list[JobView]:
        """All jobs, by name; with those that were removed and may be restored, if asked for."""
        return await (await self._client()).definitions.views(removed=removed)

    async def handler_statistics(self, handler: str) -> JobStatistics:
        """Counters of a handler, summed over its recurring jobs and the job that has its name."""
        return await (await self._client()).definitions.handler_statistics(handler)

    async def history(self, name: str) -> list[Revision]:
        """The versions of a job's definition, newest first: who wrote each, when, and what it changed.

        The newest 50 replaced ones are kept. A pause is not a new version, so the numbers of revisions may jump.
        """
        return await (await self._client()).history.revisions(name)

    async def rollback(
        self, name: str, revision: int | None = None, *, by: str | None = None, dry_run: bool = False
    ) -> Rollback:
        """Give a job the definition it had at a revision, or its previous one, as a new revision.

        Raises `JobChanged` if live nodes define the job in their code: deploy the earlier code instead. `by`, a user's
        name, is kept with the new revision. With `dry_run` nothing is written.
        """
        self.refuse_if_frozen(f"rolling back {shown(name)}")
        return await (await self._client()).history.rollback(name, revision, by=by, dry_run=dry_run)

    async def backfill(
        self,
        name: str,
        start: datetime,
        end: datetime,
        *,
        limit: int = 1_000,
        by: str | None = None,
        dry_run: bool = False,
    ) -> Backfill:
        """Create the runs of a job's past due times from `start` on and before `end` that have no run.

        These are times without a record, and skipped ones. A due time whose run exists is not repeated. The runs have
        the job's present definition, the earliest first, and wait in its queue like any other; at most `limit` are
        created. `by` is a user's name, which `explain` shows. With `dry_run` nothing is created.
        """
        client = await self._client()
        user = f"node {client.node_id}" if by is None else by
        return await client.backfills.backfill(name, start, end, limit=limit, by=user, dry_run=dry_run)

    async def upcoming(self, limit: int = 20, job: str | None = None) -> list[Upcoming]:
        """The next runs, by time, as far as they are known."""
        return await (await self._client()).definitions.upcoming(limit, job)

    async def explain(self, job: str, at: datetime | None = None) -> Explanation:
        """Why the run of that instant (now, unless given) did or did not happen, or why the run of that id is as it is.

        If the job has no instant then, the nearest one is explained.
        """
        explainer = (await self._client()).explainer
        return await (explainer.run(job) if is_run_id(job) else explainer.instant(job, at))

    # --- job files

    async def carry(self, job_file: JobFile) -> bool:
        """Define the jobs of a file: at the start, or now if a node runs; return whether it is in force, if known.

        A file that was replaced by a newer one is not applied again. One that has changed while the node ran is
        newer than what the node had.
        """
        stands = True
        if self._running is not None:
            changed = self._job_file is None or self._job_file.digest() != job_file.digest()
            stands = await self._running.reload(job_file, changed=changed)
        self._job_file = job_file
        return stands

    async def compare(self, job_file: JobFile) -> Difference:
        """What the jobs of a file would change in the store."""
        return await (await self._client()).job_files.compare(job_file)

    async def apply(self, difference: Difference, *, by: str | None = None) -> list[str]:
        """Write what `compare` found, whichever file was in force; return the names of what others changed meanwhile.

        With `by`, a user's name, the change is recorded in the audit log.
        """
        return await (await self._client()).job_files.apply(difference, by=by)

    # --- submitting

    async def submit(
        self,
        handler: str | JobHandle[Any, Any, R] | Callable[..., Any],
        payload: Mapping[str, Any] | None = None,
        *,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        dedupe_key: str | None = None,
        unique_for: float | timedelta | None = None,
        queue: str | None = None,
    ) -> RunHandle[Any]:
        """Submit a run to a handler by name or handle. A name unknown here is checked when it is claimed.

        While a run with the same `dedupe_key` is unfinished, and for `unique_for` seconds from its acceptance whatever
        becomes of it, no second one is made: the handle is that of the first, and says `deduplicated`.
        """
        name, options = name_of(handler), AS_THE_JOB_SAYS
        if (at, delay, priority, dedupe_key, unique_for, queue) != _NOTHING:
            options = options_of(
                name, at=at, delay=delay, priority=priority, dedupe_key=dedupe_key, unique_for=unique_for, queue=queue
            )
        return await self._submit(name, (), {} if payload is None else payload, options)

    async def submit_many(
        self,
        handler: str | JobHandle[Any, Any, R] | Callable[..., Any],
        payloads: Iterable[Mapping[str, Any]],
        *,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        queue: str | None = None,
    ) -> list[RunHandle[Any]]:
        """Submit many runs to one handler in as few round trips as possible; in order."""
        name = name_of(handler)
        options = options_of(name, at=at, delay=delay, priority=priority, queue=queue)
        return await self._submit_many(name, payloads, options)

    def within(self, connection: Any) -> UserTransaction:
        """Submit in a transaction that is open on your own connection to the same database.

        `await scheduler.within(connection).submit(send_mail, {"to": "ada@example.org"})`: the run exists if and when
        you commit. Only where the store has transactions: SQLite (`sqlite3`), PostgreSQL (asyncpg).
        """
        return UserTransaction(self._client, lambda put: RunHandle.of(self, put), connection)

    async def _submit(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], options: Options
    ) -> RunHandle[Any]:
        client = self._sessions.at_hand() or await self._client()
        if args:
            signature = self._registry.signature(name)
            assert signature is not None
            kwargs = signature.bind(args, dict(kwargs))
        return RunHandle.of(self, await client.submitter.submit(name, kwargs, options))

    def _check(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        signature = self._registry.signature(name)
        bound = kwargs if signature is None else signature.bind(args, kwargs)
        self._registry.payload(name, bound, self.config.max_payload_bytes)

    async def _submit_many(
        self, name: str, payloads: Iterable[Mapping[str, Any]], options: Options
    ) -> list[RunHandle[Any]]:
        client = await self._client()
        return [RunHandle.of(self, put) for put in await client.submitter.submit_many(name, payloads, options)]

    # --- runs

    def run(self, run_id: str) -> RunHandle[Any]:
        """The handle of a run that is known by its id: to wait for it, cancel it, or get its result.

        Nothing is read here, so the run need not exist. `send_mail.run(run_id)` gives a handle with the type of the
        job's result.
        """
        return RunHandle(self, run_id)

    async def get_run(self, run_id: str) -> Run:
        """A run in its present state; `RunNotFound` if there is none."""
        return await (await self._client()).run(run_id)

    async def runs(
        self,
        job: str | None = None,
        state: State | str | Iterable[State | str] | None = None,
        *,
        handler: str | None = None,
        queue: str | None = None,
        cause: Cause | str | None = None,
        due_from: datetime | None = None,
        due_until: datetime | None = None,
        order: RunOrder | str = RunOrder.CREATED,
        ended_from: datetime | None = None,
        ended_until: datetime | None = None,
        node: str | None = None,
        error: str | None = None,
        text: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """Runs that match, a page at a time: `page.runs`, and `page.next` for the following one.

        `order` is "created" (newest first), "ended" (ended runs, latest first) or "ready" (waiting runs, earliest
        first). A search that matches few runs may stop before the page is full: `page.reached` is how far it came.
        """
        query = RunQuery(
            job=job,
            handler=handler,
            queue=queue,
            states=states_of(state),
            cause=None if cause is None else cause_of(cause),
            due_from=None if due_from is None else as_utc(due_from, "due_from", ConfigurationError),
            due_until=None if due_until is None else as_utc(due_until, "due_until", ConfigurationError),
            order=order_of(order),
            ended_from=None if ended_from is None else as_utc(ended_from, "ended_from", ConfigurationError),
            ended_until=None if ended_until is None else as_utc(ended_until, "ended_until", ConfigurationError),
            node=node,
            error=error,
            text=text,
        )
        return await (await self._client()).runs(query, limit, cursor)

    async def attempts(self, run_id: str) -> list[Attempt]:
        """The history of a run, oldest first."""
        return await (await self._client()).attempts(run_id)

    async def logs(
        self, run_id: str, *, after: int = 0, limit: int | None = None, attempt: int | None = None
    ) -> list[LogLine]:
        """The lines of a run's log that are kept, in order; while the run executes, they are about a second old.

        With `after`, only lines with a greater number, at most `limit`; with `attempt`, only those of this attempt.
        """
        return await (await self._client()).logs(run_id, after, limit, attempt)

    async def waits_for(self, run_id: str) -> str | None:
        """Why a waiting run waits, in plain words; None if it does not wait."""
        client = await self._client()
        return await client.explainer.waits_for(await client.run(run_id))

    async def cancel(self, run_id: str, reason: str | None = None) -> CancelReply:
        """Cancel a run: at once while it waits, by asking its worker while it runs."""
        client = await self._client()
        reply = await client.cancel(run_id, reason)
        if reply is CancelReply.REQUESTED and self._running is not None and self._running.client is client:
            self._running.node.cancel([run_id])
        return reply

    async def redrive(self, run_id: str, payload: Mapping[str, Any] | None = None) -> RunHandle[Any]:
        """Run a failed, lost or cancelled run again under the same id, with its own payload or this one."""
        run = await (await self._client()).redrive(run_id, payload)
        return RunHandle(self, run.id, run.created_at or run.due)

    async def _ended(self, run_id: str, timeout: float | None) -> Run:
        return await (await self._client()).ended(run_id, timeout)

    async def _result(self, run_id: str, timeout: float | None) -> Any:
        return await (await self._client()).result(run_id, timeout)

    # --- the cluster

    @asynccontextmanager
    async def lock(self, name: str, ttl: float = 30, wait: float = 0) -> AsyncIterator[Lock]:
        """Hold a named lock for the block; `lock.fence` grows with every holder."""
        client = await self._client()
        async with locked(client.backend.coordinator, client.clock, name, client.ids.new(), ttl, wait) as lock:
            yield lock

    async def nodes(self) -> list[Node]:
        """The live nodes, the longest-started first."""
        return await (await self._client()).backend.coordinator.nodes()

    async def notifications(self) -> NotifyState | None:
        """What is known about notifications: targets, deliveries, failing jobs; None if no node has sent any."""
        return read_state(await (await self._client()).backend.store.get(*NOTIFY))

    async def health(self) -> Health:
        """The health of this process, as a value; does not raise if the store is unreachable."""
        client = await self._sessions.client() if self._sessions.is_open() else None
        return await health_of(self._running, client)

    async def counts(self) -> Counts:
        """How many runs there are by state, and what waits in which queue; see `at_least` for lower bounds."""
        return await (await self._client()).backend.store.counts()

    async def examine(self) -> list[Finding]:
        """What an operator should know about the store as it is configured."""
        return await examine((await self._client()).backend)


def _is_running_elsewhere(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether another thread runs that loop, so that this one can wait for it.

    A loop that is not running belongs to this thread: an interactive session runs it only while something is awaited.
    """
    try:
        return loop.is_running() and asyncio.get_running_loop() is not loop
    except RuntimeError:
        return True
