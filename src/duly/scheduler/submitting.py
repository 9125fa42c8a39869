"""Submitting: how a call becomes a run, checked before it leaves the process, and how runs reach the queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from duly.errors import ConfigurationError, shown
from duly.model import (
    EPOCH,
    Cause,
    Delivery,
    Ids,
    JobRecord,
    JobSpec,
    JobStatus,
    Overlap,
    Put,
    RetrySpec,
    Run,
    RunPolicy,
    SchedulerConfig,
    is_job_name,
    schedulable,
    shift,
)
from duly.model.event import Emit, RunsSubmitted
from duly.model.holds import UNPLACED
from duly.model.sanitize import checked_text, headers
from duly.ports import Backend, StoreClock, Tracer, Transaction
from duly.rules.admission import group_of
from duly.rules.placement import is_assigned
from duly.runtime.batcher import Batcher
from duly.runtime.live_config import LiveConfig
from duly.runtime.transactions import inside_transaction
from duly.scheduler.job import Job, check_priority, check_queue, check_timeout
from duly.scheduler.known_names import no_such_job
from duly.scheduler.registry import Registry

if TYPE_CHECKING:
    from duly.scheduler.client import Client
    from duly.scheduler.handles import RunHandle

_LONGEST_DELAY = 100 * 366 * 86400.0
LONGEST_UNIQUE = 366 * 86400.0  # seconds; keys are kept that long
_MOST_AT_ONCE = 1000
_MAX_KEY_LENGTH = 512


class Options(Struct, frozen=True, kw_only=True):
    """When and how a submitted run is to start. None means: as the job says.

    `unique_for` is for how long from acceptance a repeat with the same `dedupe_key` is answered with this run, whatever
    has become of it; None: as long as it is unfinished.
    """

    at: datetime | None = None
    delay: float | timedelta | None = None
    priority: int | None = None
    dedupe_key: str | None = None
    unique_for: float | timedelta | None = None
    queue: str | None = None
    timeout: float | None = None
    retry: RetrySpec | None = None
    headers: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if self.at is not None and self.delay is not None:
            raise ConfigurationError(
                f"at={shown(self.at)} and delay={shown(self.delay)} were both given: give one of them"
            )
        if self.at is not None:
            schedulable(self.at, "at", ConfigurationError)
        if self.delay is not None:
            _delay(self.delay)
        if self.priority is not None:
            check_priority(self.priority, "submit")
        if self.queue is not None:
            check_queue(self.queue, "submit")
        if self.dedupe_key is not None:
            checked_text("dedupe_key", self.dedupe_key, _MAX_KEY_LENGTH, empty=False)
        if self.unique_for is not None:
            _unique_for(self.unique_for)
            if self.dedupe_key is None:
                raise ConfigurationError(f"unique_for={shown(self.unique_for)} needs a dedupe_key to be unique by")
        if self.timeout is not None:
            check_timeout("submit", self.timeout)

    def due(self, clock: StoreClock) -> datetime:
        """The instant the run is due; uncertainty about the store's time does not shorten a delay."""
        if self.at is not None:
            return schedulable(self.at, "at", ConfigurationError)
        return clock.now() if self.delay is None else shift(clock.latest(), _delay(self.delay))

    def policy(self, job: RunPolicy) -> RunPolicy:
        """The job's policy, overridden by this submission's options."""
        if self.timeout is None and self.retry is None:
            return job
        if self.retry is not None and self.retry.max_retries and job.delivery is Delivery.AT_MOST_ONCE:
            raise ConfigurationError(f"retry={shown(self.retry)}: a run of an at_most_once job is never tried twice")
        return replace(job, timeout=self.timeout or job.timeout, retry=self.retry or job.retry)


def _delay(delay: object) -> float:
    plain = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not 0 <= plain <= _LONGEST_DELAY:
        raise ConfigurationError(f"delay={shown(delay)}: expected a number of seconds from 0, or a timedelta")
    return float(plain)


def _unique_for(given: object) -> float:
    plain = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not 0 < plain <= LONGEST_UNIQUE:
        raise ConfigurationError(
            f"unique_for={shown(given)}: expected a number of seconds from 0 to {LONGEST_UNIQUE:.0f}, or a timedelta"
        )
    return float(plain)


AS_THE_JOB_SAYS = Options()


def options_of(job: str, **given: Any) -> Options:
    """The options of a submission to that job, which the error names if one of them is wrong."""
    try:
        return Options(**given)
    except ConfigurationError as exc:
        raise ConfigurationError(f"job {job!r}: {exc}") from None


class Blueprint(Struct, frozen=True):
    """What all submitted runs of one job share: `alike` is such a run, except for its id, payload and time."""

    alike: Run

    def run(
        self,
        run_id: str,
        payload: bytes,
        due: datetime,
        options: Options,
        cause: Cause,
        headers: dict[str, str] | None = None,
    ) -> Run:
        run = replace(self.alike, id=run_id, payload=payload, due=due, ready_at=due, cause=cause, headers=headers)
        if options is AS_THE_JOB_SAYS:
            return run
        return replace(
            run,
            queue=options.queue or run.queue,
            priority=run.priority if options.priority is None else options.priority,
            policy=options.policy(run.policy),
            dedupe_key=options.dedupe_key,
            unique_for=None if options.unique_for is None else _unique_for(options.unique_for),
        )


def _blueprint(
    spec: Job | JobSpec, handler: str, policy: RunPolicy, overlap: Overlap, config: SchedulerConfig, **identity: Any
) -> Blueprint:
    group, when_full = group_of(spec.name, overlap)
    assignable = is_assigned(config.placement, spec.selector)
    return Blueprint(
        Run(
            id="",
            job=spec.name,
            handler=handler,
            due=EPOCH,
            ready_at=EPOCH,
            queue=spec.queue,
            priority=spec.priority,
            policy=policy,
            group=group,
            when_full=when_full,
            hold=UNPLACED if assignable else None,
            assignable=assignable,
            **identity,
        )
    )


def blueprint_of(job: Job, config: SchedulerConfig) -> Blueprint:
    """The blueprint of a job defined in this process. Submitted runs overlap unless the job says otherwise."""
    return _blueprint(job, job.handler_name, job.policy(), Overlap(job.overlap or Overlap.ALLOW), config)


def blueprint_of_record(record: JobRecord, default: Overlap, config: SchedulerConfig) -> Blueprint:
    """The blueprint of a job that the store knows."""
    spec = record.spec
    identity = {"uid": record.uid, "revision": record.revision}
    return _blueprint(spec, spec.handler, spec.policy, spec.overlap or default, config, **identity)


def blueprint_of_name(name: str, config: SchedulerConfig) -> Blueprint:
    """The blueprint of a job that is unknown here: its handler has its name."""
    return _blueprint(JobSpec(name=name, handler=name), name, RunPolicy(), Overlap.ALLOW, config)


def name_of(handler: object) -> str:
    """The name that a handle, a handler's name or a registered function stands for."""
    name = handler if isinstance(handler, str) else getattr(handler, "name", None) or getattr(handler, "__name__", None)
    if not isinstance(name, str) or not is_job_name(name):
        raise ConfigurationError(f"{shown(handler)} is neither the name of a handler nor a job handle")
    return name


def _let_pass(_: object) -> None:
    """A guard that lets everything pass."""


class Submitter:
    """Makes runs and puts them. Concurrent single submissions share round trips."""

    def __init__(
        self,
        backend: Backend,
        registry: Registry,
        live: LiveConfig,
        ids: Ids,
        clock: StoreClock,
        tracer: Callable[[], Tracer | None],
        emit: Emit,
    ) -> None:
        self._backend = backend
        self._registry = registry
        self._live = live
        self._ids = ids
        self._clock = clock
        self._tracer = tracer
        self._emit = emit
        self._blueprints: dict[str, Blueprint] = {}
        self._batch: Batcher[Run, Put] = Batcher(
            self._deliver, _MOST_AT_ONCE, calls=2 if backend.capabilities.pipelined else 1
        )

    def compose(self, handler: object, payload: Mapping[str, Any] | None = None, **options: Any) -> Run:
        """The run of a submission to a handler of this process, or of one that will be checked when it is claimed."""
        name = name_of(handler)
        chosen = options_of(name, **options)
        blueprint = self._known(name) or blueprint_of_name(name, self._live.config)
        return self._run(blueprint, payload, chosen, Cause.SUBMIT)

    async def submit(
        self, name: str, payload: Mapping[str, Any] | None, options: Options, into: Transaction | None = None
    ) -> Put:
        """Submit one run, as part of the user's transaction if there is one."""
        run = self._run(self._known(name) or await self.blueprint(name), payload, options, Cause.SUBMIT)
        if into is None:
            return await self._put(run)
        [put] = await into.put([run])
        return put

    async def composed(
        self, name: str, payload: Mapping[str, Any], options: Options, guard: Callable[[Run], None] = _let_pass
    ) -> Run:
        """The run of a submission to a job by its name, checked and not yet put.

        `guard` is called with what all runs of the job share, before the submission is checked; to refuse it, the guard
        raises the error for the caller.
        """
        blueprint = self._known(name) or await self.blueprint(name)
        guard(blueprint.alike)
        return self._run(blueprint, payload, options, Cause.SUBMIT)

    async def put(self, run: Run) -> Put:
        """Put one run that was composed."""
        return await self._put(run)

    async def put_each(self, runs: Sequence[Run]) -> list[Put]:
        """Put runs that were composed; in order."""
        return await self._put_all(runs)

    async def submit_many(
        self, name: str, payloads: Iterable[Mapping[str, Any]], options: Options, into: Transaction | None = None
    ) -> list[Put]:
        """Submit many runs of one job, checked before the first is put; in order."""
        blueprint = await self.blueprint(name)
        if options.dedupe_key is not None:
            raise ConfigurationError(
                f"dedupe_key={shown(options.dedupe_key)} would make all but one of many a duplicate"
            )
        due = options.due(self._clock)
        most, check = self._live.config.max_payload_bytes, self._registry.payload
        checked = [check(name, payload, most) for payload in payloads]
        alike = blueprint.run("", b"", due, options, Cause.SUBMIT, self._headers(options))
        new_ids = self._ids.many(len(checked))
        runs = [replace(alike, id=run_id, payload=payload) for run_id, payload in zip(new_ids, checked, strict=True)]
        return await self._put_all(runs, into)

    async def _put(self, run: Run) -> Put:
        """Put one run. Inside a handler's transaction the store is asked directly: it may refuse this caller alone."""
        if inside_transaction():
            [put] = await self._deliver([run])
            return put
        return await self._batch(run)

    async def _put_all(self, runs: Sequence[Run], into: Transaction | None = None) -> list[Put]:
        """Put many. No event is emitted inside a user's transaction: whether it commits is not known here."""
        if into is None and self._backend.capabilities.pipelined:
            return await self._deliver(runs)
        put = self._deliver if into is None else into.put
        answers: list[Put] = []
        for start in range(0, len(runs), _MOST_AT_ONCE):
            answers += await put(runs[start : start + _MOST_AT_ONCE])
        return answers

    async def _deliver(self, runs: Sequence[Run]) -> list[Put]:
        puts = await self._backend.queue.put(runs)
        if self._emit.wants(RunsSubmitted):
            new = tuple(run for run, put in zip(runs, puts, strict=True) if put.created)
            if new:
                self._emit(RunsSubmitted(new))
        return puts

    async def trigger(
        self, name: str, payload: Mapping[str, Any] | None, guard: Callable[[JobRecord], None] = _let_pass
    ) -> Put:
        """Run a job once more, now. Its overlap rule applies as it does to its scheduled runs.

        `guard` is called with the job as it was read; to refuse, it raises the error for the caller.
        """
        record = await self._backend.store.job(name) if is_job_name(name) else None
        if record is None or record.status is JobStatus.REMOVED:
            raise await no_such_job(self._backend.store, name)
        guard(record)
        default = Overlap.ALLOW if record.spec.schedule is None else Overlap.SKIP
        blueprint = blueprint_of_record(record, default, self._live.config)
        if payload is not None or record.spec.schedule is None:
            return await self._put(self._run(blueprint, payload, AS_THE_JOB_SAYS, Cause.TRIGGER))
        trace = self._headers(AS_THE_JOB_SAYS)
        run = blueprint.run(
            self._ids.new(), record.spec.payload, self._clock.now(), AS_THE_JOB_SAYS, Cause.TRIGGER, trace
        )
        return await self._put(run)

    def _run(self, blueprint: Blueprint, payload: Mapping[str, Any] | None, options: Options, cause: Cause) -> Run:
        encoded = self._registry.payload(
            blueprint.alike.handler, {} if payload is None else payload, self._live.config.max_payload_bytes
        )
        trace = self._headers(options)
        due = options.due(self._clock)
        made = self._ids.new(due if options.at is None and options.delay is None else None)
        return blueprint.run(made, encoded, due, options, cause, trace)

    def _headers(self, options: Options) -> dict[str, str] | None:
        """The trace to carry on: the one that is active here, else the one that came with the submission."""
        tracer = self._tracer()
        active = None if tracer is None else tracer.headers()
        return headers(options.headers if active is None else active)

    def _known(self, name: str) -> Blueprint | None:
        blueprint = self._blueprints.get(name)
        if blueprint is None and (job := self._registry.get(name)) is not None:
            blueprint = self._blueprints[name] = blueprint_of(job, self._live.config)
        return blueprint

    async def blueprint(self, name: str) -> Blueprint:
        """The job as the code defines it, else as the store has it, else unknown: then it is checked when claimed."""
        known = self._known(name)
        if known is not None:
            return known
        record = await self._backend.store.job(name)
        if record is None:
            return blueprint_of_name(name, self._live.config)
        return blueprint_of_record(record, Overlap.ALLOW, self._live.config)

    def forget(self, name: str) -> None:
        """The job's definition was replaced."""
        self._blueprints.pop(name, None)


class UserTransaction:
    """What `scheduler.within(connection)` returns. The caller begins and ends the transaction."""

    def __init__(
        self, client: Callable[[], Awaitable[Client]], handle: Callable[[Put], RunHandle[Any]], connection: Any
    ) -> None:
        self._client = client
        self._handle = handle
        self._connection = connection

    async def submit(self, handler: Any, payload: Mapping[str, Any] | None = None, **options: Any) -> RunHandle[Any]:
        """As `Scheduler.submit`. The handle is of use once the transaction has committed."""
        name = name_of(handler)
        chosen = options_of(name, **options)
        client = await self._client()
        put = await client.submitter.submit(name, payload, chosen, self._joined(client))
        return self._handle(put)

    async def submit_many(
        self, handler: Any, payloads: Iterable[Mapping[str, Any]], **options: Any
    ) -> list[RunHandle[Any]]:
        """As `Scheduler.submit_many`."""
        name = name_of(handler)
        chosen = options_of(name, **options)
        client = await self._client()
        puts = await client.submitter.submit_many(name, payloads, chosen, self._joined(client))
        return [self._handle(put) for put in puts]

    def _joined(self, client: Client) -> Transaction:
        backend = client.backend
        if not backend.capabilities.transactions:
            raise ConfigurationError(
                f"within() needs a store with transactions, but {backend.url} has none: use sqlite:// or postgresql://"
            )
        return backend.store.within(self._connection)
