"""The same without an event loop: for Flask, Django, scripts and threads.

One background thread with its own loop serves all calls; when a node runs in this process, its loop does. Called where
an event loop is running, they raise an error that names the async form: waiting would block the loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from duly.errors import DulyError
from duly.model import CancelReply, LogLine, Run

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
    if _loop_runs_here():
        raise DulyError(f".sync.{name}() would block the event loop that runs here: write `await ….{name}()` instead")
    return asyncio.run_coroutine_threadsafe(make(), loop()).result()


def _loop_runs_here() -> bool:
    """Asked apart from the call itself: an error of the call would otherwise carry this one's traceback as well."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class SyncRunHandle(Generic[R]):
    """A run, for code without an event loop."""

    def __init__(self, scheduler: Scheduler, handle: RunHandle[R]) -> None:
        self._scheduler = scheduler
        self._handle = handle
        self.id = handle.id
        self.deduplicated = handle.deduplicated

    @property
    def created_at(self) -> datetime:
        """As `RunHandle.created_at`."""
        return self._handle.created_at

    def result(self, timeout: float | None = None) -> R:
        """As `RunHandle.result`."""
        return self._scheduler.sync.call(lambda: self._handle.result(timeout), "result")

    def wait(self, timeout: float | None = None) -> Run:
        """As `RunHandle.wait`."""
        return self._scheduler.sync.call(lambda: self._handle.wait(timeout), "wait")

    def get(self) -> Run:
        """As `RunHandle.get`."""
        return self._scheduler.sync.call(self._handle.get, "get")

    def logs(self, *, after: int = 0, limit: int | None = None, attempt: int | None = None) -> list[LogLine]:
        """As `RunHandle.logs`."""
        return self._scheduler.sync.call(lambda: self._handle.logs(after=after, limit=limit, attempt=attempt), "logs")

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

    def run(self, run_id: str) -> SyncRunHandle[R]:
        """As `JobHandle.run`."""
        return self._handle.run(run_id).sync

    def trigger(self) -> SyncRunHandle[R]:
        """As `JobHandle.trigger`."""
        return self._scheduler.sync.call(self._handle.trigger, "trigger").sync
