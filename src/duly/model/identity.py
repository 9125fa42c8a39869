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
_PART = re.compile(r"[0-9A-Za-z_.-]{1,200}")
_SUBMITTED = re.compile(r"[0-9a-f]{26}")
_STAMP = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{6}")
JOB_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
MAX_NAME_LENGTH = 128

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


def is_run_id(text: object) -> bool:
    """Whether a run can have this id. Other ids need not be looked up: a store may be unable to read them."""
    return isinstance(text, str) and _RUN_ID.fullmatch(text) is not None


# A short id has at least this many digits at the end of a submitted run's id, or of its job's uid. They are random: in
# a million runs, two end in the same eight digits once in four thousand.
_SHORT = 8
_SHORT_UID = 4
_YEAR = 4


def short_id(run_id: str) -> str:
    """The short form of a run id for tables. It begins with a digit, as all ids do, and no job's name does.

    Of a submitted run it is the end. Of a recurring run it is the end of the job's uid and the due instant without its
    year and without zero decimals: "7f1-1118T081500". An id of another form is returned as it is.
    """
    if _SUBMITTED.fullmatch(run_id):
        return _ending(run_id, _SHORT)
    uid, _, moment = run_id.rpartition("-")
    if not uid or not _STAMP.fullmatch(moment):
        return run_id
    whole, _, fraction = moment[_YEAR:].partition(".")
    if fraction := fraction.rstrip("0"):
        return f"{_ending(uid, _SHORT_UID)}-{whole}.{fraction}"
    return f"{_ending(uid, _SHORT_UID)}-{whole}"


def _ending(text: str, least: int) -> str:
    """The end of a text, at least this long, that begins with a digit."""
    start = max(0, len(text) - least)
    while start > 0 and not text[start].isdecimal():
        start -= 1
    return text[start:]


def may_shorten(text: object) -> bool:
    """Whether a text can be a part of a run id. Anything else need not be searched for."""
    return isinstance(text, str) and _PART.fullmatch(text) is not None


def shortens(part: str, run_id: str) -> bool:
    """Whether `part` is a shortened form of this id: its beginning, its end, or what `short_id` makes of it.

    Of a recurring run the part before the "-" is the end of the uid, and the part after it the beginning of the due
    instant, with or without its year.
    """
    if run_id.startswith(part) or run_id.endswith(part):
        return True
    tail, dash, moment = part.rpartition("-")
    uid, _, due = run_id.rpartition("-")
    if not (dash and tail and moment and uid.endswith(tail) and _STAMP.fullmatch(due)):
        return False
    return due.startswith(moment) or due[_YEAR:].startswith(moment)


def is_job_name(name: object) -> bool:
    """Whether `name` may name a job: a letter or underscore, then letters, digits, `_`, `.`, `-`; at most 128."""
    return isinstance(name, str) and len(name) <= MAX_NAME_LENGTH and _is_well_formed(name)


@lru_cache(maxsize=4096)  # called for every submission
def _is_well_formed(name: str) -> bool:
    return JOB_NAME.fullmatch(name) is not None
