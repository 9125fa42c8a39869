"""JobFiles in the store: comparing a file's jobs with what is there, and writing the difference.

First the new version is recorded as the one in force, then each job is written with one compare-and-set. A process that
is interrupted in between leaves a difference; the next one that applies the same file completes it, and an older file
cannot replace it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from duly.errors import ConfigurationError
from duly.model import Ids, Item, JobFile, JobRecord, SchedulerConfig
from duly.model.event import Emit, JobFileApplied, JobFileOutdated, JobSaved
from duly.model.job_file import JOB_FILES, InForce
from duly.ports import Backend
from duly.rules.job_files import (
    Alteration,
    AlterationKind,
    Difference,
    before_and_after,
    change_of,
    difference,
    outdated,
    put_in_force,
)
from duly.scheduler.audit import Audit
from duly.scheduler.capability_checks import check_deliveries, check_schedules

_SLICE = 1000
_RACES = 20


class JobFiles:
    """What can be done with the jobs of files. `changed` is called after every write.

    `by` is the user's name for the audit log; None for a program, whose changes are not recorded.
    """

    def __init__(
        self,
        backend: Backend,
        config: SchedulerConfig,
        ids: Ids,
        now: Callable[[], datetime],
        emit: Emit,
        changed: Callable[[], None],
    ) -> None:
        self._backend = backend
        self._store = backend.store
        self._config = config
        self._ids = ids
        self._now = now
        self._emit = emit
        self._audit = Audit(backend.store, config.audit_key)
        self._changed = changed

    async def deploy(self, job_file: JobFile, since: datetime, *, by: str | None = None, changed: bool = False) -> bool:
        """Bring the store in line with a file that was read at `since`; False if a newer file has taken its place.

        If it has `changed` under a running node it is new, even if it was in force before. `since` is by the store's
        clock: a node whose own is behind must not lose against what was there before it.
        """
        for _ in range(_RACES):
            found = await self.compare(job_file)
            if found.stands is not None and not changed and outdated(found.stands, job_file, since):
                self._emit(JobFileOutdated(job_file.name, found.stands.since))
                return False
            if not await self.apply(found, since, by=by):
                return True
        raise ConfigurationError(f"job file {job_file.name!r} keeps being changed by other processes: try again")

    async def compare(self, job_file: JobFile) -> Difference:
        """What the file would change."""
        await check_deliveries({spec.name: spec.policy.delivery for spec in job_file.jobs}, self._backend, self._config)
        item = await self._store.get(JOB_FILES, job_file.name)  # before the records: every writer changes it first
        found = difference(job_file, await self._records(job_file))
        return replace(found, stands=_read(item), version=item.version if item else 0)

    async def _records(self, job_file: JobFile) -> list[JobRecord]:
        """The records of jobs that the file names or owns, read in slices."""
        names = {spec.name for spec in job_file.jobs}
        found: list[JobRecord] = []
        after = ""
        while part := await self._store.jobs(after=after, limit=_SLICE):
            found += [record for record in part if record.name in names or record.job_file == job_file.name]
            after = part[-1].name
        return found

    async def apply(self, found: Difference, since: datetime | None = None, *, by: str | None = None) -> list[str]:
        """Write a difference; returns the names of what others changed meanwhile, the file's own name included.

        If there is a clash, nothing is written and `ConfigurationError` is raised.
        """
        if found.clashes:
            raise ConfigurationError("; ".join(found.clash_words()))
        await check_schedules(found.job_file.jobs, self._backend.coordinator)
        if not await self._put_in_force(found, since or await self._store.time()):
            return [found.job_file.name]
        kept = [each for each in found.alterations if each.kind is not AlterationKind.REMOVED]
        lost = await self._save(kept, found, by)
        lost += await self._remove(found.of(AlterationKind.REMOVED))
        lost += await self._withdraw(found)
        written = [each for each in found.alterations if each.name not in lost]
        if written:
            self._changed()
            self._emit(JobFileApplied(found.job_file.name, tuple(each.words() for each in written)))
            await self._record(found.job_file.name, written, by)
        return lost

    async def _record(self, job_file: str, written: Sequence[Alteration], by: str | None) -> None:
        if by is not None:
            before, after = before_and_after(written)
            await self._audit.record(by, "apply", f"job file {job_file}", self._now(), before, after)

    async def _put_in_force(self, found: Difference, since: datetime) -> bool:
        """Record the version in force; False if another came into force since the difference was found."""
        job_file = found.job_file
        if found.stands is not None and found.stands.digest == job_file.digest():
            item = await self._store.get(JOB_FILES, job_file.name)
            return item is not None and item.version == found.version
        value = msgspec.json.encode(put_in_force(found.stands, job_file, since))
        return await self._store.put(JOB_FILES, job_file.name, value, expect=found.version) is not None

    async def _save(self, alterations: Sequence[Alteration], found: Difference, by: str | None) -> list[str]:
        now, job_file = self._now(), found.job_file.name
        wanted = [(each.name, change_of(each, job_file, self._ids.new, now, by)) for each in alterations]
        edits = [(name, change) for name, change in wanted if change is not None]
        lost = []
        for start in range(0, len(edits), _SLICE):
            part = edits[start : start + _SLICE]
            for (name, _), record in zip(part, await self._store.save([change for _, change in part]), strict=True):
                if record is None:
                    lost.append(name)
                else:
                    self._emit(JobSaved.of(record, "deployed"))
        return lost

    async def _remove(self, alterations: Sequence[Alteration]) -> list[str]:
        lost = []
        for each in alterations:
            assert each.before is not None
            if await self._store.remove(each.name, each.before.revision):
                self._emit(JobSaved.of(each.before, "removed"))
            else:
                lost.append(each.name)
        return lost

    async def _withdraw(self, found: Difference) -> list[str]:
        """If another version came into force meanwhile, take back what it does not have and could not see."""
        stands = _read(await self._store.get(JOB_FILES, found.job_file.name))
        if stands is None or stands.digest == found.job_file.digest():
            return []
        mine = [name for name in _names(found, AlterationKind.ADDED) if name not in stands.jobs]
        for record in await self._store.jobs(mine) if mine else []:
            if record.job_file == found.job_file.name:
                await self._store.remove(record.name, record.revision)
        return [found.job_file.name]


def _names(found: Difference, kind: AlterationKind) -> list[str]:
    return [each.name for each in found.of(kind)]


def _read(item: Item | None) -> InForce | None:
    return None if item is None else msgspec.json.decode(item.value, type=InForce)
