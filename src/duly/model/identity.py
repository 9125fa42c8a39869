"""Identities: how runs and jobs are named.

A submitted run has a time-ordered id of fixed width. A recurring run's id is its job's uid and its due instant, so that
creating it twice is impossible. Both begin with a digit and are URL-safe: no id can ever be a job's name.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache

from duly.model.instant import stamp, to_micros

_RUN_ID = re.compile(r"[0-9][0-9A-Za-z_.-]{0,199}")
JOB_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
MAX_NAME_LENGTH = 128
_STAMP = re.compile(r"\d{8}T\d{6}\.\d{6}", re.ASCII)  # as `stamp` writes it
_SHORT = 8

_RANDOM_BITS = 48
_BYTES = 13
_HALF = 1 << (_RANDOM_BITS - 1)
_ALL = (1 << _RANDOM_BITS) - 1


class Ids:
    """Creates time-ordered ids: 14 hex digits of microseconds, 12 random ones; strictly increasing per instance."""

    def __init__(self, now: Callable[[], datetime], rng: random.Random) -> None:
        self._now = now
        self._rng = rng
        self._micros = -1
        self._tail = 0

    def new(self, now: datetime | None = None) -> str:
        """A new id, greater than all earlier ones of this instance; for this moment, if the caller passes it."""
        self._advance(now or self._now())
        return (self._micros << _RANDOM_BITS | self._tail).to_bytes(_BYTES, "big").hex()

    def many(self, count: int) -> list[str]:
        """`count` new ids, in order, all for this moment."""
        self._advance(self._now())
        first, self._tail = self._tail, self._tail + count
        if self._tail > _ALL:
            return [self.new() for _ in range(count)]
        head = f"{self._micros:014x}"
        return [f"{head}{tail:012x}" for tail in range(first, self._tail)]

    def _advance(self, now: datetime) -> None:
        micros = to_micros(now)
        if micros > self._micros:
            self._micros = micros
            self._tail = self._rng.getrandbits(_RANDOM_BITS) & ~_HALF
        elif self._tail >= _ALL:
            self._micros += 1
            self._tail = 0
        else:
            self._tail += 1


def recurring_id(uid: str, due: datetime) -> str:
    """The id of the run for one due instant of one job. `due` is the schedule's own instant, without jitter."""
    return f"{uid}-{stamp(due)}"


def short_id(run_id: str) -> str:
    """What tells runs of a job apart in a log: the end of a submitted run's id, the due time of a recurring run's.

    "93320b12", or "1116T104520": month, day and time in UTC, with decimals if there are any.
    """
    due = run_id.rpartition("-")[2]
    return due[4:].removesuffix(".000000") if _STAMP.fullmatch(due) else run_id[-_SHORT:]


def is_run_id(text: object) -> bool:
    """Whether a run can have this id. Other ids need not be looked up: a store may be unable to read them."""
    return isinstance(text, str) and _RUN_ID.fullmatch(text) is not None


def is_job_name(name: object) -> bool:
    """Whether `name` may name a job: a letter or underscore, then letters, digits, `_`, `.`, `-`; at most 128."""
    return isinstance(name, str) and len(name) <= MAX_NAME_LENGTH and _is_well_formed(name)


@lru_cache(maxsize=4096)  # called for every submission
def _is_well_formed(name: str) -> bool:
    return JOB_NAME.fullmatch(name) is not None
