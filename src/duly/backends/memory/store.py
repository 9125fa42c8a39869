"""The store port on memory."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from operator import itemgetter
from typing import Any, NoReturn

from msgspec.structs import replace

from duly.backends import line_chunks
from duly.backends.codec import in_shard, kept_job, kept_progress
from duly.backends.cursors import cursor_of, place_in
from duly.backends.memory.contents import Contents
from duly.backends.memory.transfer import MemoryTransfer
from duly.backends.search import Descending
from duly.errors import BackendError
from duly.model import (
    COUNTED,
    FINAL,
    SCAN,
    WAITING,
    Attempt,
    CancelReply,
    Cause,
    Claim,
    Counts,
    Depth,
    Entry,
    Fired,
    Firing,
    Item,
    JobChange,
    JobRecord,
    JobStatistics,
    LogLine,
    Page,
    RedriveReply,
    Report,
    Run,
    RunOrder,
    RunQuery,
    State,
    Waiting,
    from_micros,
    recurring_id,
    seconds_between,
    to_micros,
)
from duly.model.definitions import KEPT_DEFINITIONS, definitions_log
from duly.model.holds import UNPLACED
from duly.model.job import DEPLOYED
from duly.ports import Transaction
from duly.rules.admission import REMOVED
from duly.rules.history import history_of
from duly.rules.lifecycle import REDRIVABLE
from duly.rules.statistics import combine
from duly.rules.token_bucket import refill


class MemoryStore(MemoryTransfer):
    """Every method except `finished` is atomic, because it runs to its end without yielding."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._runs = contents.runs

    # --- definitions and planning

    async def save(self, changes: Sequence[JobChange], *, now: datetime | None = None) -> list[JobRecord | None]:
        at = now or self._contents.clock.now()
        saved = [self._save(change, at) for change in changes]
        self._contents.notifier.ring()
        return saved

    def _save(self, change: JobChange, now: datetime) -> JobRecord | None:
        stored = self._contents.jobs.get(change.record.name)
        if (stored.revision if stored else None) != change.expect:
            return None
        record = kept_job(change.record)
        if stored is not None:
            record = in_shard(replace(record, planned=stored.planned), stored.shard)
            if not change.moves_cursor:
                record = replace(record, cursor=stored.cursor, plan_at=stored.plan_at)
            record = self._clear(record, change.waiting, now)
        self._contents.keep(record)
        for run in change.ledger:
            self._insert(run, now)
        if change.redefines:
            present = self._contents.items.get(DEPLOYED)
            self._contents.items[DEPLOYED] = Item(DEPLOYED[1], b"", present.version + 1 if present else 1)
        if change.replaces is not None:
            self._append(definitions_log(record.name), [change.replaces], KEPT_DEFINITIONS)
        return record

    def _clear(self, record: JobRecord, waiting: Waiting, now: datetime) -> JobRecord:
        """Treat the job's waiting runs as requested; returns the record with its new cursor and count."""
        if waiting is Waiting.KEEP:
            return record
        runs = self._runs.waiting_of(record.name)
        early = [run for run in runs if _not_yet_due(run, record.uid, now)]
        for run in early:
            self._runs.delete(run)
        if waiting is Waiting.CANCEL:
            for run in runs:
                if run.id in self._runs.by_id:
                    self._runs.end(self._runs.by_id[run.id], State.CANCELLED, REMOVED, now)
        record = replace(record, planned=record.planned - len(early))
        if waiting is Waiting.REWIND and early:
            return replace(record, cursor=min(run.due for run in early), plan_at=now)
        return record

    def _insert(self, run: Run, now: datetime) -> bool:
        return self._runs.put(run, now).created

    async def remove(self, name: str, expect: int, *, now: datetime | None = None) -> bool:
        record = self._contents.jobs.get(name)
        if record is None or record.revision != expect:
            return False
        self._clear(record, Waiting.CANCEL, now or self._contents.clock.now())
        self._contents.forget(record)
        self._contents.logs.pop(definitions_log(name), None)
        return True

    async def job(self, name: str) -> JobRecord | None:
        return self._contents.jobs.get(name)

    async def jobs(
        self, names: Sequence[str] | None = None, *, after: str = "", limit: int | None = None
    ) -> list[JobRecord]:
        wanted = self._contents.jobs if names is None else set(names) & self._contents.jobs.keys()
        chosen = sorted(name for name in wanted if name > after)
        return [self._contents.jobs[name] for name in chosen[:limit]]

    async def handlers(self, *, retired: bool) -> set[str]:
        return {record.spec.handler for record in self._contents.jobs.values() if _needs_handler(record, retired)}

    async def jobs_of(self, handler: str, *, retired: bool, after: str = "", limit: int) -> list[JobRecord]:
        records = await self.jobs(after=after)
        found = [each for each in records if each.spec.handler == handler and _needs_handler(each, retired)]
        return found[:limit]

    async def reindex(self, cursor: str = "") -> str | None:
        return None

    async def next_plans(self, limit: int) -> list[tuple[str, datetime]]:
        jobs = self._contents.jobs.values()
        planned = [(each.plan_at, each.name) for each in jobs if each.plannable and each.plan_at is not None]
        return [(name, plan_at) for plan_at, name in heapq.nsmallest(limit, planned)]

    async def install(self, shard: str, proposed: int) -> int:
        epoch = max(proposed, self._contents.epochs.get(shard, 0) + 1)
        self._contents.epochs[shard] = epoch
        return epoch

    async def due(
        self, shard: str, limit: int, *, now: datetime | None = None
    ) -> tuple[list[JobRecord], datetime | None]:
        return self._contents.due(shard, limit, now or self._contents.clock.now())

    async def fire(
        self, firings: Sequence[Firing], shard: str, epoch: int, *, now: datetime | None = None
    ) -> list[Fired]:
        if self._contents.epochs.get(shard) != epoch:
            return [Fired.STALE_EPOCH] * len(firings)
        at = now or self._contents.clock.now()
        fired = [self._fire(firing, at) for firing in firings]
        self._contents.notifier.ring()
        return fired

    def _fire(self, firing: Firing, now: datetime) -> Fired:
        record = self._contents.jobs.get(firing.name)
        if record is None or record.uid != firing.uid or record.revision != firing.revision:
            return Fired.STALE_JOB
        if record.cursor != firing.expect or not record.plannable:
            return Fired.STALE_JOB
        inserted = [run for run in firing.runs if self._insert(run, now)]
        planned = record.planned + sum(run.state is not State.SKIPPED for run in inserted)
        moved = in_shard(record, firing.move_to or record.shard)
        self._contents.keep(replace(moved, cursor=firing.cursor, plan_at=firing.plan_at, planned=planned))
        return Fired.APPLIED

    # --- records and history

    async def run(self, run_id: str, *, now: datetime | None = None) -> Run | None:
        run = self._runs.by_id.get(run_id)
        return None if run is None else _as_it_stands(run, now or self._contents.clock.now())

    async def runs(
        self, query: RunQuery, limit: int, cursor: str | None = None, *, scan: int = SCAN, now: datetime | None = None
    ) -> Page:
        at = now or self._contents.clock.now()
        after = None if cursor is None else _place(cursor, query.order)
        standing = [_as_it_stands(run, at) for run in self._runs.by_id.values()]
        listed = [(_key(run, query.order), run) for run in standing if run.state in query.listed]
        left = sorted((entry for entry in listed if after is None or entry[0] > after), key=itemgetter(0))
        found = [(key, run) for key, run in left[: max(1, scan)] if query.matches(run, at)]
        shown = [run for _, run in found[:limit]]
        if len(found) > limit:
            return Page(shown, _mark(found[limit - 1][0], query.order) if limit > 0 else None)
        if len(left) <= max(1, scan):
            return Page(shown)
        last, _ = left[max(1, scan) - 1]
        reached = last[0] if query.order is RunOrder.READY else -last[0]
        return Page(shown, _mark(last, query.order), from_micros(reached), max(1, scan))

    async def upcoming(self, limit: int, job: str | None = None, *, now: datetime | None = None) -> list[Run]:
        at = now or self._contents.clock.now()
        waiting = [run for run in self._runs.by_id.values() if run.state in WAITING and run.hold in (None, UNPLACED)]
        chosen = [run for run in waiting if job is None or run.job == job]
        return [_as_it_stands(run, at) for run in sorted(chosen, key=lambda run: (run.ready_at, run.id))[:limit]]

    async def next_runs(self, jobs: Sequence[str] | None = None, *, now: datetime | None = None) -> dict[str, datetime]:
        first: dict[str, datetime] = {}
        for run in self._runs.by_id.values():
            if run.state in WAITING and run.hold in (None, UNPLACED) and (jobs is None or run.job in jobs):
                first[run.job] = min(run.ready_at, first.get(run.job, run.ready_at))
        return first

    async def covering(self, uid: str, at: datetime) -> Run | None:
        run = self._runs.by_id.get(recurring_id(uid, at))
        if run is not None:
            return run
        ranges = (run for run in self._runs.by_id.values() if run.uid == uid and run.until is not None)
        return next((run for run in ranges if run.until is not None and run.due <= at <= run.until), None)

    async def ledger(
        self,
        uid: str,
        start: datetime,
        until: datetime,
        limit: int,
        expected: Sequence[datetime] = (),
        *,
        now: datetime | None = None,
    ) -> list[Run]:
        at = now or self._contents.clock.now()
        of_job = (run for run in self._runs.by_id.values() if run.uid == uid and run.id == recurring_id(uid, run.due))
        found = [run for run in of_job if run.due <= until and (run.until or run.due) >= start]
        return [_as_it_stands(run, at) for run in sorted(found, key=lambda run: run.due)[:limit]]

    async def attempts(self, run_id: str) -> list[Attempt]:
        return history_of(self._runs.by_id.get(run_id), self._runs.attempts.get(run_id, ()))

    async def statistics(self, jobs: Sequence[str] | None = None) -> dict[str, JobStatistics]:
        parts: defaultdict[str, list[JobStatistics]] = defaultdict(list)
        for (job, _node), counted in self._contents.statistics.items():
            if jobs is None or job in jobs:
                parts[job].append(counted)
        return {job: combine(of_nodes) for job, of_nodes in parts.items()}

    async def counts(self, *, scan: int = COUNTED, now: datetime | None = None) -> Counts:
        at = now or self._contents.clock.now()
        states = dict.fromkeys(State, 0) | {state: self._runs.ended[state] for state in FINAL}
        queues: dict[str, Depth] = {queue: Depth(paused=True) for queue in self._contents.paused_queues}
        for run in self._runs.by_id.values():
            if run.final:
                continue
            state = _as_it_stands(run, at).state
            states[state] += 1
            queues[run.queue] = _deepen(queues.get(run.queue, Depth()), run, state)
        return Counts(states, queues)

    async def finished(self, run_ids: Sequence[str], timeout: float) -> list[Run]:
        started = self._contents.clock.monotonic()
        heard, over = self._contents.notifier.rings, False
        while True:
            runs = [self._runs.by_id.get(run_id) for run_id in run_ids]
            ended = [run for run in runs if run is not None and run.final]
            left = timeout - (self._contents.clock.monotonic() - started)
            if ended or None in runs or left <= 0 or over:
                return ended
            rings = await self._contents.notifier.wait(heard, left)
            # No notification: the wait timed out, even if by the clock a fraction too small to wait for is left.
            heard, over = rings, rings == heard

    async def cancel(
        self, run_ids: Sequence[str], reason: str | None = None, *, now: datetime | None = None
    ) -> list[CancelReply]:
        at = now or self._contents.clock.now()
        replies = [self._cancel(run_id, reason, at) for run_id in run_ids]
        self._contents.notifier.ring()
        return replies

    def _cancel(self, run_id: str, reason: str | None, now: datetime) -> CancelReply:
        run = self._runs.by_id.get(run_id)
        if run is None:
            return CancelReply.UNKNOWN
        if run.final:
            return CancelReply.TOO_LATE
        if run.state is State.RUNNING:
            self._runs.save(replace(run, cancelling=True, reason=reason))
            return CancelReply.REQUESTED
        self._runs.end(run, State.CANCELLED, reason, now)
        return CancelReply.DONE

    async def redrive(
        self, run_ids: Sequence[str], *, payload: bytes | None = None, now: datetime | None = None
    ) -> list[RedriveReply]:
        at = now or self._contents.clock.now()
        replies = [self._redrive(run_id, payload, at) for run_id in run_ids]
        self._contents.notifier.ring()
        return replies

    def _redrive(self, run_id: str, payload: bytes | None, now: datetime) -> RedriveReply:
        run = self._runs.by_id.get(run_id)
        if run is None:
            return RedriveReply.UNKNOWN
        if run.state not in REDRIVABLE:
            return RedriveReply.NOT_ENDED
        twin = self._runs.twin(run, now)
        if twin is not None and twin.id != run.id:
            return RedriveReply.DUPLICATE
        again = replace(
            run,
            state=State.PENDING if run.group is not None or run.assignable else State.QUEUED,
            hold=UNPLACED if run.assignable else None,
            assignee=None,
            payload=run.payload if payload is None else payload,
            ready_at=now,
            failures=0,
            losses=0,
            cancelling=False,
            reason=None,
            finished_at=None,
            start_by=None,
        )
        self._runs.save(again)
        return RedriveReply.DONE

    async def backfill(self, runs: Sequence[Run], *, now: datetime | None = None) -> list[bool]:
        at = now or self._contents.clock.now()
        for run in runs:
            present = self._runs.by_id.get(run.id)
            if present is not None and present.state is State.SKIPPED:
                self._runs.delete(present)
        added = [self._insert(run, at) for run in runs]
        self._contents.notifier.ring()
        return added

    async def purge(self, state: State, before: datetime | None, keep: int | None, limit: int) -> int:
        purged = 0
        while purged < limit and (run := self._runs.oldest_ended(state)) is not None:
            assert run.finished_at is not None
            too_old = before is not None and run.finished_at < before
            if not too_old and (keep is None or self._runs.kept[state] <= keep):
                break
            self._runs.delete(run)
            purged += 1
        return purged

    async def expire(self, limit: int, *, now: datetime | None = None) -> int:
        return self._runs.expire(limit, now or self._contents.clock.now())

    # --- logs of runs

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        return [self._report(report) for report in reports]

    def _report(self, report: Report) -> bool:
        run = self._runs.by_id.get(report.run_id)
        if run is None or run.fence != report.fence or run.state in WAITING:
            return False
        if report.progress is not None and run.state is State.RUNNING:
            self._runs.by_id[run.id] = replace(run, progress=kept_progress(report.progress))
        self._runs.append_lines(report)
        return True

    async def lines(
        self, run_id: str, after: int = 0, limit: int = 1_000, *, attempt: int | None = None
    ) -> list[LogLine]:
        return line_chunks.read(self._runs.logs.get(run_id, ()), after, limit, attempt)

    # --- queues

    async def pause(self, queue: str) -> bool:
        before = len(self._contents.paused_queues)
        self._contents.paused_queues.add(queue)
        return len(self._contents.paused_queues) > before

    async def resume(self, queue: str) -> bool:
        if queue not in self._contents.paused_queues:
            return False
        self._contents.paused_queues.remove(queue)
        self._contents.notifier.ring()
        return True

    async def paused(self) -> set[str]:
        return set(self._contents.paused_queues)

    # --- small things

    async def append(
        self, log: str, entries: Sequence[bytes], expect: int | None = None, keep: int | None = None
    ) -> int | None:
        kept = self._contents.logs[log]
        if expect is not None and expect != (kept[-1].sequence if kept else 0):
            return None
        return self._append(log, entries, keep)

    def _append(self, log: str, entries: Sequence[bytes], keep: int | None) -> int:
        kept = self._contents.logs[log]
        last = kept[-1].sequence if kept else 0
        at = self._contents.clock.now()
        kept.extend([Entry(number, at, value) for number, value in enumerate(entries, start=last + 1)])
        if keep is not None:
            del kept[:-keep]
        return last + len(entries)

    async def read(self, log: str, after: int = 0, limit: int = 100) -> list[Entry]:
        kept = self._contents.logs[log]
        gone = kept[0].sequence - 1 if kept else 0
        start = max(0, after - gone)
        return kept[start : start + limit]

    async def get(self, kind: str, key: str) -> Item | None:
        return self._contents.items.get((kind, key))

    async def put(self, kind: str, key: str, value: bytes | None, expect: int | None = None) -> Item | None:
        present = self._contents.items.get((kind, key))
        version = present.version if present else 0
        if expect is not None and expect != version:
            return None
        if value is None:
            self._contents.items.pop((kind, key), None)
            return None
        item = self._contents.items[kind, key] = Item(key, value, version + 1)
        return item

    async def items(self, kind: str) -> list[Item]:
        keys = sorted(key for key in self._contents.items if key[0] == kind)
        return [self._contents.items[key] for key in keys]

    async def take(
        self, bucket: str, tokens: float, rate: float, burst: float, *, now: datetime | None = None
    ) -> float:
        at = now or self._contents.clock.now()
        level, since = self._contents.buckets.get(bucket, (burst, at))
        wait, left = refill(level, seconds_between(since, at), tokens, rate, burst)
        self._contents.buckets[bucket] = (left, at)
        return wait

    # --- transactions

    def transaction(self, claim: Claim, *, timeout: float) -> AbstractAsyncContextManager[Transaction]:
        _no_transactions()

    def within(self, connection: Any) -> Transaction:
        _no_transactions()

    # --- housekeeping

    async def migrate(self) -> list[str]:
        return []

    async def time(self) -> datetime:
        return self._contents.clock.now()


def _no_transactions() -> NoReturn:
    raise BackendError("memory:// has no transactions: use sqlite:// or postgresql://")


def _needs_handler(record: JobRecord, retired: bool) -> bool:
    return record.needs_handler and (record.retired_at is not None) is retired


def _not_yet_due(run: Run, uid: str, now: datetime) -> bool:
    untouched = run.state is State.PENDING and run.failures == 0 and run.losses == 0
    return untouched and run.cause is Cause.SCHEDULE and run.uid == uid and run.due > now


def _as_it_stands(run: Run, now: datetime) -> Run:
    """A waiting run that is ready counts as queued, promoted or not."""
    if run.state in WAITING and run.hold is None:
        return replace(run, state=State.QUEUED if run.ready_at <= now else State.PENDING)
    return run


_Key = tuple[int, Descending | str]  # sorts as it is listed


def _key(run: Run, order: RunOrder) -> _Key:
    match order:
        case RunOrder.READY:
            return (to_micros(run.ready_at), run.id)
        case RunOrder.ENDED:
            assert run.finished_at is not None
            return (-to_micros(run.finished_at), Descending(run.id))
        case _:
            assert run.created_at is not None
            return (-to_micros(run.created_at), Descending(run.id))


def _mark(key: _Key, order: RunOrder) -> str:
    return cursor_of(key[0] if order is RunOrder.READY else -key[0], key[1])


def _place(cursor: str, order: RunOrder) -> _Key:
    """The values that a cursor encodes."""
    micros, run_id = place_in(cursor)
    return (micros, run_id) if order is RunOrder.READY else (-micros, Descending(run_id))


def _deepen(depth: Depth, run: Run, state: State) -> Depth:
    match state:
        case State.QUEUED:
            oldest = run.ready_at if depth.oldest is None else min(depth.oldest, run.ready_at)
            return replace(depth, queued=depth.queued + 1, oldest=oldest)
        case State.RUNNING:
            return replace(depth, running=depth.running + 1)
        case _:
            return replace(depth, pending=depth.pending + 1)
