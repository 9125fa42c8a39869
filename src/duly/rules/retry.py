"""Retry policies: how long to wait after which failure, and which failures to retry at all.

The numbers (`RetrySpec`) travel with the run; rules by exception class and custom strategies stay with the handler's
code and are applied where the handler ran.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from duly.errors import ConfigurationError, GiveUp, Retry, shown
from duly.model import RetrySpec, Verdict

Strategy = Literal["exponential", "linear", "fixed"]
CustomStrategy = Callable[[int, BaseException], float | timedelta | None]

STRATEGIES: tuple[Strategy, ...] = ("exponential", "linear", "fixed")
_LONGEST = 10 * 365 * 86400.0


def delay_after(spec: RetrySpec, failures: int, dice: float) -> float:
    """Seconds to wait after that many failures, jittered by `dice` in [0, 1) around the nominal delay."""
    nominal = _nominal(spec, failures)
    return max(0.0, nominal * (1 + spec.jitter * (2 * dice - 1)))


def _nominal(spec: RetrySpec, failures: int) -> float:
    match spec.strategy:
        case "linear":
            delay = spec.initial_interval * failures
        case "fixed":
            delay = spec.initial_interval
        case _:
            delay = _power(spec, failures)
    return min(delay, spec.max_interval)


def _power(spec: RetrySpec, failures: int) -> float:
    try:
        return float(spec.initial_interval * spec.multiplier ** (failures - 1))
    except OverflowError:
        return math.inf


class RetryPolicy(Struct, frozen=True):
    """How failures are retried. `max_retries=3` is four attempts in all.

    `strategy` is "exponential" (each delay `multiplier` times the one before: 1, 2, 4 s), "linear" (each delay one
    interval longer: 5, 10, 15 s for an initial interval of 5), "fixed", or a callable
    `(failures, exception) -> seconds | timedelta | None`, where None gives up. `max_interval` caps them. `jitter` is a
    fraction: 0.1 spreads each delay by ±10 %. Only exceptions in `retry_on` and not in `give_up_on` are retried;
    timeouts count as `TimeoutError`.
    """

    max_retries: int = 3
    initial_interval: float | timedelta = 1.0
    max_interval: float | timedelta = 30.0
    multiplier: float = 2.0
    strategy: Strategy | CustomStrategy = "exponential"
    jitter: float = 0.0
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    give_up_on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        _check_whole("max_retries", self.max_retries)
        force_setattr(self, "initial_interval", seconds("RetryPolicy initial_interval", self.initial_interval))
        force_setattr(self, "max_interval", seconds("RetryPolicy max_interval", self.max_interval))
        _check_number("RetryPolicy multiplier", self.multiplier, 0.0, 1e9)
        _check_number("RetryPolicy jitter", self.jitter, 0.0, 1.0)
        _check_strategy(self.strategy)
        force_setattr(self, "retry_on", _classes("retry_on", self.retry_on))
        force_setattr(self, "give_up_on", _classes("give_up_on", self.give_up_on))

    @classmethod
    def exponential(
        cls,
        max_retries: int = 3,
        initial_interval: float | timedelta = 1.0,
        max_interval: float | timedelta = 30.0,
        multiplier: float = 2.0,
        jitter: float = 0.0,
        retry_on: tuple[type[BaseException], ...] = (Exception,),
        give_up_on: tuple[type[BaseException], ...] = (),
    ) -> RetryPolicy:
        """Each delay is `multiplier` times the one before: 1, 2, 4 s."""
        return cls(max_retries, initial_interval, max_interval, multiplier, "exponential", jitter, retry_on, give_up_on)

    @classmethod
    def linear(
        cls,
        max_retries: int = 3,
        initial_interval: float | timedelta = 5.0,
        max_interval: float | timedelta = 30.0,
        jitter: float = 0.0,
        retry_on: tuple[type[BaseException], ...] = (Exception,),
        give_up_on: tuple[type[BaseException], ...] = (),
    ) -> RetryPolicy:
        """Each delay is one interval longer than the one before: 5, 10, 15 s."""
        return cls(max_retries, initial_interval, max_interval, 1.0, "linear", jitter, retry_on, give_up_on)

    @classmethod
    def fixed(
        cls,
        max_retries: int = 3,
        interval: float | timedelta = 10.0,
        jitter: float = 0.0,
        retry_on: tuple[type[BaseException], ...] = (Exception,),
        give_up_on: tuple[type[BaseException], ...] = (),
    ) -> RetryPolicy:
        """Every delay is the same: 10, 10, 10 s."""
        return cls(max_retries, interval, interval, 1.0, "fixed", jitter, retry_on, give_up_on)

    @classmethod
    def of(cls, value: RetryPolicy | int | None) -> RetryPolicy:
        """What `retry=` takes: a policy, a number of retries, or None for no retries."""
        if isinstance(value, RetryPolicy):
            return value
        return cls(max_retries=0 if value is None else value)

    @property
    def spec(self) -> RetrySpec:
        """The numbers, as they travel with a run."""
        return RetrySpec(
            max_retries=self.max_retries,
            initial_interval=seconds("initial_interval", self.initial_interval),
            max_interval=seconds("max_interval", self.max_interval),
            multiplier=float(self.multiplier),
            strategy="custom" if callable(self.strategy) else self.strategy,
            jitter=float(self.jitter),
        )

    def delays(self) -> list[float]:
        """The nominal delays in seconds, one per retry, without jitter. A custom strategy has none to show."""
        if callable(self.strategy):
            return []
        return [_nominal(self.spec, failures) for failures in range(1, self.max_retries + 1)]

    def judge(self, exc: BaseException, failures: int) -> tuple[Verdict, float | None]:
        """Whether to retry after this exception, the `failures`-th one; and the delay, if it is not by the numbers."""
        if isinstance(exc, Retry):
            return Verdict.POLICY, None if exc.after is None else seconds("Retry(after=…)", exc.after)
        if _is(exc, (GiveUp, *self.give_up_on)) or not _is(exc, self.retry_on):
            return Verdict.NEVER, None
        if not callable(self.strategy):
            return Verdict.POLICY, None
        delay = self.strategy(failures, exc)
        return (Verdict.NEVER, None) if delay is None else (Verdict.POLICY, seconds("retry strategy", delay))


def _is(exc: BaseException, classes: tuple[type[BaseException], ...]) -> bool:
    """Whether an exception is of one of these classes; one from another process has their names (`lineage`)."""
    lineage = getattr(exc, "lineage", ())
    if not lineage:
        return isinstance(exc, classes)
    return any(f"{each.__module__}.{each.__qualname__}" in lineage for each in classes)


def seconds(what: str, value: object) -> float:
    """A duration given as a number of seconds or a timedelta, from 0 to ten years."""
    plain = value.total_seconds() if isinstance(value, timedelta) else value
    return _check_number(what, plain, 0.0, _LONGEST)


def _check_whole(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1_000_000:
        raise ConfigurationError(f"RetryPolicy {name}={shown(value)}: expected a whole number from 0 to 1000000")


def _check_number(what: str, value: object, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigurationError(f"{what}={shown(value)}: expected a number from {least:g} to {most:g}")
    return float(value)


def _check_strategy(strategy: object) -> None:
    if not callable(strategy) and strategy not in STRATEGIES:
        raise ConfigurationError(
            f"RetryPolicy strategy={shown(strategy)}: one of {', '.join(STRATEGIES)} or a callable"
        )


def _classes(name: str, value: object) -> tuple[type[BaseException], ...]:
    classes = value if isinstance(value, tuple) else (value,)
    for each in classes:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise ConfigurationError(
                f"RetryPolicy {name}={shown(value)}: expected exception classes, got {shown(each)}"
            )
    return classes
