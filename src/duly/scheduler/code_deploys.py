"""Deploys: the jobs that this process's code defines, brought into the store.

If there are many jobs, comparing each with its record would make every start read all definitions. So jobs are grouped
in parts, the store keeps the digests of parts that it contains unchanged (`DEPLOYED`), and a part with a known digest
is not read. Every change that could invalidate a digest deletes the digests in the same step, and they are written only
if none were deleted since the comparison began. See decision 0064.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from duly.model import Ids, Item, JobChange, JobRecord, JobSpec, JobStatus, Origin
from duly.model.event import Emit, JobConflict, JobSaved
from duly.model.job import DEPLOYED
from duly.model.node import PROTOCOL
from duly.ports import Backend
from duly.rules import job_changes
from duly.runtime.live_config import LiveConfig
from duly.scheduler.capability_checks import too_new
from duly.scheduler.job import Job, bound_schedule
from duly.scheduler.registry import Registry

_SLICE = 500
_RACES = 20
_PART = 200  # approximate number of jobs in a part
_MOST_KNOWN = 4  # digests kept for each part: other programs may define their jobs in the same store

Specs = Mapping[str, tuple[Job, JobSpec]]


class CodeDeploys:
    """Saves what is new or changed in the code, as defined by `by`. `changed` is called after every write."""

    def __init__(
        self,
        backend: Backend,
        registry: Registry,
        live: LiveConfig,
        ids: Ids,
        now: Callable[[], datetime],
        emit: Emit,
        changed: Callable[[], None],
        by: str,
    ) -> None:
        self._by = by
        self._store = backend.store
        self._coordinator = backend.coordinator
        self._registry = registry
        self._live = live
        self._ids = ids
        self._now = now
        self._emit = emit
        self._changed = changed
        self._reported: set[str] = set()  # jobs that wait for the end of older nodes

    async def deploy(self, jobs: Sequence[Job], code_since: datetime) -> bool:
        """Bring the store in line with the code; what did not change is not touched.

        False if some jobs must wait until nodes of an earlier version have stopped: deploy again later.
        """
        specs = {job.name: (job, self._registry.spec(job, self._live.config)) for job in jobs}
        waiting = await too_new([spec for _, spec in specs.values()], self._coordinator)
        for name, why in waiting.items():
            if name not in self._reported:
                self._emit(JobConflict(name, f"it is deployed later: {why}"))
        self._reported |= waiting.keys()
        await self._deploy({name: each for name, each in specs.items() if name not in waiting}, code_since)
        return not waiting

    async def _deploy(self, specs: Specs, code_since: datetime) -> None:
        if len(specs) <= _SLICE:  # one call compares them
            await self._compare(specs, code_since)
            return
        if any(node.protocol < PROTOCOL for node in await self._coordinator.nodes()):
            await self._compare(specs, code_since)  # nodes of 0.1.0 delete no digests when they redefine a job
            return
        item = await self._store.get(*DEPLOYED)
        known = _digests(item)
        parts = {_digest(part): part for part in _parts(specs)}
        missing = {digest: part for digest, part in parts.items() if digest not in known}
        unknown = {name for part in missing.values() for name in part}
        # In the order of the program: ids grow in this order, and indexes by id and by name then agree. Runs of 20,000
        # schedules cost SQLite 1.4 times as much if jobs are created in a random order.
        odd = await self._compare({name: each for name, each in specs.items() if name in unknown}, code_since)
        found = {digest for digest, part in missing.items() if odd.isdisjoint(part)}
        if found:
            kept = [digest for digest in known if digest not in parts][: (_MOST_KNOWN - 1) * len(parts)]
            standing = [digest for digest in parts if digest in found or digest not in missing]
            value = msgspec.json.encode([*standing, *kept])
            await self._store.put(*DEPLOYED, value, expect=item.version if item else 0)

    async def _compare(self, specs: Specs, code_since: datetime) -> set[str]:
        """Save what is new or changed; returns the jobs that the store does not have as the code defines them."""
        names = list(specs)
        odd: set[str] = set()
        for start in range(0, len(names), _SLICE):
            some: Specs = {name: specs[name] for name in names[start : start + _SLICE]}
            for _ in range(_RACES):
                some, others = await self._save(some, code_since)
                odd |= others
                if not some:
                    break
            odd |= some.keys()
        return odd

    async def _save(self, specs: Specs, code_since: datetime) -> tuple[Specs, set[str]]:
        """Save what is new or changed; returns what lost a race, and what is not, or was not, as defined here."""
        stored = {record.name: record for record in await self._store.jobs(list(specs))}
        wanted: list[JobChange] = []
        odd: set[str] = set()
        for name, (job, spec) in specs.items():
            record = stored.get(name)
            change = self._change(job, spec, record, code_since)
            if change is not None:
                wanted.append(change)
                if change.expect is not None:
                    odd.add(name)
            elif record is None or record.origin is not Origin.CODE or not _is_deployed(record, spec):
                odd.add(name)
        if not wanted:
            return {}, odd
        saved = await self._store.save(wanted)
        for record in saved:
            if record is not None:
                self._emit(JobSaved.of(record, "deployed"))
        self._changed()
        lost = [change.record.name for change, record in zip(wanted, saved, strict=True) if record is None]
        return {name: specs[name] for name in lost}, odd

    def _change(self, job: Job, spec: JobSpec, record: JobRecord | None, code_since: datetime) -> JobChange | None:
        now, by = self._now(), self._by
        if record is None:
            schedule = bound_schedule(job, spec)
            return job_changes.create(self._ids.new(), spec, schedule, Origin.CODE, now, code_since, by)
        if record.origin is not Origin.CODE:
            self._emit(JobConflict(job.name, f"the {record.origin.value} defines it; code does not overwrite that"))
            return None
        if record.status is JobStatus.REMOVED:
            if job.restore:
                schedule = bound_schedule(job, spec)
                return job_changes.restore(self._ids.new(), record, spec, schedule, now, code_since, by)
            self._emit(JobConflict(job.name, "it was removed; register it with restore=True to bring it back"))
            return None
        if _is_deployed(record, spec):
            return None
        return job_changes.deploy(record, spec, bound_schedule(job, spec), now, code_since, by)


def _is_deployed(record: JobRecord, spec: JobSpec) -> bool:
    return record.status is not JobStatus.REMOVED and record.spec.digest() == spec.digest()


def _parts(specs: Specs) -> list[Specs]:
    """Group the jobs in parts. Adding or removing a job changes only its part, unless the number of parts changes."""
    number = 1 << (len(specs) // _PART).bit_length()
    parts: list[dict[str, tuple[Job, JobSpec]]] = [{} for _ in range(number)]
    for name, each in sorted(specs.items()):
        parts[_place(name, number)][name] = each
    return [part for part in parts if part]


def _place(name: str, number: int) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "big") % number


def _digest(part: Specs) -> str:
    """A hash of these definitions."""
    whole = hashlib.blake2b(digest_size=12)
    for name, (_, spec) in part.items():
        whole.update(f"{name}:{spec.digest()};".encode())
    return whole.hexdigest()


def _digests(item: Item | None) -> list[str]:
    return msgspec.json.decode(item.value, type=list[str]) if item is not None and item.value else []
