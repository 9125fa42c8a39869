"""The same without an event loop: for Flask, Django, scripts and threads.

One background thread with a loop of its own serves all calls; when a node runs in this process, its loop does. Called
where an event loop is running they raise and name the async form: waiting there would block it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from duly.errors import DulyError
from duly.model import Attempt, CancelReply, Cause, JobFile, Node, Page, Run, State
from duly.rules.explain import Explanation
from duly.rules.job_files import Difference
from duly.scheduler.job import Job
from duly.scheduler.views import Health, JobView, ShutdownReport, Upcoming

if TYPE_CHECKING:
    from duly.scheduler.handles import JobHandle, RunHandle, Submission
    from duly.scheduler.scheduler import Scheduler

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Portal:
    """A loop in a thread that other threads can hand calls to. A forked process gets a new one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._process != os.getpid():
                self._process = os.getpid()
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="duly-sync", daemon=True).start()
            return self._loop


def run_sync(make: Callable[[], Coroutine[Any, Any, T]], name: str, loop: Callable[[], asyncio.AbstractEventLoop]) -> T:
    """Run a coroutine on another thread's loop and wait for it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run_coroutine_threadsafe(make(), loop()).result()
    raise DulyError(f".sync.{name}() would block the event loop that runs here: write `await ….{name}()` instead")


class SyncRunHandle(Generic[R]):
    """A submitted run, for code without an event loop."""

    def __init__(self, scheduler: Scheduler, handle: RunHandle[R]) -> None:
        self._scheduler = scheduler
        self._handle = handle
        self.id = handle.id
        self.deduplicated = handle.deduplicated
        self.created_at = handle.created_at

    def result(self, timeout: float | None = None) -> R:
        """As `RunHandle.result`."""
        return self._scheduler.sync.call(lambda: self._handle.result(timeout), "result")

    def get(self) -> Run:
        """As `RunHandle.get`."""
        return self._scheduler.sync.call(self._handle.get, "get")

    def cancel(self, reason: str | None = None) -> CancelReply:
        """As `RunHandle.cancel`."""
        return self._scheduler.sync.call(lambda: self._handle.cancel(reason), "cancel")


class SyncSubmission(Generic[P, R]):
    """A job with options for its next submissions, for code without an event loop."""

    def __init__(self, scheduler: Scheduler, submission: Submission[P, R]) -> None:
        self._scheduler = scheduler
        self._submission = submission

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> SyncRunHandle[R]:
        """As `Submission.submit`."""
        return self._scheduler.sync.call(lambda: self._submission.submit(*args, **kwargs), "submit").sync

    def submit_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[SyncRunHandle[R]]:
        """As `Submission.submit_many`."""
        handles = self._scheduler.sync.call(lambda: self._submission.submit_many(payloads), "submit_many")
        return [handle.sync for handle in handles]


class SyncJobHandle(Generic[P, R]):
    """A job, for code without an event loop."""

    def __init__(self, scheduler: Scheduler, handle: JobHandle[Any, P, R]) -> None:
        self._scheduler = scheduler
        self._handle = handle

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> SyncRunHandle[R]:
        """As `JobHandle.submit`."""
        return self._scheduler.sync.call(lambda: self._handle.submit(*args, **kwargs), "submit").sync

    def submit_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[SyncRunHandle[R]]:
        """As `JobHandle.submit_many`."""
        handles = self._scheduler.sync.call(lambda: self._handle.submit_many(payloads), "submit_many")
        return [handle.sync for handle in handles]

    def trigger(self) -> SyncRunHandle[R]:
        """As `JobHandle.trigger`."""
        return self._scheduler.sync.call(self._handle.trigger, "trigger").sync


class SyncScheduler:
    """Every method of the scheduler that waits, as one that blocks."""

    def __init__(self, scheduler: Scheduler, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._scheduler = scheduler
        self._loop = loop

    def call(self, make: Callable[[], Coroutine[Any, Any, T]], name: str) -> T:
        """Run one of the scheduler's coroutines and wait for it."""
        return run_sync(make, name, self._loop)

    def start(self) -> None:
        self.call(self._scheduler.start, "start")

    def stop(self, timeout: float | None = None) -> ShutdownReport:
        return self.call(lambda: self._scheduler.stop(timeout), "stop")

    def close(self) -> None:
        self.call(self._scheduler.close, "close")

    def register(self, job: Job) -> None:
        self.call(lambda: self._scheduler.register(job), "register")

    def remove(self, name: str) -> None:
        self.call(lambda: self._scheduler.remove(name), "remove")

    def pause(self, name: str, note: str = "") -> None:
        self.call(lambda: self._scheduler.pause(name, note), "pause")

    def resume(self, name: str) -> None:
        self.call(lambda: self._scheduler.resume(name), "resume")

    def compare(self, job_file: JobFile) -> Difference:
        return self.call(lambda: self._scheduler.compare(job_file), "compare")

    def apply(self, difference: Difference) -> list[str]:
        return self.call(lambda: self._scheduler.apply(difference), "apply")

    def trigger(self, name: str, payload: Mapping[str, Any] | None = None) -> SyncRunHandle[Any]:
        return self.call(lambda: self._scheduler.trigger(name, payload), "trigger").sync

    def submit(
        self,
        handler: Any,
        payload: Mapping[str, Any] | None = None,
        *,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        dedupe_key: str | None = None,
        unique_for: float | timedelta | None = None,
        queue: str | None = None,
    ) -> SyncRunHandle[Any]:
        scheduler = self._scheduler
        return self.call(
            lambda: scheduler.submit(
                handler,
                payload,
                at=at,
                delay=delay,
                priority=priority,
                dedupe_key=dedupe_key,
                unique_for=unique_for,
                queue=queue,
            ),
            "submit",
        ).sync

    def submit_many(
        self, handler: Any, payloads: Iterable[Mapping[str, Any]], **options: Any
    ) -> list[SyncRunHandle[Any]]:
        handles = self.call(lambda: self._scheduler.submit_many(handler, payloads, **options), "submit_many")
        return [handle.sync for handle in handles]

    def get_job(self, name: str) -> JobView:
        return self.call(lambda: self._scheduler.get_job(name), "get_job")

    def jobs(self, *, removed: bool = False) -> list[JobView]:
        return self.call(lambda: self._scheduler.jobs(removed=removed), "jobs")

    def get_run(self, run_id: str) -> Run:
        return self.call(lambda: self._scheduler.get_run(run_id), "get_run")

    def runs(
        self,
        job: str | None = None,
        state: State | str | Iterable[State | str] | None = None,
        *,
        handler: str | None = None,
        queue: str | None = None,
        cause: Cause | None = None,
        due_from: datetime | None = None,
        due_until: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        scheduler = self._scheduler
        return self.call(
            lambda: scheduler.runs(
                job,
                state,
                handler=handler,
                queue=queue,
                cause=cause,
                due_from=due_from,
                due_until=due_until,
                limit=limit,
                cursor=cursor,
            ),
            "runs",
        )

    def attempts(self, run_id: str) -> list[Attempt]:
        return self.call(lambda: self._scheduler.attempts(run_id), "attempts")

    def cancel(self, run_id: str, reason: str | None = None) -> CancelReply:
        return self.call(lambda: self._scheduler.cancel(run_id, reason), "cancel")

    def redrive(self, run_id: str) -> SyncRunHandle[Any]:
        return self.call(lambda: self._scheduler.redrive(run_id), "redrive").sync

    def upcoming(self, limit: int = 20, job: str | None = None) -> list[Upcoming]:
        return self.call(lambda: self._scheduler.upcoming(limit, job), "upcoming")

    def waits_for(self, run_id: str) -> str | None:
        return self.call(lambda: self._scheduler.waits_for(run_id), "waits_for")

    def explain(self, job: str, at: datetime | None = None) -> Explanation:
        return self.call(lambda: self._scheduler.explain(job, at), "explain")

    def nodes(self) -> list[Node]:
        return self.call(self._scheduler.nodes, "nodes")

    def health(self) -> Health:
        return self.call(self._scheduler.health, "health")
