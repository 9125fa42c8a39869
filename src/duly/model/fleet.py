"""Fleets: the jobs that one file defines together, and what the store remembers about that file."""

from __future__ import annotations

import hashlib
from datetime import datetime

import msgspec
from msgspec import Struct

from duly.model.job import JobSpec

FLEETS = "fleet"  # the kind of value under which a store keeps which file is in force


class Fleet(Struct, frozen=True):
    """A named set of jobs, as a file has it."""

    name: str
    jobs: tuple[JobSpec, ...]

    def digest(self) -> str:
        """A short hash of all definitions; comments and order do not count."""
        parts = sorted((spec.name, spec.digest()) for spec in self.jobs)
        return hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=16).hexdigest()


class InForce(Struct, frozen=True):
    """Which version of a fleet stands, since when, the names of its jobs, and the versions that it has replaced.

    `since` is when whoever put it in force had read the file.
    """

    digest: str
    since: datetime
    jobs: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
