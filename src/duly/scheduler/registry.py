"""The registry: the jobs of one process by name, with what is needed to check their payloads and to call them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from duly.errors import ConfigurationError, DuplicateJob, PayloadError, PayloadTooLarge, shown
from duly.model import JobRecord, JobSpec, SchedulerConfig
from duly.model.confinement import confinement_of
from duly.model.job import JOB_SHARD
from duly.rules.combined import in_code
from duly.rules.schedules import Schedule
from duly.runtime.command import Command
from duly.runtime.confining import check
from duly.runtime.executors import importable
from duly.runtime.executors.import_path import MAIN, is_interactive
from duly.runtime.handler import ExecutorKind, Handler
from duly.scheduler.callables import called, code_place
from duly.scheduler.job import CHOOSABLE, Job
from duly.scheduler.signature import EMPTY, Signature, encode_payload

Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]


class Place(Struct, frozen=True):
    """Where a job is defined: file and line for messages, and the module whose code defined it."""

    text: str
    module: str

    def is_typed_in(self) -> bool:
        """Whether that was an interactive session: a notebook, IPython, or Python's own prompt."""
        return self.module == MAIN and is_interactive()


class Registry:
    """Jobs defined in this process. Annotations are resolved when a job is first used, not when it is defined."""

    def __init__(self, executors: Collection[str] = (), jobs: Mapping[str, Job] = {}) -> None:
        self._executors = tuple(executors)
        self._jobs = dict(jobs)
        self._places: dict[str, Place] = {}
        self._signatures: dict[str, Signature] = {}
        self._by_function: WeakKeyDictionary[FunctionType, Signature] = WeakKeyDictionary()
        self._custom: set[str] = set()
        self._wrappers: list[Wrapper] = []

    def wrap(self, wrapper: Wrapper) -> None:
        """Wrap every handler of this process: the function takes a handler and returns what is called instead."""
        self._wrappers.append(wrapper)

    def add(self, job: Job, place: Place) -> None:
        """Define a job; a second one of the same name raises `DuplicateJob` with both places.

        In an interactive session, such as a notebook, it replaces the first: a cell is run again after it was edited.
        """
        if job.name in self._jobs:
            first = self._places[job.name]
            if not (first.is_typed_in() and place.is_typed_in()):
                raise DuplicateJob(
                    f"job {job.name!r} is defined twice: at {first.text} and at {place.text}; give one another name=…"
                )
            self.discard(job.name)
        self._check_executor(job)
        self._jobs[job.name] = job
        if job.schedule is not None and in_code(job.schedule):
            self._custom.add(job.name)
        self._places[job.name] = place

    def check(self, job: Job, config: SchedulerConfig) -> None:
        """Raise what defining this job would raise, and change nothing: a bad job must not replace a good one."""
        self._check_executor(job)
        trial = Registry(self._executors, self._jobs | {job.name: job})
        trial.spec(job, config)
        trial.handler(job, config)

    def _check_executor(self, job: Job) -> None:
        if isinstance(job.handler, str | Command) or job.executor in {*CHOOSABLE, *self._executors}:
            return
        known = ", ".join([*CHOOSABLE, *self._executors])
        way_out = "pass your own executor to Scheduler(executors={…})"
        raise ConfigurationError(
            f"job {job.name!r}: executor={shown(job.executor)} is unknown; known: {known}; {way_out}"
        )

    def replace(self, job: Job, place: Place) -> None:
        """Replace the definition of a job."""
        self.discard(job.name)
        self.add(job, place)

    def discard(self, name: str) -> None:
        self._jobs.pop(name, None)
        self._places.pop(name, None)
        self._signatures.pop(name, None)
        self._custom.discard(name)

    def get(self, name: str) -> Job | None:
        return self._jobs.get(name)

    def jobs(self) -> list[Job]:
        return list(self._jobs.values())

    def handlers(self) -> list[str]:
        """The names that runs may give as their handler."""
        return [job.name for job in self._jobs.values() if not isinstance(job.handler, str)]

    def __len__(self) -> int:
        return len(self._jobs)

    # --- payloads

    def signature(self, name: str) -> Signature | None:
        """The signature of the handler of that name, None if it is unknown here or a command."""
        found = self._signatures.get(name)
        if found is not None:
            return found
        job = self._jobs.get(name)
        if job is None or isinstance(job.handler, Command):
            return None
        if isinstance(job.handler, str):
            return None if job.handler == name else self.signature(job.handler)
        made = self._signatures[name] = self._signature(name, job.handler)
        return made

    def _signature(self, name: str, handler: Callable[..., Any]) -> Signature:
        """One analysis for all jobs that share a function."""
        if not isinstance(handler, FunctionType):
            return Signature(name, handler)
        first = self._by_function.get(handler)
        if first is not None:
            return first.named(name)
        made = self._by_function[handler] = Signature(name, handler)
        return made

    def payload(self, name: str, arguments: Mapping[str, Any], most: int) -> bytes:
        """A checked payload for the handler of that name; one that is unknown here is checked when it is claimed."""
        if type(arguments) is not dict and not isinstance(arguments, Mapping):
            raise PayloadError(f"payload of {name}: {shown(arguments)}: expected a mapping of argument names to values")
        signature = self.signature(name)
        if signature is not None:
            payload = signature.encode(arguments)
        else:
            payload = encode_payload(name, arguments) if arguments else EMPTY
        return bounded(name, payload, most)

    # --- what goes to the store, and what the node calls

    def spec(self, job: Job, config: SchedulerConfig) -> JobSpec:
        """The definition as plain data. A scheduled handler's required parameters must be in its payload."""
        signature = self.signature(job.name)
        if job.schedule is None and job.payload is None:
            return job.spec(config.timezone, EMPTY)
        given = job.payload or {}
        missing = [name for name in (signature.required if signature else ()) if name not in given]
        if job.schedule is not None and missing:
            raise ConfigurationError(
                f"job {job.name!r} is scheduled, but its handler needs {', '.join(missing)}: give payload={{…}}"
            )
        if job.schedule is None:
            raise ConfigurationError(f"job {job.name!r} has a payload but no schedule: give it when you submit")
        return job.spec(config.timezone, self.payload(job.name, given, config.max_payload_bytes))

    def spec_for_handler(self, job: Job, config: SchedulerConfig) -> JobSpec:
        """The definition of a job that no code defines: it names a handler, whose parameters its payload must fit."""
        return job.spec(config.timezone, self.payload(job.handler_name, job.payload or {}, config.max_payload_bytes))

    def handler(self, job: Job, config: SchedulerConfig) -> Handler | None:
        """What the node calls for this job; None if the handler is another job's that is unknown here."""
        target, owner = self._target(job)
        if target is None or owner is None:
            return None
        if isinstance(target, Command):
            return _command_handler(job, target, config)
        signature = self.signature(owner.name)
        assert signature is not None
        assert owner.executor is not None
        _check_importable(job, owner)
        confine = confinement_of(owner.confine)
        check(f"job {job.name!r}", confine)
        return Handler(
            name=owner.name,
            target=self._wrapped(called(target), owner.executor),
            executor=owner.executor,
            takes_context=signature.takes_context,
            decode=signature.decode,
            encode=signature.encode_result,
            retry=job.retry_policy,
            job=job,
            on_error=() if job.on_error is None else (job.on_error,),
            on_failure=() if job.on_failure is None else (job.on_failure,),
            confine=confine,
            may_return_none=signature.may_return_none,
        )

    def _wrapped(self, target: Callable[..., Any], executor: str) -> Callable[..., Any]:
        """The handler inside its wrappers, the first one outermost. A child interpreter knows the function only."""
        if executor == ExecutorKind.PROCESS:
            return target
        for wrapper in reversed(self._wrappers):
            target = wrapper(target)
        return target

    def _target(self, job: Job) -> tuple[Any, Job | None]:
        """The callable or command of a job, and the job that defines it."""
        if not isinstance(job.handler, str):
            return job.handler, job
        owner = self._jobs.get(job.handler)
        if owner is None or isinstance(owner.handler, str):
            return None, None
        return owner.handler, owner

    def schedule_in_code(self, record: JobRecord) -> Schedule | None:
        """The schedule of a job that only code can compute, if this process has it."""
        job = self._jobs.get(record.name)
        return None if job is None else job.schedule

    def shards(self) -> list[str]:
        """The planning leases that only processes with this code compete for."""
        return [f"{JOB_SHARD}{name}" for name in self._custom]


def bounded(name: str, payload: bytes, most: int) -> bytes:
    """The payload, if it is not too large."""
    if len(payload) > most:
        raise PayloadTooLarge(
            f"payload of {name}: {len(payload)} bytes are more than max_payload_bytes={most}; "
            f"store the data elsewhere and submit a reference"
        )
    return payload


def _command_handler(job: Job, command: Command, config: SchedulerConfig) -> Handler:
    if not config.allow_commands:
        raise ConfigurationError(f"job {job.name!r} runs a command: that needs SchedulerConfig(allow_commands=True)")
    check(f"job {job.name!r}", command.confinement)
    return Handler(
        name=job.name,
        target=command,
        executor=ExecutorKind.COMMAND,
        takes_context=False,
        decode=_any_payload,
        encode=msgspec.json.encode,
        retry=job.retry_policy,
        job=job,
        on_error=() if job.on_error is None else (job.on_error,),
        on_failure=() if job.on_failure is None else (job.on_failure,),
    )


def _any_payload(payload: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(payload)
    return decoded


def _check_importable(job: Job, owner: Job) -> None:
    if owner.executor == ExecutorKind.PROCESS:
        reason = importable(owner.handler)
        if reason is not None:
            raise ConfigurationError(f"job {job.name!r} cannot run with executor='process': {reason}")


def place_of(job: Job) -> Place:
    """Where a job is being defined: at its function, or, if it has none, at the user's line that is being run."""
    frame = sys._getframe()  # noqa: SLF001  # nothing else knows who calls
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("duly."):
        frame = frame.f_back
    line = code_place(job.handler) or f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return Place(line, frame.f_globals.get("__name__", ""))
