"""Definitions and planning: saving and removing jobs, finding those to plan, and firing.

The row of a job in `plans` is its lock: a change of the job or of its cursor locks it first, in the order of names.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.codec import Record, in_shard, job_text, micros, read_job
from duly.backends.sql import values
from duly.backends.sql.moves import by_seqs, end, forget, read_records
from duly.backends.sql.notify import WORK
from duly.backends.sql.unit import EVERYTHING, Column, Insert, Row, Unit, Update, columns
from duly.model import (
    Cause,
    Fired,
    Firing,
    JobChange,
    JobRecord,
    JobStatus,
    State,
    Waiting,
    from_micros,
    recurring_id,
    to_micros,
)
from duly.model.definitions import KEPT_DEFINITIONS, definitions_log
from duly.model.job import DEPLOYED, JOB_SHARD
from duly.rules.admission import REMOVED

_AFTER_JOB_SHARDS = JOB_SHARD[:-1] + chr(ord(JOB_SHARD[-1]) + 1)  # greater than the names of all shards of single jobs
_BLOCKING = frozenset({JobStatus.PAUSED, JobStatus.REMOVED})

_JOB = """
SELECT j.record, p.cursor, p.plan_at, p.planned, p.name, p.uid, p.revision, p.shard
FROM {ns}.jobs AS j {with_plan}
"""
_JOB_NAMED = _JOB + "WHERE j.name = $1"
_JOBS = _JOB + "WHERE j.name > $1 ORDER BY j.name LIMIT $2"
_JOBS_NAMED = _JOB + "WHERE j.name > $1 AND j.name = ANY($3::text[]) ORDER BY j.name LIMIT $2"
# The handlers of jobs, found by a loose index scan.
_HANDLERS = """
WITH RECURSIVE handlers (handler) AS (
    SELECT (SELECT {needed_handler} FROM {ns}.jobs WHERE {is_retired} = $1 AND {needed_handler} > '' ORDER BY 1 LIMIT 1)
    UNION ALL
    SELECT (
        SELECT {needed_handler} FROM {ns}.jobs WHERE {is_retired} = $1 AND {needed_handler} > handlers.handler
        ORDER BY 1 LIMIT 1
    )
    FROM handlers WHERE handlers.handler IS NOT NULL
)
SELECT handler FROM handlers WHERE handler IS NOT NULL
"""
_JOBS_OF = """
SELECT name FROM {ns}.jobs WHERE {is_retired} = $1 AND {needed_handler} = $2 AND name > $3 ORDER BY name LIMIT $4
"""
_LOCK_PLAN = "SELECT 1 FROM {ns}.plans WHERE name = $1 FOR UPDATE"

_PLAN = columns(
    name="text",
    uid="text",
    revision="bigint",
    shard="text",
    cursor="bigint",
    plan_at="bigint",
    planned="bigint",
    plannable="bool",
)
_NEW_PLANS = Insert("plans", _PLAN, "ON CONFLICT (name) DO NOTHING RETURNING name")
_KEEP_PLANS = Insert(
    "plans",
    _PLAN,
    """
ON CONFLICT (name) DO UPDATE SET
    uid = excluded.uid, revision = excluded.revision, shard = excluded.shard, cursor = excluded.cursor,
    plan_at = excluded.plan_at, planned = excluded.planned, plannable = excluded.plannable
RETURNING name
""",
)
_KEEP = Insert(
    "jobs",
    columns(name="text", blocked="bool", record="text"),
    "ON CONFLICT (name) DO UPDATE SET blocked = excluded.blocked, record = excluded.record",
)
_FORGET = tuple(f"DELETE FROM {{ns}}.{table} WHERE name = $1" for table in ("jobs", "plans"))

# A job's recurring runs that are due after an instant: their ids sort like their instants.
_LATER = "SELECT {run} FROM {ns}.runs AS r {standing} WHERE r.id > $1 AND r.id < $2 ORDER BY r.id"

_EPOCH = "SELECT epoch FROM {ns}.epochs WHERE shard = $1 FOR SHARE"
_INSTALL = """
INSERT INTO {ns}.epochs AS e (shard, epoch) VALUES ($1, greatest($2::bigint, 1))
ON CONFLICT (shard) DO UPDATE SET epoch = greatest(e.epoch + 1, $2::bigint)
RETURNING epoch
"""

# The jobs of a shard whose time to plan has come, unless the store is frozen ('*' is paused), then the next one; and
# what time it is.
_DUE = """
WITH {clock}
SELECT j.record, p.cursor, p.plan_at, p.planned, p.name, p.uid, p.revision, p.shard, (SELECT now FROM clock)
FROM (
    SELECT * FROM (
        SELECT * FROM {ns}.plans
        WHERE shard = $2 AND {plannable} AND plan_at IS NOT NULL AND plan_at <= (SELECT now FROM clock)
            AND NOT EXISTS (SELECT 1 FROM {ns}.queues WHERE name = '*' AND {paused})
        ORDER BY shard, plan_at, name LIMIT $3
    ) AS come
    UNION ALL
    SELECT * FROM (
        SELECT * FROM {ns}.plans
        WHERE shard = $2 AND {plannable} AND plan_at IS NOT NULL AND plan_at > (SELECT now FROM clock)
        ORDER BY shard, plan_at, name LIMIT 1
    ) AS next
) AS p
INNER JOIN {ns}.jobs AS j ON j.name = p.name
ORDER BY p.plan_at, p.name
"""

# The shards of plannable jobs, found by a loose index scan; those of single jobs, of which each has its own,
# count as one.
_SHARDS = """
WITH RECURSIVE shards (shard) AS (
    SELECT (SELECT min(shard) FROM {ns}.plans WHERE {plannable} AND plan_at IS NOT NULL)
    UNION ALL
    SELECT (
        SELECT min(shard) FROM {ns}.plans
        WHERE {plannable} AND plan_at IS NOT NULL
            AND shard > CASE WHEN shards.shard >= $1 AND shards.shard < $2 THEN $2 ELSE shards.shard END
    )
    FROM shards WHERE shards.shard IS NOT NULL
)
SELECT shard FROM shards WHERE shard IS NOT NULL
"""
_PLANS_OF = """
SELECT plan_at, name FROM {ns}.plans WHERE shard = $1 AND {plannable} AND plan_at IS NOT NULL
ORDER BY plan_at, name LIMIT $2
"""
_PLANS_OF_JOBS = """
SELECT plan_at, name FROM {ns}.plans WHERE shard >= $1 AND shard < $2 AND {plannable} AND plan_at IS NOT NULL
ORDER BY plan_at, name LIMIT $3
"""

_STANDING = """
SELECT name, uid, revision, cursor, plannable, planned, shard FROM {ns}.plans
WHERE name = ANY($1::text[]) ORDER BY name FOR UPDATE
"""
_ADVANCE = Update(
    "plans",
    (Column("name", "text"),),
    columns(cursor="bigint", plan_at="bigint", planned="bigint", plannable="bool"),
    answers=False,
)
_MOVE = Update("plans", (Column("name", "text"),), columns(shard="text"), answers=False)


# --- records


async def find_job(unit: Unit, name: str) -> JobRecord | None:
    """The record of that name."""
    row = await unit.one(_JOB_NAMED, name)
    return None if row is None else read_job(row)


async def find_jobs(unit: Unit, names: Sequence[str] | None, after: str, limit: int | None) -> list[JobRecord]:
    """All records, or those of the given names, by name; a slice of them."""
    most = EVERYTHING if limit is None else limit
    if names is None:
        rows = await unit.all(_JOBS, after, most)
    else:
        rows = await unit.all(_JOBS_NAMED, after, most, list(names))
    return [read_job(row) for row in rows]


async def handlers(unit: Unit, retired: bool) -> set[str]:
    """The handlers of jobs that need one."""
    return {row[0] for row in await unit.all(_HANDLERS, retired)}


async def jobs_of(unit: Unit, handler: str, retired: bool, after: str, limit: int) -> list[JobRecord]:
    """A slice of the jobs of a handler, by name."""
    names = [row[0] for row in await unit.all(_JOBS_OF, retired, handler, after, limit)]
    return await find_jobs(unit, names, "", limit) if names else []


async def next_plans(unit: Unit, limit: int) -> list[tuple[str, datetime]]:
    """The plannable jobs of all shards that are planned first."""
    found: list[Row] = []
    for (shard,) in await unit.all(_SHARDS, JOB_SHARD, _AFTER_JOB_SHARDS):
        if shard.startswith(JOB_SHARD):
            found += await unit.all(_PLANS_OF_JOBS, JOB_SHARD, _AFTER_JOB_SHARDS, limit)
        else:
            found += await unit.all(_PLANS_OF, shard, limit)
    return [(name, from_micros(plan_at)) for plan_at, name in heapq.nsmallest(limit, map(tuple, found))]


async def keep(unit: Unit, records: Sequence[JobRecord], *, new: bool) -> set[str]:
    """Write records; returns the names of those written. With `new`, only those that have no record yet."""
    plans = [
        (
            record.name,
            record.uid,
            record.revision,
            record.shard,
            micros(record.cursor),
            micros(record.plan_at),
            record.planned,
            record.plannable,
        )
        for record in records
    ]
    names = {row[0] for row in await unit.insert(_NEW_PLANS if new else _KEEP_PLANS, plans)}
    kept = [record for record in records if record.name in names]
    await unit.insert(_KEEP, [(each.name, each.status in _BLOCKING, job_text(each)) for each in kept])
    return names


# --- changing


def is_creation(change: JobChange) -> bool:
    """Whether a change only creates a job with a new name: many of those are written together."""
    return change.expect is None and not change.ledger


async def create(unit: Unit, changes: Sequence[JobChange]) -> list[JobRecord | None]:
    """Make jobs of new names."""
    by_name = {change.record.name: change.record for change in reversed(changes)}
    created = await keep(unit, [by_name[name] for name in sorted(by_name)], new=True)
    unit.rings |= WORK if created else 0
    answers: list[JobRecord | None] = []
    for change in changes:
        answers.append(change.record if change.record.name in created else None)
        created.discard(change.record.name)
    return answers


async def change(unit: Unit, change: JobChange, now: int) -> JobRecord | None:
    """Apply one change if its `expect` is the stored revision."""
    record = change.record
    stored = await _locked(unit, record.name)
    if (stored.revision if stored else None) != change.expect:
        return None
    if stored is not None:
        record = in_shard(replace(record, planned=stored.planned), stored.shard)
        if not change.moves_cursor:
            record = replace(record, cursor=stored.cursor, plan_at=stored.plan_at)
        record = await _clear(unit, record, change.waiting, now)
    if not await keep(unit, [record], new=stored is None):
        return None
    if change.ledger:
        await unit.dialect.add(unit, change.ledger, now)
    if change.redefines:
        await values.put(unit, *DEPLOYED, b"", None)
    if change.replaces is not None:
        await values.append(unit, definitions_log(record.name), [change.replaces], None, KEPT_DEFINITIONS)
    unit.rings |= WORK
    return record


async def _locked(unit: Unit, name: str) -> JobRecord | None:
    """The record of that name, locked against other changes."""
    await unit.run(_LOCK_PLAN, name)
    return await find_job(unit, name)


async def remove(unit: Unit, name: str, expect: int, now: int) -> bool:
    """Delete the record of that revision, with its waiting runs."""
    record = await _locked(unit, name)
    if record is None or record.revision != expect:
        return False
    await _clear(unit, record, Waiting.CANCEL, now)
    for sql in _FORGET:
        await unit.run(sql, name)
    await values.delete_log(unit, definitions_log(name))
    return True


async def _clear(unit: Unit, record: JobRecord, waiting: Waiting, now: int) -> JobRecord:
    """Treat the job's waiting runs as asked for; the record with its cursor and count as they are afterwards."""
    if waiting is Waiting.KEEP:
        return record
    early = await _not_yet_due(unit, record, now)
    of_job = await waiting_of(unit, record.name) if waiting is Waiting.CANCEL else []
    await unit.locks.many(len(early) + len(of_job))
    await unit.locks.groups({each.run.group for each in early} | {group for _, group in of_job})
    forgotten = await forget(unit, early)
    await _cancel(unit, [seq for seq, _ in of_job], now)
    record = replace(record, planned=record.planned - len(forgotten))
    if waiting is Waiting.REWIND and forgotten:
        earliest = min(each.run.due for each in forgotten)
        return replace(record, cursor=earliest, plan_at=from_micros(now))
    return record


async def waiting_of(unit: Unit, name: str) -> list[tuple[int, str | None]]:
    """The numbers and groups of a job's waiting runs, in the order of their creation."""
    return [(row[0], row[1]) for row in await unit.all("{waiting_of}", name)]


async def cancel_some(unit: Unit, name: str, expect: int, some: Sequence[tuple[int, str | None]], now: int) -> bool:
    """Cancel some of the waiting runs of a job that is about to be removed; False if it has changed meanwhile."""
    record = await _locked(unit, name)
    if record is None or record.revision != expect:
        return False
    await unit.locks.many(len(some))
    await unit.locks.groups({group for _, group in some})
    await _cancel(unit, [seq for seq, _ in some], now)
    return True


async def _cancel(unit: Unit, seqs: Sequence[int], now: int) -> None:
    """Cancel those of these runs that still wait."""
    records = await by_seqs(unit, seqs)
    await end(unit, [record for record in records if record.run.state is State.PENDING], State.CANCELLED, REMOVED, now)


async def _not_yet_due(unit: Unit, job: JobRecord, now: int) -> list[Record]:
    """The job's recurring runs that are pending, never attempted, and due after now."""
    rows = await unit.all(_LATER, recurring_id(job.uid, from_micros(now)), f"{job.uid}.")
    return [record for record in read_records(rows, now) if _is_untouched(record)]


def _is_untouched(record: Record) -> bool:
    run = record.run
    never = not run.member and not run.failures and not run.losses
    return run.state is State.PENDING and never and run.cause is Cause.SCHEDULE


# --- planning


async def install(unit: Unit, shard: str, proposed: int) -> int:
    """Install a new leader's epoch."""
    row = await unit.one(_INSTALL, shard, proposed)
    assert row is not None
    return int(row[0])


async def due(unit: Unit, shard: str, limit: int, now: int | None) -> tuple[list[JobRecord], int | None]:
    """The shard's records whose time to plan has come, and the time of the next one."""
    rows = await unit.all(_DUE, now, shard, limit + 1)
    come = [row for row in rows if row[2] <= row[-1]][:limit]
    return [read_job(row) for row in come], rows[len(come)][2] if len(rows) > len(come) else None


class _Standing(Struct):
    """What a firing is compared with, and changes."""

    uid: str
    revision: int
    cursor: int | None
    plannable: bool
    planned: int
    shard: str
    plan_at: int | None = None
    touched: bool = False
    moved: bool = False


async def fire(unit: Unit, firings: Sequence[Firing], shard: str, epoch: int, now: int) -> list[Fired]:
    """Advance cursors and insert runs."""
    installed = await unit.one(_EPOCH, shard)
    if installed is None or installed[0] != epoch:
        return [Fired.STALE_EPOCH] * len(firings)
    rows = await unit.all(_STANDING, sorted({firing.name for firing in firings}))
    standing = {row[0]: _Standing(*tuple(row)[1:]) for row in rows}
    applied = [_advance(standing.get(firing.name), firing) for firing in firings]
    await _insert(unit, [firing for firing, good in zip(firings, applied, strict=True) if good], standing, now)
    moved = ((name, plan) for name, plan in standing.items() if plan.touched)
    plans = [(name, plan.cursor, plan.plan_at, plan.planned, plan.plannable) for name, plan in moved]
    await unit.change(_ADVANCE, plans)
    homes = [(name, plan.shard) for name, plan in standing.items() if plan.moved]
    if homes:  # happens once for most jobs: not worth a column in every firing
        await unit.change(_MOVE, homes)
    return [Fired.APPLIED if good else Fired.STALE_JOB for good in applied]


def _advance(plan: _Standing | None, firing: Firing) -> bool:
    """Move a job's cursor if it stands where the firing expects it."""
    if plan is None or plan.uid != firing.uid or plan.revision != firing.revision:
        return False
    if not plan.plannable or plan.cursor != to_micros(firing.expect):
        return False
    plan.cursor = micros(firing.cursor)
    plan.plan_at = micros(firing.plan_at)
    plan.plannable = firing.cursor is not None
    plan.touched = True
    if firing.move_to is not None and not plan.shard.startswith(JOB_SHARD):
        plan.shard, plan.moved = firing.move_to, True
    return True


async def _insert(unit: Unit, firings: Sequence[Firing], standing: dict[str, _Standing], now: int) -> None:
    """Insert the runs of these firings where their id is new, and count them."""
    runs = [(firing.name, run) for firing in firings for run in firing.runs]
    answers = await unit.dialect.add(unit, [run for _, run in runs], now) if runs else []
    for (name, run), put in zip(runs, answers, strict=True):
        standing[name].planned += put.created and run.state is not State.SKIPPED
