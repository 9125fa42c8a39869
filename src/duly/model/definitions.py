"""Past definitions of a job: what `Store.save` appends to the job's log when a definition is replaced.

The record of a job holds its present definition, the log the earlier ones, so a new job costs no entry. Both are
written in one step: each definition is in one of the two places, and in no other.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from duly.model.job import JobSpec

KEPT_DEFINITIONS = 50  # past definitions of a job that are kept, the newest ones


class PastDefinition(Struct, frozen=True, omit_defaults=True):
    """A definition that was replaced: the revision that brought it, when, and who wrote it (None: unknown).

    `removed_at` is when the job was removed, if it was and came back with another definition.
    """

    revision: int
    at: datetime
    spec: JobSpec
    by: str | None = None
    removed_at: datetime | None = None


DEFINITIONS = "definitions:"  # what the names of logs of definitions begin with


def definitions_log(job: str) -> str:
    """The log of a job's past definitions. It is deleted with the record of the job."""
    return f"{DEFINITIONS}{job}"
