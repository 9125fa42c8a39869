"""Settling: what happens to a run after an outcome. The only place where failures, losses and retries are counted.

Workers and reapers go through here, so there is no retry policy in any store.
"""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from msgspec.structs import replace

from duly.model import (
    Attempt,
    Cancelled,
    Delivery,
    Failed,
    Failure,
    Interrupted,
    Lost,
    Missed,
    Outcome,
    OutcomeKind,
    Run,
    Settlement,
    State,
    Succeeded,
    TimedOut,
    Verdict,
    shift,
)
from duly.model.holds import ALONE
from duly.rules.misfires import MISFIRE
from duly.rules.retry import delay_after
from duly.rules.suspects import MAX_LOSSES, is_suspect

_NOT_STORABLE = "what the handler left could not be stored"
WORKER_VANISHED = "WorkerVanished"
_VANISHED = Failure(type=WORKER_VANISHED, message="the worker's lease expired before it settled the run")


def _vanished(why: str) -> Failure:
    """The failure of a run whose worker is gone; `why` is how its process ended, empty if that is not known."""
    return Failure(type=WORKER_VANISHED, message=f"the worker's process ended: {why}") if why else _VANISHED


def settle(
    run: Run, fence: int, outcome: Outcome, ended_at: datetime, dice: float, max_losses: int = MAX_LOSSES
) -> Settlement:
    """The settlement of one attempt of a claimed run. `dice` in [0, 1) spreads jittered retries.

    A run whose record cannot be read in full ends: neither its policy nor its history is known. One that waits for
    another attempt, and whose next loss may be its last, is held to be lent alone.
    """
    if run.damage is not None:
        return _damaged(run, fence, run.damage, ended_at)
    if isinstance(outcome, Succeeded):
        return _completed(run, fence, outcome, ended_at)
    settlement = _unsuccessful(run, fence, outcome, ended_at, dice, max_losses)
    if settlement.state is State.PENDING and is_suspect(settlement.losses, max_losses):
        return replace(settlement, hold=ALONE)
    return settlement


def _unsuccessful(
    run: Run,
    fence: int,
    outcome: Failed | TimedOut | Cancelled | Interrupted | Lost | Missed,
    ended_at: datetime,
    dice: float,
    max_losses: int,
) -> Settlement:
    match outcome:
        case Failed():
            return _after_failure(run, fence, OutcomeKind.FAILED, outcome, ended_at, dice)
        case TimedOut():
            return _after_failure(run, fence, OutcomeKind.TIMED_OUT, outcome, ended_at, dice)
        case Cancelled():
            return _settled(run, fence, State.CANCELLED, OutcomeKind.CANCELLED, ended_at, reason=run.reason)
        case Interrupted(began):
            if began and run.policy.delivery is Delivery.AT_MOST_ONCE:
                return _settled(
                    run, fence, State.LOST, OutcomeKind.INTERRUPTED, ended_at, reason="interrupted by a stop"
                )
            return _release(run, fence, ended_at, began=began)
        case Lost():
            return _after_loss(run, fence, outcome, ended_at, max_losses)
        case Missed():
            return _missed(run, fence, ended_at)
        case _:
            assert_never(outcome)


def _damaged(run: Run, fence: int, why: str, ended_at: datetime) -> Settlement:
    failure = Failure("Unreadable", why)
    return _settled(run, fence, State.FAILED, OutcomeKind.FAILED, ended_at, reason=why, failure=failure)


def _completed(run: Run, fence: int, outcome: Succeeded, ended_at: datetime) -> Settlement:
    """By far the most frequent settlement; the run itself has the facts if it succeeded at the first attempt."""
    first = run.failures == 0 and run.losses == 0
    return Settlement(
        run.id,
        fence,
        run.job,
        run.queue,
        run.node or "",
        State.COMPLETED,
        OutcomeKind.SUCCEEDED,
        run.started_at or ended_at,
        ended_at,
        run.ready_at,
        run.failures,
        run.losses,
        outcome.note,
        outcome.result,
        None,
        None if first else _attempt(run, fence, OutcomeKind.SUCCEEDED, ended_at, None),
        run.group,
        run.dedupe_key is not None,
    )


def as_stored(run: Run, settlement: Settlement) -> Settlement:
    """A settlement as it applies to the stored run: takes into account that it may have been cancelled meanwhile."""
    if settlement.state is State.PENDING and run.cancelling:
        return replace(settlement, state=State.CANCELLED, reason=run.reason, hold=None)
    if settlement.state is State.CANCELLED and settlement.reason is None:
        return replace(settlement, reason=run.reason)
    return settlement


def _after_failure(
    run: Run, fence: int, kind: OutcomeKind, outcome: Failed | TimedOut, ended_at: datetime, dice: float
) -> Settlement:
    failures = run.failures + 1
    retry = run.policy.retry
    if outcome.verdict is Verdict.NEVER or failures > retry.max_retries or run.policy.delivery is Delivery.AT_MOST_ONCE:
        return _settled(run, fence, State.FAILED, kind, ended_at, failures=failures, failure=outcome.failure)
    delay = outcome.delay if outcome.delay is not None else delay_after(retry, failures, dice)
    again_at = shift(ended_at, delay)
    return _settled(
        run, fence, State.PENDING, kind, ended_at, failures=failures, failure=outcome.failure, ready_at=again_at
    )


def _after_loss(run: Run, fence: int, lost: Lost, ended_at: datetime, max_losses: int) -> Settlement:
    """A run fails for its losses only if it was alone when its worker vanished: otherwise another may be the cause."""
    kind, failure = OutcomeKind.LOST, _vanished(lost.why)
    if run.cancelling:
        return _settled(run, fence, State.CANCELLED, kind, ended_at, reason=run.reason, failure=failure)
    if run.policy.delivery is Delivery.AT_MOST_ONCE:
        reason = f"worker vanished: {lost.why}" if lost.why else "worker vanished"
        return _settled(run, fence, State.LOST, kind, ended_at, reason=reason, failure=failure)
    losses = run.losses + 1
    if losses >= max_losses and lost.alone:
        reason = f"its worker vanished {losses} times, the last time with no other run on it"
        return _settled(run, fence, State.FAILED, kind, ended_at, losses=losses, reason=reason, failure=failure)
    return _settled(run, fence, State.PENDING, kind, ended_at, losses=losses, failure=failure, ready_at=ended_at)


def plain(settlement: Settlement, why: str) -> Settlement | None:
    """The same settlement without anything that came from the handler, for a store that cannot accept it.

    The decision about the run does not change. `why` is the store's error. None if it is plain already.
    """
    if settlement.reason is not None and settlement.reason.startswith(_NOT_STORABLE):
        return None
    reason = f"{_NOT_STORABLE}: {why.encode('ascii', 'backslashreplace').decode()}"
    failure = None if settlement.failure is None else Failure("NotStorable", reason)
    attempt = None if settlement.attempt is None else replace(settlement.attempt, failure=failure)
    return replace(settlement, reason=reason, result=None, failure=failure, attempt=attempt)


def _settled(
    run: Run,
    fence: int,
    state: State,
    kind: OutcomeKind,
    ended_at: datetime,
    *,
    failures: int | None = None,
    losses: int | None = None,
    reason: str | None = None,
    failure: Failure | None = None,
    ready_at: datetime | None = None,
) -> Settlement:
    """The settlement of an attempt that counted; `ready_at` is when the next one may begin, where there is one."""
    return Settlement(
        run_id=run.id,
        fence=fence,
        job=run.job,
        queue=run.queue,
        node=run.node or "",
        state=state,
        outcome=kind,
        started_at=run.started_at or ended_at,
        ended_at=ended_at,
        ready_at=ready_at or run.ready_at,
        failures=run.failures if failures is None else failures,
        losses=run.losses if losses is None else losses,
        reason=reason,
        failure=failure,
        attempt=_attempt(run, fence, kind, ended_at, failure),
    )


def _release(run: Run, fence: int, ended_at: datetime, *, began: bool) -> Settlement:
    """The run is given back unchanged; an attempt that started is still recorded in the history."""
    kind = OutcomeKind.INTERRUPTED
    given_back = _settled(run, fence, State.PENDING, kind, ended_at, failure=run.failure)
    attempt = _attempt(run, fence, kind, ended_at, None) if began else None
    return replace(given_back, outcome=None, attempt=attempt)


def _missed(run: Run, fence: int, ended_at: datetime) -> Settlement:
    """The run is skipped; there was no attempt."""
    given_back = _release(run, fence, ended_at, began=False)
    return replace(given_back, state=State.SKIPPED, reason=MISFIRE)


def _attempt(run: Run, fence: int, kind: OutcomeKind, ended_at: datetime, failure: Failure | None) -> Attempt:
    return Attempt(
        number=run.attempt,
        fence=fence,
        node=run.node or "",
        started_at=run.started_at or ended_at,
        ended_at=ended_at,
        outcome=kind,
        failure=failure,
    )
