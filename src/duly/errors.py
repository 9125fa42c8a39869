"""The tree of errors, and the two signals a handler may raise.

Every message names the thing, the value and the way out. Foreign exceptions are translated once, at the adapter's
edge, so that callers only ever need this module. Absence inside the ports is a value, never one of these.

    DulyError
    ├── ConfigurationError ── MissingExtra
    ├── InvalidSchedule
    ├── JobNotFound
    ├── RunNotFound ── AmbiguousRun
    ├── DuplicateJob
    ├── JobChanged
    ├── SettingChanged
    ├── SchedulerRunning
    ├── PayloadError ── PayloadTooLarge
    ├── ReturnMismatch
    ├── LockUnavailable
    ├── ClaimLost
    ├── RunNotCompleted ── RunFailed, RunCancelled, RunLost, RunSkipped
    ├── ResultExpired
    └── BackendError ── BackendUnavailable, StoreMoved, ImportUnfinished
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duly.model import Run

_LONGEST_RETRY = timedelta(days=3650)


class DulyError(Exception):
    """Anything that Duly itself raises."""


class ConfigurationError(DulyError, ValueError):
    """A setting is wrong, or asks for what the backend cannot promise. Says which, and what would be accepted."""


class MissingExtra(ConfigurationError):
    """A feature needs a package that is not installed. Names the extra to install."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an extra that is not installed: pip install 'duly[{extra}]'")
        self.feature = feature
        self.extra = extra


class InvalidSchedule(DulyError, ValueError):
    """A schedule that cannot be read or can never be due.

    `field` is the part at fault (for cron: "minute", "day-of-month", …), `position` the character it starts at in
    `expression`, `hint` the way out. Each is None where it does not apply.
    """

    def __init__(
        self,
        message: str,
        *,
        expression: str | None = None,
        field: str | None = None,
        position: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message if hint is None else f"{message}; {hint}")
        self.expression = expression
        self.field = field
        self.position = position
        self.hint = hint


class JobNotFound(DulyError, LookupError):
    """No job of that name is registered. `near` is the name of a similar job, None if there is none."""

    def __init__(self, message: str, *, near: str | None = None) -> None:
        super().__init__(message)
        self.near = near


class RunNotFound(DulyError, LookupError):
    """No run of that id exists: it never did, or retention has purged it."""


class AmbiguousRun(RunNotFound):
    """Several runs have an id that can be shortened to the given text. `candidates` are the newest of them."""

    def __init__(self, message: str, candidates: Sequence[Run]) -> None:
        super().__init__(message)
        self.candidates = candidates


class DuplicateJob(DulyError):
    """Two jobs of one name in one scheduler. The message gives both places."""


class JobChanged(DulyError):
    """A job is not as the caller believes: another revision, another origin, or there already. Read it again."""


class SettingChanged(DulyError):
    """A setting of the cluster is at another revision than the caller believes. Read it again."""


class SchedulerRunning(DulyError):
    """The registry is frozen while the scheduler runs."""


class PayloadError(DulyError, ValueError):
    """A payload does not fit the handler's signature, is not JSON, or is too large."""


class PayloadTooLarge(PayloadError):
    """A payload is larger than `max_payload_bytes`."""


class ReturnMismatch(DulyError, TypeError):
    """A handler returned what its annotation does not promise, or a stored result does not fit the annotation."""


class LockUnavailable(DulyError):
    """A lock was not free within the time allowed."""


class ClaimLost(DulyError):
    """This attempt no longer owns its run: its lease could not be renewed, or somebody else has the run by now.

    Raised by `ctx.check()` and at the end of `ctx.transaction()`. What the handler does after it is fenced: it can
    change nothing in the store.
    """


class RunNotCompleted(DulyError):
    """A run ended in another state than completed. `run` is the record as it ended."""

    def __init__(self, message: str, run: Run) -> None:
        super().__init__(message)
        self.run = run


class RunFailed(RunNotCompleted):
    """Retries are used up, or the handler gave up."""

    def __init__(self, message: str, run: Run) -> None:
        super().__init__(message, run)
        failure = run.failure
        self.error_type = failure.type if failure else ""
        self.message = failure.message if failure else ""
        self.traceback = failure.traceback if failure else ""


class RunCancelled(RunNotCompleted):
    """Somebody cancelled the run."""


class RunLost(RunNotCompleted):
    """At most once: the worker vanished after the start, so nobody knows how far it came."""


class RunSkipped(RunNotCompleted):
    """A policy refused it; `run.reason` says which."""


class ResultExpired(DulyError):
    """The run completed, but its result is not kept: too large, not serialisable, or past its retention."""


class BackendError(DulyError):
    """The store refused or is unusable. Trying again will not help."""


class BackendUnavailable(BackendError):
    """The store cannot be reached now. Trying again is safe: every port method is idempotent.

    `part` says which part of a composed store it is: "store" or "coordinator".
    """

    def __init__(self, message: str = "", part: str = "store") -> None:
        super().__init__(message)
        self.part = part


class ChangesLost(BackendUnavailable):
    """The store has lost changes that it had acknowledged. Raised once by each session that knows of them.

    Trying again is safe, and uses the store as it is now.
    """


class StoreMoved(BackendError):
    """Everything in this store was moved to another one by `duly copy`. `address` has no credentials."""

    def __init__(self, message: str, address: str = "") -> None:
        super().__init__(message)
        self.address = address


class ImportUnfinished(BackendError):
    """An import into this store has begun and not ended: what is in it is incomplete."""


class Retry(Exception):
    """Raised by a handler, or returned by `on_error`: try again `after` seconds (or a timedelta), 0 being at once.

    It counts against `max_retries` like any failure. Without `after` the policy's own delay applies. A delay that is
    negative, not a number or longer than ten years raises `ConfigurationError` here, where the mistake is.
    """

    def __init__(self, after: float | timedelta | None = None) -> None:
        super().__init__("retry" if after is None else f"retry after {_seconds(after):g} s")
        self.after = after


class GiveUp(Exception):
    """Raised by a handler, or returned by `on_error`: fail for good, whatever retries are left.

    `reason` is a text or the exception that is the reason.
    """

    def __init__(self, reason: str | BaseException = "gave up") -> None:
        super().__init__(reason)
        self.reason = reason


_LONGEST_SHOWN = 200


def shown(value: object) -> str:
    """A value as it is shown in messages: its `repr`, shortened. Whatever the value is, this does not raise."""
    try:
        text = repr(value)
        return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}… ({len(text)} characters)"
    except BaseException:  # noqa: BLE001  # a __repr__ is foreign code, and a deep value may exhaust the stack
        return f"<{type(value).__name__}>"


def _seconds(after: object) -> float:
    plain = after.total_seconds() if isinstance(after, timedelta) else after
    most = _LONGEST_RETRY.total_seconds()
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not 0 <= plain <= most:
        raise ConfigurationError(f"Retry(after={shown(after)}): expected 0 to {most:g} seconds, or a timedelta")
    return float(plain)
