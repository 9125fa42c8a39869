"""The store port on Redis: each verb one script, long ones in slices."""

from __future__ import annotations

import asyncio
import heapq
import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, NoReturn

from msgspec.structs import replace

from duly.backends.redis import listing, reporting
from duly.backends.redis.client import MAX_SLICE, RedisClient, slices_of
from duly.backends.redis.codec import (
    NUMBERS,
    STATES,
    BatchArguments,
    attempts_of,
    batch_arguments,
    decode_job,
    decode_jobs,
    encode,
    encode_job,
    instant_of,
    parse_queue_key,
    score_of,
)
from duly.backends.redis.connection import Argument
from duly.backends.redis.listing import decoded
from duly.backends.redis.moving.transfer import RedisTransfer
from duly.backends.redis.pubsub import MISSED, Listener
from duly.backends.redis.records import index_place, item_of, place_of, statistics_of
from duly.errors import BackendError, BackendUnavailable
from duly.model import (
    COUNTED,
    FINAL,
    SCAN,
    Attempt,
    CancelReply,
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
    RunQuery,
    State,
    Waiting,
    from_micros,
    recurring_id,
    to_micros,
)
from duly.ports import Transaction
from duly.rules.history import history_of

_CANCELS = (CancelReply.DONE, CancelReply.REQUESTED, CancelReply.TOO_LATE, CancelReply.UNKNOWN)
_REDRIVES = (RedriveReply.DONE, RedriveReply.NOT_ENDED, RedriveReply.DUPLICATE, RedriveReply.UNKNOWN)
_LAYOUT = b"1"
_ENDED = "ended"
_SAVE = 100
_FIRE = 1000
_NAMES = 1000
_SCANNED = 100
_HANDLERS = 500
_REINDEXED = 3
_TIME = struct.Struct(">q")
_COUNTED = 500


class RedisStore(RedisTransfer):
    """Jobs, runs and their history, logs and small values."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    # --- jobs and planning

    async def save(self, changes: Sequence[JobChange], *, now: datetime | None = None) -> list[JobRecord | None]:
        saved: list[JobRecord | None] = []
        for change in changes:
            if change.waiting is Waiting.CANCEL and change.expect is not None:
                await self._cancel_most(change.record.name, change.expect, now)
        for some in slices_of(changes, _SAVE):
            arguments = [argument for change in some for argument in change_arguments(change)]
            texts = await self._client.call_at(now, "save", *arguments)
            names = [change.record.name for change in some]
            saved += [decode_job(name, text) if text else None for name, text in zip(names, texts, strict=True)]
        return saved

    async def remove(self, name: str, expect: int, *, now: datetime | None = None) -> bool:
        await self._cancel_most(name, expect, now)
        return bool(await self._client.call_at(now, "remove", name, expect))

    async def _cancel_most(self, name: str, expect: int, now: datetime | None) -> None:
        """Cancel a job's waiting runs in slices before it is removed, so that removing it is a short script."""
        waiting = await self._client.on_key("SCARD", f"job:{name}")
        for _ in range(waiting // MAX_SLICE):
            if not await self._client.call_at(now, "cancel_some", name, expect, MAX_SLICE):
                break

    async def job(self, name: str) -> JobRecord | None:
        text = await self._client.on_key("HGET", "jobs", name)
        return None if text is None else decode_job(name, text)

    async def jobs(
        self, names: Sequence[str] | None = None, *, after: str = "", limit: int | None = None
    ) -> list[JobRecord]:
        if names is None:
            return await self._page(after, limit)
        wanted = sorted({name for name in names if name > after})
        records: list[JobRecord] = []
        for some in slices_of(wanted, _NAMES):
            if limit is not None and len(records) >= limit:
                break
            records += decode_jobs(some, await self._client.on_key("HMGET", "jobs", *some))
        return records[:limit]

    async def _page(self, after: str, limit: int | None) -> list[JobRecord]:
        records: list[JobRecord] = []
        while limit is None or len(records) < limit:
            wanted = _NAMES if limit is None else min(_NAMES, limit - len(records))
            names, texts = await self._from_index("job_page", after, wanted)
            records += decode_jobs(names, texts)
            if len(names) < wanted:
                break
            after = names[-1].decode()
        return records

    async def handlers(self, *, retired: bool) -> set[str]:
        found: set[str] = set()
        after = b""
        while some := await self._from_index("handlers_of_jobs", index_place("", retired), after, _HANDLERS):
            found.update(decoded(some))
            after = some[-1]
        return found

    async def jobs_of(self, handler: str, *, retired: bool, after: str = "", limit: int) -> list[JobRecord]:
        place, found = index_place(handler, retired), list[JobRecord]()
        while len(found) < limit:
            wanted = min(_NAMES, limit - len(found))
            names, texts = await self._from_index("jobs_of_handler", place, after, wanted)
            records = decode_jobs(names, texts)
            found += [record for record in records if place_of(record) == place]
            await self._index([record for record in records if place_of(record) != place], place)
            if len(names) < wanted:
                break
            after = names[-1].decode()
        return found

    async def _from_index(self, script: str, *arguments: str | bytes | int) -> Any:
        """What a script reads by the index of jobs, which is completed before if a process of 0.1.0 has left gaps."""
        for _ in range(_REINDEXED):
            found = await self._client.call(script, *arguments)
            if found is not None:
                return found
            cursor: str | None = ""
            while cursor is not None:
                cursor = await self.reindex(cursor)
        raise BackendUnavailable("a process of Duly 0.1.0 keeps adding jobs, so they cannot be listed: try again")

    async def reindex(self, cursor: str = "") -> str | None:
        part, _, position = cursor.partition(":")
        if part != "names":
            following, flat = await self._client.on_key("HSCAN", "jobs", position or "0", "COUNT", _SCANNED)
            await self._index(decode_jobs(flat[::2], flat[1::2]))
            return "names:" if following == b"0" else f"jobs:{following.decode()}"
        names = await self._client.on_key("ZRANGEBYLEX", "names", f"({position}", "+", "LIMIT", 0, _SCANNED)
        texts = await self._client.on_key("HMGET", "jobs", *names) if names else []
        gone = [name for name, text in zip(names, texts, strict=True) if text is None]
        if gone:
            await self._client.call("index_jobs", *[each for name in gone for each in (name, -1, "", "")])
        return f"names:{names[-1].decode()}" if len(names) == _SCANNED else None

    async def _index(self, records: Sequence[JobRecord], former: str = "") -> None:
        """Correct the index for these jobs, which are not at a place where the index had them."""
        for some in slices_of(records, _SCANNED):
            entries = [(each.name, each.revision, place_of(each), former) for each in some]
            await self._client.call("index_jobs", *[argument for entry in entries for argument in entry])

    async def next_plans(self, limit: int) -> list[tuple[str, datetime]]:
        shards = await self._client.call("next_plans", limit)
        plans = [(score_of(at), name) for flat in shards for name, at in zip(flat[::2], flat[1::2], strict=True)]
        return [(name.decode(), from_micros(at)) for at, name in heapq.nsmallest(limit, plans)]

    async def install(self, shard: str, proposed: int) -> int:
        epoch: int = await self._client.call("install_epoch", shard, proposed)
        return epoch

    async def due(
        self, shard: str, limit: int, *, now: datetime | None = None
    ) -> tuple[list[JobRecord], datetime | None]:
        names, texts, following = await self._client.call_at(now, "due", shard, limit)
        return decode_jobs(names, texts), None if following == b"" else instant_of(following)

    async def fire(
        self, firings: Sequence[Firing], shard: str, epoch: int, *, now: datetime | None = None
    ) -> list[Fired]:
        fired: list[Fired] = []
        for some in slices_by_runs(firings, _FIRE):
            results = await self._client.call_at(now, "fire", shard, epoch, *firing_arguments(some))
            if results == 0:
                fired += [Fired.STALE_EPOCH] * len(some)
            else:
                fired += [Fired.APPLIED if result == ord("1") else Fired.STALE_JOB for result in results]
        return fired

    # --- runs and their history

    async def run(self, run_id: str, *, now: datetime | None = None) -> Run | None:
        found = await listing.read_runs(self._client, [run_id], _micros(now))
        return found[0].run if found else None

    async def runs(
        self, query: RunQuery, limit: int, cursor: str | None = None, *, scan: int = SCAN, now: datetime | None = None
    ) -> Page:
        return await listing.page(self._client, query, limit, cursor, scan, _micros(now))

    async def upcoming(self, limit: int, job: str | None = None, *, now: datetime | None = None) -> list[Run]:
        return await listing.upcoming(self._client, limit, job, _micros(now))

    async def next_runs(self, jobs: Sequence[str] | None = None, *, now: datetime | None = None) -> dict[str, datetime]:
        if jobs is None:
            first = await listing.next_runs(self._client)
        else:
            first = await listing.next_runs_of(self._client, jobs)
        return {job: instant_of(ready) for job, ready in first.items()}

    async def covering(self, uid: str, at: datetime) -> Run | None:
        run = await self.run(recurring_id(uid, at))
        return run if run is not None else await listing.covering(self._client, uid, to_micros(at))

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
        return await listing.ledger(self._client, uid, start, until, limit, expected, _micros(now))

    async def attempts(self, run_id: str) -> list[Attempt]:
        text = await self._client.on_key("HGET", "attempts", run_id)
        return history_of(await self.run(run_id), () if text is None else attempts_of(text))

    async def statistics(self, jobs: Sequence[str] | None = None) -> dict[str, JobStatistics]:
        while await self._client.call("add_pending_counters", _COUNTED):
            pass
        counted: dict[str, bytes | None] = {}
        if jobs is None:
            cursor = b"0"
            while True:
                cursor, flat = await self._client.on_key("HSCAN", "statistics", cursor, "COUNT", _NAMES)
                counted |= {job.decode(): text for job, text in zip(flat[::2], flat[1::2], strict=True)}
                if cursor == b"0":
                    break
        else:
            texts = await self._client.on_key("HMGET", "statistics", *jobs) if jobs else []
            counted = dict(zip(jobs, texts, strict=True))
        return {job: statistics_of(text) for job, text in counted.items() if text is not None}

    async def counts(self, *, scan: int = COUNTED, now: datetime | None = None) -> Counts:
        totals, depths, queued, paused = await self._client.call_at(now, "counts")
        ended = {STATES[int(state)]: int(number) for state, number in zip(totals[::2], totals[1::2], strict=True)}
        queues: dict[str, Depth] = {queue.decode(): Depth(paused=True) for queue in paused}
        for name, number in zip(depths[::2], depths[1::2], strict=True):
            kind, queue = name[:1], name[1:].decode()
            changed = {"pending" if kind == b"w" else "running": int(number)}
            queues[queue] = replace(queues.get(queue, Depth()), **changed)
        for key, number, oldest in zip(queued[::3], queued[1::3], queued[2::3], strict=True):
            queue, *_ = parse_queue_key(key.decode())
            queues[queue] = _with_queued(queues.get(queue, Depth()), number, instant_of(oldest))
        states = {state: ended.get(state, 0) if state in FINAL else 0 for state in State}
        states[State.PENDING] = sum(depth.pending for depth in queues.values())
        states[State.QUEUED] = sum(depth.queued for depth in queues.values())
        states[State.RUNNING] = sum(depth.running for depth in queues.values())
        return Counts(states, queues)

    async def finished(self, run_ids: Sequence[str], timeout: float) -> list[Run]:
        deadline = asyncio.get_running_loop().time() + timeout
        ended, gone = await self._ended(run_ids)
        if not ended and not gone and run_ids and timeout > 0:
            async with self._client.listen(_ENDED) as listener:
                while True:
                    ended, gone = await self._ended(run_ids)
                    if ended or gone or not await _end_published(listener, run_ids, deadline):
                        break
        return [each.run for each in await listing.read_runs(self._client, decoded(ended), None)]

    async def _ended(self, run_ids: Sequence[str]) -> tuple[list[bytes], int]:
        """Which of these have ended, and whether one does not exist; if neither, the server will publish their end."""
        ended, gone = await self._client.call("await_end", encode(list(run_ids))) if run_ids else ([], 0)
        return ended, gone

    async def cancel(
        self, run_ids: Sequence[str], reason: str | None = None, *, now: datetime | None = None
    ) -> list[CancelReply]:
        replies: list[CancelReply] = []
        given = "" if reason is None else "1"
        for some in slices_of(run_ids):
            numbers = await self._client.call_at(now, "cancel", encode(list(some)), given, reason or "")
            replies += [_CANCELS[number] for number in numbers]
        return replies

    async def redrive(
        self, run_ids: Sequence[str], *, payload: bytes | None = None, now: datetime | None = None
    ) -> list[RedriveReply]:
        replies: list[RedriveReply] = []
        given = b"" if payload is None else encode(payload)
        for some in slices_of(run_ids):
            numbers = await self._client.call_at(now, "redrive", encode(list(some)), given)
            replies += [_REDRIVES[number] for number in numbers]
        return replies

    async def backfill(self, runs: Sequence[Run], *, now: datetime | None = None) -> list[bool]:
        refused = set(await self._client.call_at(now, "backfill", *batch_arguments(runs))) if runs else set()
        return [number not in refused for number in range(1, len(runs) + 1)]

    async def purge(self, state: State, before: datetime | None, keep: int | None, limit: int) -> int:
        bounds = (b"" if before is None else to_micros(before), "" if keep is None else keep)
        return await self._client.call_until_done("purge", NUMBERS[state], *bounds, limit=limit)

    async def expire(self, limit: int, *, now: datetime | None = None) -> int:
        return await self._client.call_until_done("expire_dedupe_keys", self._client.moment(now), limit=limit)

    # --- logs of runs

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        return await reporting.report(self._client, reports)

    async def lines(
        self, run_id: str, after: int = 0, limit: int = 1_000, *, attempt: int | None = None
    ) -> list[LogLine]:
        return await reporting.lines(self._client, run_id, after, limit, attempt)

    # --- queues

    async def pause(self, queue: str) -> bool:
        return bool(await self._client.on_key("SADD", "paused", queue))

    async def resume(self, queue: str) -> bool:
        return bool(await self._client.call("resume", queue))

    async def paused(self) -> set[str]:
        return set(decoded(await self._client.on_key("SMEMBERS", "paused")))

    # --- logs, values and token buckets

    async def append(
        self, log: str, entries: Sequence[bytes], expect: int | None = None, keep: int | None = None
    ) -> int | None:
        last: int | None = await self._client.call(
            "append_log", log, "" if expect is None else expect, "" if keep is None else keep, *entries
        )
        return last

    async def read(self, log: str, after: int = 0, limit: int = 100) -> list[Entry]:
        first, texts = await self._client.call("read_log", log, after, limit) if limit > 0 else (0, [])
        return [
            Entry(number, from_micros(_TIME.unpack_from(text)[0]), text[_TIME.size :])
            for number, text in enumerate(texts, first)
        ]

    async def get(self, kind: str, key: str) -> Item | None:
        text = await self._client.on_key("HGET", f"kind:{kind}", key)
        return None if text is None else item_of(key, text)

    async def put(self, kind: str, key: str, value: bytes | None, expect: int | None = None) -> Item | None:
        version = await self._client.call(
            "value_put", kind, key, "" if expect is None else expect, "0" if value is None else "1", value or b""
        )
        return None if version is None or value is None else Item(key, value, version)

    async def items(self, kind: str) -> list[Item]:
        flat = await self._client.on_key("HGETALL", f"kind:{kind}")
        found = [item_of(key.decode(), text) for key, text in zip(flat[::2], flat[1::2], strict=True)]
        return sorted(found, key=lambda item: item.key)

    async def take(
        self, bucket: str, tokens: float, rate: float, burst: float, *, now: datetime | None = None
    ) -> float:
        numbers = (repr(tokens), repr(rate), repr(burst))
        return float(await self._client.call_at(now, "take_tokens", bucket, *numbers))

    # --- transactions

    def transaction(self, claim: Claim, *, timeout: float) -> AbstractAsyncContextManager[Transaction]:
        _no_transactions()

    def within(self, connection: Any) -> Transaction:
        _no_transactions()

    # --- housekeeping

    async def migrate(self) -> list[str]:
        layout = await self._client.call("migrate", _LAYOUT)
        if layout != _LAYOUT:
            raise BackendError(
                f"{self._client.settings.safe_url} has keys of layout {layout.decode()} in namespace"
                f" {self._client.namespace!r}, but this version of Duly knows layout {_LAYOUT.decode()}: use a version"
                " of Duly that knows it, or another namespace"
            )
        return []

    async def time(self) -> datetime:
        seconds, fraction = await self._client.command("TIME")
        return from_micros(int(seconds) * 1_000_000 + int(fraction))


async def _end_published(listener: Listener, run_ids: Sequence[str], deadline: float) -> bool:
    """Wait until the end of one of these runs is published, or may have been; False if the deadline has passed."""
    loop, wanted = asyncio.get_running_loop(), {run_id.encode() for run_id in run_ids}
    while (left := deadline - loop.time()) > 0:
        messages = await listener.wait(left)
        if any(message == MISSED or not wanted.isdisjoint(message.split()) for message in messages):
            return True
    return False


def _micros(now: datetime | None) -> int | None:
    return None if now is None else to_micros(now)


def _no_transactions() -> NoReturn:
    raise BackendError("redis:// has no transactions: use sqlite:// or postgresql://")


def _with_queued(depth: Depth, number: int, oldest: datetime) -> Depth:
    """The depth of a queue in which this number of the pending runs turned out to be queued."""
    first = oldest if depth.oldest is None else min(depth.oldest, oldest)
    return replace(depth, queued=depth.queued + number, pending=depth.pending - number, oldest=first)


def change_arguments(change: JobChange) -> tuple[Argument, ...]:
    """One change as arguments of `save`."""
    return (
        change.record.name,
        "" if change.expect is None else change.expect,
        "1" if change.moves_cursor else "",
        change.waiting.value,
        encode_job(change.record),
        *batch_arguments(change.ledger),
        place_of(change.record),
        "1" if change.redefines else "",
        change.replaces or b"",
    )


def firing_arguments(firings: Sequence[Firing]) -> tuple[bytes, *BatchArguments]:
    """Firings as arguments of `fire`, with the runs of all of them together."""
    steps = [
        (
            firing.name,
            firing.uid,
            firing.revision,
            to_micros(firing.expect),
            False if firing.cursor is None else to_micros(firing.cursor),
            False if firing.plan_at is None else to_micros(firing.plan_at),
            len(firing.runs),
            *(() if firing.move_to is None else (firing.move_to,)),
        )
        for firing in firings
    ]
    return encode(steps), *batch_arguments([run for firing in firings for run in firing.runs])


def slices_by_runs(firings: Sequence[Firing], most: int) -> Iterator[Sequence[Firing]]:
    """Firings in order, in slices of at most `most` firings and runs together; at least one firing each."""
    some: list[Firing] = []
    size = 0
    for firing in firings:
        added = 1 + len(firing.runs)
        if some and size + added > most:
            yield some
            some, size = [], 0
        some.append(firing)
        size += added
    if some:
        yield some
