"""Tolerant reading: a record that cannot be decoded is returned as damaged; the others are not affected.

Another version of Duly, a bug or an operator may have written what this version cannot decode. No listing, claim
or takeover fails because of it: the record comes back with its `damage`, and its reader reports it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from duly.model import EPOCH, JobRecord, JobSpec, Origin, sanitize

T = TypeVar("T")
R = TypeVar("R")

# What decoding may raise for a value that this version did not write.
UNREADABLE = (
    msgspec.MsgspecError,
    struct.error,
    ValueError,
    OverflowError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
)


def tolerantly(read: Callable[[Sequence[T]], list[R]], rows: Sequence[T], bare: Callable[[T, str], R]) -> list[R]:
    """Read rows together; where that fails, one by one, so that a bad one does not affect the others.

    `bare` reads a bad row without the parts that can be bad, given the reason. A row that still cannot be read is
    left out.
    """
    try:
        return read(rows)
    except UNREADABLE:
        pass
    found: list[R] = []
    for row in rows:
        try:
            found += read([row])
        except UNREADABLE as exc:
            with suppress(*UNREADABLE):
                found.append(bare(row, damage(exc)))
    return found


def readable(read: Callable[[T], R], values: Iterable[T]) -> list[R]:
    """Those values that can be read. For values that are rewritten soon, such as the record of a node."""
    found: list[R] = []
    for value in values:
        with suppress(*UNREADABLE):
            found.append(read(value))
    return found


def damage(exc: Exception) -> str:
    """Why a stored value cannot be read."""
    return f"the stored record cannot be read: {sanitize.type_name_of(exc)}: {sanitize.text_of(exc, 500)}"


def damaged_job(name: str, uid: str, revision: int, exc: Exception) -> JobRecord:
    """What is known of a job whose definition cannot be read."""
    spec = JobSpec(name=name, handler=name)
    return JobRecord(uid, spec, revision, Origin.API, EPOCH, EPOCH, damage=damage(exc))
