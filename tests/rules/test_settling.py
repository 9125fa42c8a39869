"""Settling: what becomes of a run after each outcome, and what is counted."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from duly.model import (
    Cancelled,
    Delivery,
    Failed,
    Failure,
    Interrupted,
    Lost,
    Missed,
    OutcomeKind,
    RetrySpec,
    Run,
    RunPolicy,
    State,
    Succeeded,
    TimedOut,
    Verdict,
)
from duly.model.holds import ALONE
from duly.rules.lifecycle import MOVES, may_move
from duly.rules.settling import as_stored, settle
from duly.rules.suspects import MAX_LOSSES

NOW = datetime(2027, 1, 1, tzinfo=UTC)
ENDED = NOW + timedelta(seconds=3)
BOOM = Failure("ValueError", "boom")


def run(**fields):
    values = {"id": "0a", "job": "j", "handler": "j", "due": NOW, "ready_at": NOW, "state": State.RUNNING}
    return Run(**values | {"started_at": NOW, "node": "n", "fence": 7} | fields)


def settled(outcome, **fields):
    return settle(run(**fields), 7, outcome, ENDED, dice=0.5)


AT_MOST_ONCE = RunPolicy(delivery=Delivery.AT_MOST_ONCE)


def test_a_run_that_is_claimed_too_late_is_skipped_without_an_attempt():
    settlement = settled(Missed())
    assert (settlement.state, settlement.reason) == (State.SKIPPED, "misfire")
    assert (settlement.outcome, settlement.attempt) == (None, None)
    assert (settlement.failures, settlement.losses) == (0, 0)


def test_a_first_success_is_told_by_the_run_itself():
    settlement = settled(Succeeded(b"1"))
    assert (settlement.state, settlement.result, settlement.outcome) == (State.COMPLETED, b"1", OutcomeKind.SUCCEEDED)
    assert settlement.attempt is None
    assert (settlement.failures, settlement.losses) == (0, 0)


def test_a_later_success_is_an_attempt():
    settlement = settled(Succeeded(), failures=1)
    assert settlement.attempt is not None
    assert (settlement.attempt.number, settlement.attempt.outcome) == (2, OutcomeKind.SUCCEEDED)


@pytest.mark.parametrize(("failures", "delay"), [(0, 1), (1, 2), (2, 4)])
def test_a_failure_is_retried_later_and_later(failures, delay):
    settlement = settled(Failed(BOOM), failures=failures)
    assert settlement.state is State.PENDING
    assert settlement.ready_at == ENDED + timedelta(seconds=delay)
    assert settlement.failures == failures + 1


def test_the_fourth_failure_is_the_last_by_default():
    settlement = settled(Failed(BOOM), failures=3)
    assert (settlement.state, settlement.failures, settlement.failure) == (State.FAILED, 4, BOOM)


@pytest.mark.parametrize("outcome", [Failed(BOOM), TimedOut(BOOM), Lost()])
@pytest.mark.parametrize("policy", [RunPolicy(retry=RetrySpec(max_retries=0)), AT_MOST_ONCE])
def test_a_run_that_broke_for_good_tells_its_last_attempt(outcome, policy):
    before = run(policy=policy, failures=1)
    after = settle(before, 7, outcome, ENDED, dice=0.5)
    told = replace(before, state=after.state, failures=after.failures, losses=after.losses)
    assert told.attempt == before.attempt + (told.state is State.PENDING)


def test_timeouts_are_retried_like_failures():
    settlement = settled(TimedOut(BOOM))
    assert (settlement.state, settlement.outcome) == (State.PENDING, OutcomeKind.TIMED_OUT)


def test_a_verdict_overrides_the_numbers():
    assert settled(Failed(BOOM, Verdict.NEVER)).state is State.FAILED
    assert settled(Failed(BOOM, delay=60.0)).ready_at == ENDED + timedelta(seconds=60)
    assert settled(Failed(BOOM, delay=0.0)).ready_at == ENDED
    assert settled(Failed(BOOM, delay=0.0), failures=3).state is State.FAILED


def test_a_cancellation_is_not_retried():
    settlement = settled(Cancelled(), reason="by ada")
    assert (settlement.state, settlement.reason) == (State.CANCELLED, "by ada")


def test_a_release_counts_nothing():
    settlement = settled(Interrupted(), failures=2, losses=1)
    assert (settlement.state, settlement.outcome) == (State.PENDING, None)
    assert (settlement.failures, settlement.losses, settlement.ready_at) == (2, 1, NOW)


def test_at_most_once_is_never_tried_twice():
    assert settled(Failed(BOOM), policy=AT_MOST_ONCE).state is State.FAILED
    assert settled(TimedOut(BOOM), policy=AT_MOST_ONCE).state is State.FAILED
    assert settled(Lost(), policy=AT_MOST_ONCE).state is State.LOST
    assert settled(Interrupted(began=True), policy=AT_MOST_ONCE).state is State.LOST
    assert settled(Interrupted(began=False), policy=AT_MOST_ONCE).state is State.PENDING


def test_a_crash_does_not_use_up_a_retry():
    settlement = settled(Lost(), failures=3)
    assert (settlement.state, settlement.failures, settlement.losses) == (State.PENDING, 3, 1)
    assert settlement.ready_at == ENDED


def test_a_run_that_kills_its_workers_is_given_up():
    assert settled(Lost(alone=True), losses=MAX_LOSSES - 2).state is State.PENDING
    settlement = settled(Lost(alone=True), losses=MAX_LOSSES - 1)
    reason = "its worker vanished 3 times, the last time with no other run on it"
    assert (settlement.state, settlement.reason, settlement.losses) == (State.FAILED, reason, 3)


def test_losses_in_company_fail_nobody():
    settlement = settled(Lost(), losses=100)
    assert (settlement.state, settlement.losses, settlement.hold) == (State.PENDING, 101, ALONE)


def test_a_loss_says_how_the_process_ended_if_that_is_known():
    settlement = settled(Lost(why="killed by SIGKILL"))
    assert (settlement.state, settlement.losses) == (State.PENDING, 1)
    assert settlement.failure.message == "the worker's process ended: killed by SIGKILL"
    assert settlement.attempt.failure == settlement.failure
    lost = settled(Lost(why="exit code 139 (SIGSEGV)"), policy=AT_MOST_ONCE)
    assert (lost.state, lost.reason) == (State.LOST, "worker vanished: exit code 139 (SIGSEGV)")


@pytest.mark.parametrize("outcome", [Lost(), Interrupted(), Interrupted(began=False), Failed(BOOM)])
def test_a_suspect_is_held_to_be_lent_alone_however_its_attempt_ended(outcome):
    assert settled(outcome, losses=MAX_LOSSES - 1).hold == ALONE
    assert settled(outcome, losses=MAX_LOSSES - 3).hold is None
    assert settled(Succeeded(), losses=MAX_LOSSES - 1).hold is None


def test_the_number_of_losses_is_a_setting():
    for most in (2, 5):
        before = run(losses=most - 2)
        assert settle(before, 7, Lost(alone=True), ENDED, 0.0, most).hold == ALONE
        assert settle(replace(before, losses=most - 1), 7, Lost(alone=True), ENDED, 0.0, most).state is State.FAILED


def test_a_suspect_that_is_to_be_cancelled_is_not_held():
    settlement = settled(Interrupted(), losses=MAX_LOSSES - 1)
    applied = as_stored(run(losses=MAX_LOSSES - 1, cancelling=True, reason="enough"), settlement)
    assert (applied.state, applied.reason, applied.hold) == (State.CANCELLED, "enough", None)


def test_a_lost_run_that_was_to_be_cancelled_is_cancelled():
    assert settled(Lost(), cancelling=True).state is State.CANCELLED


outcomes = st.one_of(
    st.builds(Succeeded, st.none() | st.binary()),
    st.builds(Failed, st.just(BOOM), st.sampled_from(Verdict), st.none() | st.floats(0, 1e9)),
    st.builds(TimedOut, st.just(BOOM), st.sampled_from(Verdict), st.none() | st.floats(0, 1e9)),
    st.just(Cancelled()),
    st.builds(Interrupted, st.booleans()),
    st.just(Lost()),
)
policies = st.builds(
    RunPolicy,
    retry=st.builds(RetrySpec, max_retries=st.integers(0, 5)),
    delivery=st.sampled_from(Delivery),
)


@given(outcomes, policies, st.integers(0, 6), st.integers(0, 3), st.booleans())
def test_every_settlement_is_a_legal_move(outcome, policy, failures, losses, cancelling):
    before = run(policy=policy, failures=failures, losses=losses, cancelling=cancelling)
    settlement = settle(before, 7, outcome, ENDED, dice=0.0)
    assert may_move(State.RUNNING, settlement.state)
    assert settlement.failures in (failures, failures + 1)
    assert settlement.losses in (losses, losses + 1)
    assert settlement.failures + settlement.losses <= failures + losses + 1
    if settlement.state is State.PENDING and settlement.outcome is not None:
        assert settlement.failures + settlement.losses == failures + losses + 1
    if policy.delivery is Delivery.AT_MOST_ONCE and settlement.state is State.PENDING:
        assert outcome == Interrupted(began=False)


@given(policies, st.lists(outcomes, max_size=40))
def test_no_run_is_tried_for_ever(policy, ends):
    current = run(policy=policy)
    counted = 0
    for outcome in [Lost(alone=True) if isinstance(each, Lost) else each for each in ends]:
        settlement = settle(current, 7, outcome, ENDED, dice=0.0)
        if settlement.state is not State.PENDING:
            break
        counted += settlement.outcome is not None
        current = replace(current, failures=settlement.failures, losses=settlement.losses)
    assert counted <= policy.retry.max_retries + MAX_LOSSES


def test_the_table_of_moves_knows_every_state():
    assert set(MOVES) == set(State)
    assert not may_move(State.COMPLETED, State.PENDING)
    assert may_move(State.FAILED, State.PENDING)
    assert not may_move(State.SKIPPED, State.PENDING)
