"""Job files: the jobs that one file defines together, and what the store records about that file."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from duly.deprecation import warn_deprecated
from duly.model.job import JobSpec

JOB_FILES = "fleet"  # the kind of value under which a store records the version in force; 0.1.0 used this name


class JobFile(Struct, frozen=True):
    """A valid job file: its name and jobs, its path, and its settings for the store and the node.

    `name` identifies the set of jobs in the store: a file replaces the jobs of the same name and no others.
    `deprecations` has a message for each outdated key in the file. `notify` has the tables of its targets of
    notifications.
    """

    name: str
    jobs: tuple[JobSpec, ...]
    path: str = ""
    url: str | None = None
    settings: dict[str, Any] = {}
    deprecations: tuple[str, ...] = ()
    notify: dict[str, Any] = {}

    @property
    def fleet(self) -> JobFile:
        """Deprecated: the object that held name and jobs. These are attributes of the job file now."""
        warn_deprecated("JobFile.fleet is deprecated: use the job file itself")
        return self

    def digest(self) -> str:
        """A short hash of all definitions. Comments, order and settings do not count."""
        parts = sorted((spec.name, spec.digest()) for spec in self.jobs)
        return hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=16).hexdigest()


class InForce(Struct, frozen=True):
    """The version of a job file that is in force: its digest, the names of its jobs, and the versions it replaced.

    `since` is the time at which the node or operator that applied the file had read it.
    """

    digest: str
    since: datetime
    jobs: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
