"""The versions of a job's definition: listing them, and going back to an earlier one.

A rollback is a new revision with an old definition, written like any other change: pauses, cursors and runs are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from duly.errors import ConfigurationError, InvalidSchedule, JobChanged, JobNotFound, shown
from duly.model import JobRecord, JobSpec, JobStatus, Origin, is_job_name, sanitize
from duly.model.definitions import KEPT_DEFINITIONS, PastDefinition, definitions_log
from duly.model.event import Emit, JobSaved
from duly.ports import Backend
from duly.rules import job_changes
from duly.rules.definition_words import FieldChange, field_changes
from duly.rules.definitions import Revision, revisions, version_at, versions
from duly.rules.schedules import Schedule, schedule_of
from duly.runtime.live_config import LiveConfig
from duly.scheduler.capability_checks import check_deliveries
from duly.scheduler.registry import Registry

_RACES = 20
_NAMED = 3

Seen = Callable[[JobSpec], bool]
Guard = Callable[[JobRecord], None]


class Rollback(Struct, frozen=True):
    """What a rollback changes: back `to` the definition of that revision, which is `revision` from now on.

    With `dry_run` nothing was written. `job_file` names the file that defines the job: if it is applied again, its
    definition counts again.
    """

    job: str
    to: int
    revision: int
    changes: tuple[FieldChange, ...]
    job_file: str | None = None
    dry_run: bool = False


def everything(_: JobSpec) -> bool:
    """All definitions may be seen."""
    return True


def unguarded(_: JobRecord) -> None:
    """A guard that lets everything pass."""


class JobHistory:
    """Belongs to one session on a store. `changed` is called after every write.

    `seen` says which definitions the caller may see; the others are treated as if they had not been kept.
    """

    def __init__(
        self,
        backend: Backend,
        registry: Registry,
        live: LiveConfig,
        now: Callable[[], datetime],
        emit: Emit,
        changed: Callable[[], None],
    ) -> None:
        self._backend = backend
        self._store = backend.store
        self._registry = registry
        self._live = live
        self._now = now
        self._emit = emit
        self._changed = changed

    async def revisions(self, name: str, seen: Seen = everything) -> list[Revision]:
        """The versions of a job that are kept, newest first. A removed job still has them."""
        record = await self._store.job(name) if is_job_name(name) else None
        if record is None:
            raise _absent(name)
        return revisions(await self._versions(record, seen))

    async def rollback(
        self,
        name: str,
        revision: int | None = None,
        *,
        by: str | None = None,
        dry_run: bool = False,
        guard: Guard = unguarded,
        seen: Seen = everything,
    ) -> Rollback:
        """Go back to the definition that was in force at a revision, or to the previous one.

        Raises `JobChanged` if live nodes define the job in their code, `ConfigurationError` if no such version is kept.
        """
        if revision is not None:
            sanitize.checked_whole("revision", revision, 1, 1 << 53)
        for _ in range(_RACES):
            record = await self._record(name)
            guard(record)
            target = _target(record, await self._versions(record, seen), revision)
            await self._check(record, target.spec)
            found = _outcome(record, target, dry_run=dry_run)
            schedule = self._schedule(record, target.spec)
            change = job_changes.deploy(record, target.spec, schedule, self._now(), None, by)
            if change is None or dry_run:
                return found
            [saved] = await self._store.save([change])
            if saved is not None:
                self._emit(JobSaved.of(saved, "rolled back"))
                self._changed()
                return replace(found, revision=saved.revision)
        raise JobChanged(f"job {shown(name)} keeps being changed by other processes: try again")

    async def _record(self, name: str) -> JobRecord:
        record = await self._store.job(name) if is_job_name(name) else None
        if record is None or record.status is JobStatus.REMOVED:
            raise _absent(name)
        return record

    async def _versions(self, record: JobRecord, seen: Seen) -> list[PastDefinition]:
        entries = await self._store.read(definitions_log(record.name), limit=KEPT_DEFINITIONS)
        present, *earlier = versions(record, [entry.value for entry in entries])
        return [present, *(each for each in earlier if seen(each.spec))]

    async def _check(self, record: JobRecord, spec: JobSpec) -> None:
        """Refuse a definition that would not last, or that this store cannot keep its promises for."""
        if record.origin is Origin.CODE:
            await self._refuse_live_code(record)
        if spec.policy.delivery is not record.spec.policy.delivery:
            await check_deliveries({spec.name: spec.policy.delivery}, self._backend, self._live.config)

    async def _refuse_live_code(self, record: JobRecord) -> None:
        nodes = await self._backend.coordinator.nodes()
        having = sorted(node.id for node in nodes if record.spec.handler in node.handlers)
        if having:
            named = ", ".join(having[:_NAMED]) + (f" and {len(having) - _NAMED} more" if len(having) > _NAMED else "")
            raise JobChanged(
                f"job {shown(record.name)} is defined by the code of live nodes ({named}), which would write its"
                " definition again at their next start: deploy the earlier code instead, or stop these nodes first"
            )

    def _schedule(self, record: JobRecord, spec: JobSpec) -> Schedule | None:
        try:
            return schedule_of(replace(record, spec=spec), self._registry.schedule_in_code)
        except InvalidSchedule as exc:
            raise ConfigurationError(f"job {shown(record.name)}: {exc}") from exc


def _target(record: JobRecord, known: list[PastDefinition], revision: int | None) -> PastDefinition:
    found = version_at(known, revision)
    if found is not None:
        return found
    kept = ", ".join(str(each.revision) for each in reversed(known))
    if revision is None:
        raise ConfigurationError(f"job {shown(record.name)} has no earlier version: it is at revision {kept}")
    raise ConfigurationError(
        f"job {shown(record.name)} has no version of revision {revision}: those that are kept are {kept}"
    )


def _outcome(record: JobRecord, target: PastDefinition, *, dry_run: bool) -> Rollback:
    changes = () if record.damage is not None else tuple(field_changes(record.spec, target.spec))
    return Rollback(record.name, target.revision, record.revision, changes, record.job_file, dry_run)


def _absent(name: str) -> JobNotFound:
    return JobNotFound(f"there is no job {shown(name)}: register it, or see `duly jobs`")
