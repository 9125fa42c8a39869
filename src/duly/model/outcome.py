"""Outcomes: how an attempt ended. `rules.settling` turns them into settlements."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class OutcomeKind(StrEnum):
    """The word for an outcome in history, metrics and listings."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    LOST = "lost"


class Failure(Struct, frozen=True, gc=False):
    """An exception as data: its class by name, its text, its traceback."""

    type: str
    message: str
    traceback: str = ""


class Verdict(StrEnum):
    """What the handler's code says about retrying a failure."""

    POLICY = "policy"  # as the retry policy decides
    NEVER = "never"  # never: the handler gave up, or the exception must not be retried


class Succeeded(Struct, frozen=True, gc=False):
    """The handler returned. `note` says why a result is not kept, if it is not."""

    result: bytes | None = None
    note: str | None = None


class Failed(Struct, frozen=True, gc=False):
    """The handler raised. `delay` overrides the policy's back-off."""

    failure: Failure
    verdict: Verdict = Verdict.POLICY
    delay: float | None = None


class TimedOut(Struct, frozen=True, gc=False):
    """The handler took longer than its timeout."""

    failure: Failure
    verdict: Verdict = Verdict.POLICY
    delay: float | None = None


class Cancelled(Struct, frozen=True, gc=False):
    """An operator cancelled the run, and the handler stopped."""


class Interrupted(Struct, frozen=True, gc=False):
    """The node is stopping: the attempt does not count, the next one begins from the start."""

    began: bool = True


class Lost(Struct, frozen=True, gc=False):
    """The claim expired: the worker vanished or could not reach the store. `alone`: it had no other run.

    `why` is how the worker's process ended, in words; empty if that is not known.
    """

    alone: bool = False
    why: str = ""


class Missed(Struct, frozen=True, gc=False):
    """It was claimed too late for its job's misfire policy, and its handler was not called."""


Outcome = Succeeded | Failed | TimedOut | Cancelled | Interrupted | Lost | Missed
