"""Jobs as users write them: a handler, perhaps a schedule, and policies. Checked as far as possible when written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import force_setattr

from duly.errors import ConfigurationError, InvalidSchedule, shown
from duly.model import (
    Delivery,
    JobSpec,
    Misfire,
    Overlap,
    RunPolicy,
    StoreLoss,
    as_utc,
    is_job_name,
    sanitize,
)
from duly.model.config import labels_of
from duly.model.confinement import Confinement, confinement_of
from duly.model.job import only_in_code
from duly.model.run_log import MOST_KEPT
from duly.rules.keywords import number_in_text
from duly.rules.retry import RetryPolicy
from duly.rules.schedules import Schedule, ScheduleValue, bind, from_spec
from duly.runtime.command import Command
from duly.runtime.handler import ErrorHook, ExecutorKind, FailureHook
from duly.scheduler.callables import generates, is_async

Duration = float | timedelta
Target = Callable[..., Any] | Command | str
OverlapName = Literal["skip", "queue", "replace", "allow"]
MisfireName = Literal["latest", "all", "skip"]
DeliveryName = Literal["at_least_once", "at_most_once", "exactly_once"]
StoreLossName = Literal["continue", "stop"]
CHOOSABLE: tuple[str, ...] = (ExecutorKind.ASYNC, ExecutorKind.THREAD, ExecutorKind.PROCESS)

_LONGEST = 366 * 86400.0
_MOST_DESCRIPTION = 1000
_MOST_TAGS = 50
_MOST_TAG = 100
_MOST_RUNS = 1_000_000_000


class Job(Struct, frozen=True, kw_only=True):
    """A job: what to run, when, and how.

    `handler` is a callable (a function, a bound method, a `functools.partial`, an object with `__call__`), a `Command`,
    or the name of another job whose handler to use. `name` defaults to the function's or the method's name,
    `description` to the first line of its docstring. `overlap` defaults to "skip" for scheduled runs and
    "allow" for submitted ones. `selector` are labels that a node must have to run it; it needs placement="assign".
    `notify` names the targets of notifications about it, instead of all; False for none. If no run has succeeded for
    `expect_every`, a notification says so. `keep_logs` is how many lines of the log of each run are kept, 0 for none;
    None means the `keep_logs` of the node that executes it. `restore=True` brings back a job that was removed.
    `confine` limits what the process of a handler may use; it needs executor="process". A `Command` has its own.
    """

    handler: Target
    schedule: Schedule | None = None
    name: str = ""
    description: str | None = None
    payload: Mapping[str, Any] | None = None
    queue: str = "default"
    priority: int = 0
    timeout: Duration | None = None
    retry: RetryPolicy | int | UnsetType | None = UNSET
    delivery: DeliveryName | Delivery = "at_least_once"
    overlap: OverlapName | Overlap | None = None
    misfire: MisfireName | Misfire = "latest"
    executor: str | None = None
    tags: tuple[str, ...] = ()
    on_error: ErrorHook | None = None
    on_failure: FailureHook | None = None
    on_store_loss: StoreLossName | StoreLoss = "continue"
    start_at: datetime | None = None
    end_at: datetime | None = None
    max_runs: int | None = None
    selector: Mapping[str, str] | None = None
    notify: Sequence[str] | bool | None = None
    expect_every: Duration | None = None
    keep_logs: int | None = None
    restore: bool = False
    confine: Confinement | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "name", _name(self.name, self.handler))
        force_setattr(self, "description", _description(self.description, self.handler))
        force_setattr(self, "tags", _tags(self.name, self.tags))
        force_setattr(self, "delivery", _one_of(self.name, "delivery", Delivery, self.delivery))
        force_setattr(self, "misfire", _one_of(self.name, "misfire", Misfire, self.misfire))
        force_setattr(self, "on_store_loss", _one_of(self.name, "on_store_loss", StoreLoss, self.on_store_loss))
        if self.overlap is not None:
            force_setattr(self, "overlap", _one_of(self.name, "overlap", Overlap, self.overlap))
        force_setattr(self, "executor", _executor(self.name, self.executor, self.handler))
        force_setattr(self, "timeout", check_timeout(f"job {self.name!r}", self.timeout))
        force_setattr(self, "selector", _selector(self.name, self.selector))
        force_setattr(self, "confine", _confine(self.name, self.confine, self.handler, self.executor))
        force_setattr(self, "notify", _notify(self.name, self.notify))
        force_setattr(self, "expect_every", _expect_every(self.name, self.expect_every))
        _check_numbers(self)
        _check_retry(self)
        _check_schedule(self)
        if self.delivery is Delivery.AT_MOST_ONCE and self.retry is not UNSET and self.retry:
            raise ConfigurationError(
                f"job {self.name!r} is at_most_once and has retry={shown(self.retry)}: such a run is never tried twice"
            )

    @property
    def retry_policy(self) -> RetryPolicy:
        """The policy that `retry` stands for."""
        if self.delivery is Delivery.AT_MOST_ONCE:
            return RetryPolicy.of(None)
        return RetryPolicy() if isinstance(self.retry, UnsetType) else RetryPolicy.of(self.retry)

    @property
    def handler_name(self) -> str:
        """The name under which the handler is looked up."""
        return self.handler if isinstance(self.handler, str) else self.name

    def policy(self) -> RunPolicy:
        """How its runs are attempted."""
        assert self.timeout is None or isinstance(self.timeout, float)
        return RunPolicy(
            timeout=self.timeout,
            retry=self.retry_policy.spec,
            delivery=Delivery(self.delivery),
            on_store_loss=StoreLoss(self.on_store_loss),
            keep_logs=UNSET if self.keep_logs is None else self.keep_logs,
        )

    def spec(self, timezone: str, payload: bytes) -> JobSpec:
        """The definition as plain data, its schedule bound."""
        schedule = None
        if self.schedule is not None:
            schedule = bind(
                self.schedule, name=self.name, timezone=timezone, start_at=self.start_at, end_at=self.end_at
            )
        return JobSpec(
            name=self.name,
            handler=self.handler_name,
            schedule=schedule,
            payload=payload,
            queue=self.queue,
            priority=self.priority,
            policy=self.policy(),
            overlap=None if self.overlap is None else Overlap(self.overlap),
            misfire=Misfire(self.misfire),
            max_runs=self.max_runs,
            description=self.description or "",
            tags=self.tags,
            selector=None if self.selector is None else dict(self.selector),
            notify=None if self.notify is None or isinstance(self.notify, bool) else tuple(self.notify),
            expect_every=None if self.expect_every is None else _seconds_of(self.expect_every),
        )


def bound_schedule(job: Job, spec: JobSpec) -> Schedule | None:
    """The schedule that computes a job's instants: from the bound spec, or the user's own object."""
    if spec.schedule is None or only_in_code(spec.schedule):
        return job.schedule
    return from_spec(spec.schedule)


def _name(name: str, handler: Target) -> str:
    chosen = name or getattr(handler, "__name__", "")
    if not chosen:
        way_out = 'write @scheduler.job(name="…") or Job(name="…", …)'
        raise ConfigurationError(f"the job of {shown(handler)} has no name: a {_kind(handler)} has none; {way_out}")
    if not is_job_name(chosen):
        way_out = "a letter or _, then letters, digits and _ . -, at most 128; give name=…"
        raise ConfigurationError(f"{shown(chosen)} cannot name a job: {way_out}")
    return chosen


def _kind(handler: Target) -> str:
    return "functools.partial" if isinstance(handler, partial) else type(handler).__name__


def _description(description: str | None, handler: Target) -> str:
    if description is None and isinstance(handler, Command):
        description = str(handler)
    if description is None:
        text = "" if isinstance(handler, str) else inspect.getdoc(_documented(handler)) or ""
        description = text.strip().partition("\n")[0]
    return sanitize.text_of(description, _MOST_DESCRIPTION)


def _documented(handler: Target) -> object:
    """What has the docstring: of a `functools.partial` the function, not the class."""
    return handler.func if isinstance(handler, partial) else handler


def _tags(name: str, tags: object) -> tuple[str, ...]:
    if isinstance(tags, str) or not isinstance(tags, tuple | list | set | frozenset):
        raise ConfigurationError(f"job {name!r}: tags={shown(tags)}: expected a list of strings")
    if len(tags) > _MOST_TAGS:
        raise ConfigurationError(f"job {name!r}: {len(tags)} tags, expected at most {_MOST_TAGS}")
    for tag in tags:
        sanitize.checked_text(f"job {name!r}: one of tags", tag, _MOST_TAG, empty=False)
    return tuple(sorted(tags)) if isinstance(tags, set | frozenset) else tuple(tags)


def _selector(name: str, selector: object) -> dict[str, str] | None:
    """The labels asked for; sorted, so that the order in which they are written makes no difference."""
    if selector is None:
        return None
    labels = labels_of(f"job {name!r}: selector", selector)
    return dict(sorted(labels.items())) or None


def _notify(name: str, notify: object) -> tuple[str, ...] | None:
    """The names of targets; None for all."""
    if notify is None or notify is True:
        return None
    if notify is False:
        return ()
    if not isinstance(notify, tuple | list) or not all(isinstance(each, str) and is_job_name(each) for each in notify):
        raise ConfigurationError(f"job {name!r}: notify={shown(notify)}: expected a list of names of targets, or False")
    return tuple(notify)


def _expect_every(name: str, every: Duration | None) -> float | None:
    plain: object = every.total_seconds() if isinstance(every, timedelta) else every
    if plain is None:
        return None
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not 60 <= plain <= _LONGEST:
        raise ConfigurationError(
            f"job {name!r}: expect_every={shown(every)}: expected a number of seconds, from a minute to a year"
        )
    return float(plain)


def _seconds_of(span: Duration) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else float(span)


def _one_of(name: str, field: str, kind: Any, value: object) -> Any:
    if not isinstance(value, str) or value not in tuple(kind):
        raise ConfigurationError(f"job {name!r}: {field}={shown(value)} is not one of {', '.join(kind)}")
    return kind(value)


def _executor(name: str, executor: object, handler: Target) -> str | None:
    """Where the handler runs; None if it is another job's. The scheduler checks the name."""
    if isinstance(handler, str):
        return None
    if isinstance(handler, Command):
        return ExecutorKind.COMMAND
    if not callable(handler):
        raise ConfigurationError(
            f"job {name!r}: handler={shown(handler)}: expected a callable, a Command or a job's name"
        )
    if generates(handler):
        raise ConfigurationError(
            f"job {name!r}: its handler has a `yield`, so a call would not run its body: return a list instead"
        )
    awaited = is_async(handler)
    if executor is None:
        return ExecutorKind.ASYNC if awaited else ExecutorKind.THREAD
    if not isinstance(executor, str) or not executor:
        raise ConfigurationError(f"job {name!r}: executor={shown(executor)}: expected the name of an executor")
    if executor not in CHOOSABLE:
        return executor
    if (executor == "async") is not awaited and executor != "process":
        kind, way_out = ("an async", "async or process") if awaited else ("a sync", "thread or process")
        raise ConfigurationError(f"job {name!r} has {kind} handler: executor={shown(executor)} must be {way_out}")
    return ExecutorKind(executor)


def _confine(name: str, given: object, handler: Target, executor: str | None) -> Confinement | None:
    try:
        confine = confinement_of(given)
    except ConfigurationError as exc:
        raise ConfigurationError(f"job {name!r}: {exc}") from exc
    if confine is not None and executor != ExecutorKind.PROCESS:
        way_out = "Command(…, confine=…)" if isinstance(handler, Command) else 'executor="process"'
        raise ConfigurationError(f"job {name!r}: confine needs a process of its own: write {way_out}")
    return confine


def check_timeout(what: str, timeout: object) -> float | None:
    """Timeouts in seconds: positive, up to a year; None for none."""
    if timeout is None:
        return None
    plain = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not 0 < plain <= _LONGEST:
        raise ConfigurationError(
            f"{what}: timeout={shown(timeout)}: expected a positive number of seconds, up to a year"
        )
    return float(plain)


def _check_retry(job: Job) -> None:
    """`retry` is a policy, a number or None; a text that is a number is a frequent mistake."""
    given: object = job.retry
    if given is UNSET or given is None or isinstance(given, RetryPolicy):
        return
    if isinstance(given, bool) or not isinstance(given, int):
        number = number_in_text(given)
        way_out = "retry=3, retry=None or retry=RetryPolicy.exponential(3)" if number is None else f"retry={number}"
        raise ConfigurationError(
            f"job {job.name!r}: retry={shown(given)}: expected a number of retries, a RetryPolicy or None;"
            f" write {way_out}"
        )
    try:
        RetryPolicy.of(given)
    except ConfigurationError as exc:
        raise ConfigurationError(f"job {job.name!r}: retry={shown(given)}: {exc}") from None


def _check_numbers(job: Job) -> None:
    check_priority(job.priority, f"job {job.name!r}")
    check_queue(job.queue, f"job {job.name!r}")
    if job.keep_logs is not None:
        sanitize.checked_whole(f"job {job.name!r}: keep_logs", job.keep_logs, 0, MOST_KEPT)
    most: object = job.max_runs
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= _MOST_RUNS):
        raise ConfigurationError(
            f"job {job.name!r}: max_runs={shown(most)}: expected a whole number from 1 to {_MOST_RUNS}"
        )


def check_priority(priority: object, what: str) -> None:
    """Priorities are whole numbers from 0 to 9."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
        raise ConfigurationError(
            f"{what}: priority={shown(priority)}: expected a whole number from 0 to 9; 9 is most urgent"
        )


def check_queue(queue: object, what: str) -> None:
    """Queues are named like jobs."""
    if not isinstance(queue, str) or not is_job_name(queue):
        raise ConfigurationError(
            f"{what}: queue={shown(queue)}: expected a letter or _, then letters, digits and _ . -"
        )


def _check_schedule(job: Job) -> None:
    schedule: object = job.schedule
    if schedule is None:
        return
    if isinstance(schedule, type) or not isinstance(schedule, Schedule):
        bind(schedule, name=job.name, timezone="UTC")  # type: ignore[arg-type]  # it says what is wrong and raises
        raise InvalidSchedule(f"job {job.name!r}: {shown(schedule)} is not a schedule")
    for field in ("start_at", "end_at"):
        bound = getattr(job, field)
        if bound is not None:
            as_utc(bound, f"job {job.name!r}: {field}", InvalidSchedule)
    if isinstance(schedule, ScheduleValue):
        bind(schedule, name=job.name, timezone="UTC", start_at=job.start_at, end_at=job.end_at)
