"""Retry policies: the delays are pinned, the judgement of exceptions is by class."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.errors import ConfigurationError, GiveUp, Retry
from duly.model import RetrySpec, Verdict
from duly.rules.retry import RetryPolicy, delay_after


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (RetryPolicy(), [1, 2, 4]),
        (RetryPolicy(3, 1, 30, 2.0), [1, 2, 4]),
        (RetryPolicy.exponential(3), [1, 2, 4]),
        (RetryPolicy.exponential(7), [1, 2, 4, 8, 16, 30, 30]),
        (RetryPolicy.exponential(3, 2, 100, 3), [2, 6, 18]),
        (RetryPolicy.linear(3, 5), [5, 10, 15]),
        (RetryPolicy(3, 5, 30, 1.0, "linear"), [5, 10, 15]),
        (RetryPolicy(3, 5, strategy="linear"), [5, 10, 15]),
        (RetryPolicy.linear(4, 10, 25), [10, 20, 25, 25]),
        (RetryPolicy.fixed(3, 10), [10, 10, 10]),
        (RetryPolicy(3, 10, 10, 1.0, "fixed"), [10, 10, 10]),
        (RetryPolicy(2, timedelta(seconds=3), timedelta(minutes=1)), [3, 6]),
        (RetryPolicy.of(2), [1, 2]),
        (RetryPolicy.of(None), []),
        (RetryPolicy(0), []),
    ],
)
def test_the_delays_are_as_promised(policy, delays):
    assert policy.delays() == delays


def test_without_jitter_the_dice_do_not_matter():
    spec = RetryPolicy().spec
    assert [delay_after(spec, 2, dice) for dice in (0.0, 0.5, 0.999)] == [2, 2, 2]


@given(
    st.integers(1, 10_000),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1),
    st.sampled_from(["exponential", "linear", "fixed"]),
)
def test_a_jittered_delay_stays_around_the_nominal_one(failures, dice, jitter, strategy):
    spec = RetrySpec(strategy=strategy, jitter=jitter, max_interval=60)
    nominal = delay_after(RetrySpec(strategy=strategy, max_interval=60), failures, 0.5)
    assert 0 <= nominal <= 60
    assert nominal * (1 - jitter) - 1e-9 <= delay_after(spec, failures, dice) <= nominal * (1 + jitter) + 1e-9


class Declined(Exception):
    pass


class CardDeclined(Declined):
    pass


def test_only_listed_exceptions_are_retried():
    policy = RetryPolicy(retry_on=(OSError, Declined), give_up_on=(CardDeclined,))
    assert policy.judge(ConnectionError(), 1) == (Verdict.POLICY, None)
    assert policy.judge(Declined(), 1) == (Verdict.POLICY, None)
    assert policy.judge(CardDeclined(), 1) == (Verdict.NEVER, None)
    assert policy.judge(ValueError(), 1) == (Verdict.NEVER, None)


def test_by_default_every_exception_is_retried_and_an_exit_is_not():
    policy = RetryPolicy()
    assert policy.judge(ValueError(), 1) == (Verdict.POLICY, None)
    assert policy.judge(TimeoutError(), 1) == (Verdict.POLICY, None)
    assert policy.judge(SystemExit(1), 1) == (Verdict.NEVER, None)
    assert policy.judge(KeyboardInterrupt(), 1) == (Verdict.NEVER, None)


def test_a_handler_may_decide_itself():
    policy = RetryPolicy(retry_on=(OSError,))
    assert policy.judge(Retry(), 1) == (Verdict.POLICY, None)
    assert policy.judge(Retry(after=60), 1) == (Verdict.POLICY, 60.0)
    assert policy.judge(Retry(after=timedelta(minutes=2)), 1) == (Verdict.POLICY, 120.0)
    assert policy.judge(GiveUp("no such user"), 1) == (Verdict.NEVER, None)


def test_a_custom_strategy_sees_the_failure_and_may_give_up():
    def strategy(failures, exc):
        return None if isinstance(exc, KeyError) else timedelta(seconds=failures * 7)

    policy = RetryPolicy(5, strategy=strategy)
    assert policy.judge(ValueError(), 3) == (Verdict.POLICY, 21.0)
    assert policy.judge(KeyError(), 1) == (Verdict.NEVER, None)
    assert policy.spec.strategy == "custom"
    assert policy.delays() == []


def test_an_exception_of_another_process_is_judged_by_its_lineage():
    remote = RuntimeError("from afar")
    remote.lineage = ("builtins.ConnectionError", "builtins.OSError", "builtins.Exception")
    assert RetryPolicy(retry_on=(OSError,)).judge(remote, 1) == (Verdict.POLICY, None)
    assert RetryPolicy(retry_on=(ValueError,)).judge(remote, 1) == (Verdict.NEVER, None)
    assert RetryPolicy(give_up_on=(ConnectionError,)).judge(remote, 1) == (Verdict.NEVER, None)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"max_retries": -1}, "max_retries=-1"),
        ({"max_retries": 1.5}, "max_retries=1.5"),
        ({"max_retries": True}, "max_retries=True"),
        ({"initial_interval": -1}, "initial_interval=-1"),
        ({"max_interval": float("nan")}, "max_interval=nan"),
        ({"multiplier": "2"}, "multiplier='2'"),
        ({"jitter": 1.5}, "jitter=1.5"),
        ({"strategy": "fibonacci"}, "strategy='fibonacci'"),
        ({"retry_on": (1,)}, "retry_on"),
        ({"give_up_on": ("OSError",)}, "give_up_on"),
    ],
)
def test_bad_values_are_named(arguments, names):
    with pytest.raises(ConfigurationError, match=names.replace("(", r"\(")):
        RetryPolicy(**arguments)


def test_policies_are_values():
    assert RetryPolicy.exponential(3) == RetryPolicy()
    assert hash(RetryPolicy.fixed(2)) == hash(RetryPolicy.fixed(2))
    assert RetryPolicy(retry_on=OSError).retry_on == (OSError,)
    with pytest.raises(AttributeError):
        RetryPolicy().max_retries = 4
