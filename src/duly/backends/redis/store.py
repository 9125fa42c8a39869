"""The store port on Redis: each verb one script, long ones in slices."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, NoReturn

import msgspec

from duly.backends.redis import listing
from duly.backends.redis.client import RedisClient
from duly.backends.redis.codec import NUMBERS, OUTCOMES, STATES, attempts_of, encode, home_of, instant_of, optional
from duly.backends.redis.jobs import change_words, firing_words, record_of, records_of, slices_by_runs
from duly.backends.redis.queue import slices_of
from duly.errors import BackendError
from duly.model import (
    FINAL,
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
    Page,
    RedriveReply,
    Run,
    RunQuery,
    State,
    Waiting,
    from_micros,
    recurring_id,
    to_micros,
)
from duly.ports import Transaction
from duly.rules.history import told

_CANCELS = (CancelReply.DONE, CancelReply.REQUESTED, CancelReply.TOO_LATE, CancelReply.UNKNOWN)
_REDRIVES = (RedriveReply.DONE, RedriveReply.NOT_ENDED, RedriveReply.DUPLICATE, RedriveReply.UNKNOWN)
_LAYOUT = b"1"
_ENDED = "ended"
_SAVE = 100
_FIRE = 1000
_OPERATE = 500
_NAMES = 1000
_VERSION = struct.Struct(">Q")
_TIME = struct.Struct(">q")
_SUMS = struct.Struct(">7qB8x")  # as tallying.lua writes them
_TALLIED = 500


class RedisStore:
    """Records, history, and the small things around them."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    # --- definitions and planning

    async def save(self, changes: Sequence[JobChange], *, now: datetime | None = None) -> list[JobRecord | None]:
        saved: list[JobRecord | None] = []
        for change in changes:
            if change.waiting is Waiting.CANCEL and change.expect is not None:
                await self._thin_out(change.record.name, change.expect, now)
        for some in slices_of(changes, _SAVE):
            words = [word for change in some for word in change_words(change)]
            texts = await self._client.call("save", self._client.moment(now), *words)
            names = [change.record.name for change in some]
            saved += [record_of(name, text) if text else None for name, text in zip(names, texts, strict=True)]
        return saved

    async def remove(self, name: str, expect: int, *, now: datetime | None = None) -> bool:
        await self._thin_out(name, expect, now)
        return bool(await self._client.call("remove", self._client.moment(now), name, expect))

    async def _thin_out(self, name: str, expect: int, now: datetime | None) -> None:
        """Cancel a job's waiting runs before it is removed, a part at a time, but for the last ones."""
        waiting = await self._client.command("SCARD", self._client.prefix + b"job:" + name.encode())
        for _ in range(waiting // _OPERATE):
            if not await self._client.call("thin", self._client.moment(now), name, expect, _OPERATE):
                break

    async def job(self, name: str) -> JobRecord | None:
        [text] = await self._client.call("jobs", name)
        return None if text is None else record_of(name, text)

    async def jobs(
        self, names: Sequence[str] | None = None, *, after: str = "", limit: int | None = None
    ) -> list[JobRecord]:
        if names is None:
            names = [name.decode() for name in await self._client.call("jobs")]
        wanted = sorted({name for name in names if name > after})
        records: list[JobRecord] = []
        for some in slices_of(wanted, _NAMES):
            if limit is not None and len(records) >= limit:
                break
            records += records_of(some, await self._client.call("jobs", *some))
        return records[:limit]

    async def install(self, shard: str, proposed: int) -> int:
        epoch: int = await self._client.call("install", shard, proposed)
        return epoch

    async def due(
        self, shard: str, limit: int, *, now: datetime | None = None
    ) -> tuple[list[JobRecord], datetime | None]:
        names, texts, following = await self._client.call("due", self._client.moment(now), shard, limit)
        return records_of(names, texts), None if following == b"" else instant_of(following)

    async def fire(
        self, firings: Sequence[Firing], shard: str, epoch: int, *, now: datetime | None = None
    ) -> list[Fired]:
        fired: list[Fired] = []
        for some in slices_by_runs(firings, _FIRE):
            results = await self._client.call("fire", self._client.moment(now), shard, epoch, *firing_words(some))
            if results == 0:
                fired += [Fired.STALE_EPOCH] * len(some)
            else:
                fired += [Fired.APPLIED if result == ord("1") else Fired.STALE_JOB for result in results]
        return fired

    # --- records and history

    async def run(self, run_id: str, *, now: datetime | None = None) -> Run | None:
        seen = await listing.look(self._client, [run_id], _micros(now))
        return seen[0].run if seen else None

    async def runs(
        self, query: RunQuery, limit: int, cursor: str | None = None, *, now: datetime | None = None
    ) -> Page:
        return await listing.page(self._client, query, limit, cursor, _micros(now))

    async def upcoming(self, limit: int, job: str | None = None, *, now: datetime | None = None) -> list[Run]:
        return await listing.upcoming(self._client, limit, job, _micros(now))

    async def next_runs(self, *, now: datetime | None = None) -> dict[str, datetime]:
        first = await listing.next_runs(self._client)
        return {job: instant_of(ready) for job, ready in first.items()}

    async def covering(self, uid: str, at: datetime) -> Run | None:
        run = await self.run(recurring_id(uid, at))
        return run if run is not None else await listing.covering(self._client, uid, to_micros(at))

    async def attempts(self, run_id: str) -> list[Attempt]:
        text = await self._client.command("HGET", self._client.prefix + b"attempts", run_id)
        return told(await self.run(run_id), () if text is None else attempts_of(text))

    async def statistics(self, jobs: Sequence[str] | None = None) -> dict[str, JobStatistics]:
        while await self._client.call("tally", _TALLIED):
            pass
        key = self._client.prefix + b"statistics"
        if jobs is None:
            flat = await self._client.command("HGETALL", key)
            counted = {job.decode(): text for job, text in zip(flat[::2], flat[1::2], strict=True)}
        else:
            texts = await self._client.command("HMGET", key, *jobs) if jobs else []
            counted = dict(zip(jobs, texts, strict=True))
        return {job: _statistics_of(text) for job, text in counted.items() if text is not None}

    async def counts(self, *, now: datetime | None = None) -> Counts:
        totals, depths, lanes, paused = await self._client.call("counts", self._client.moment(now))
        ended = {STATES[int(state)]: int(number) for state, number in zip(totals[::2], totals[1::2], strict=True)}
        queues: dict[str, Depth] = {queue.decode(): Depth(paused=True) for queue in paused}
        for name, number in zip(depths[::2], depths[1::2], strict=True):
            kind, queue = name[:1], name[1:].decode()
            _deepen(queues, queue, **{"pending" if kind == b"w" else "running": int(number)})
        for lane, number, oldest in zip(lanes[::3], lanes[1::3], lanes[2::3], strict=True):
            _queued(queues, home_of(lane.decode())[0], number, instant_of(oldest))
        states = {state: ended.get(state, 0) if state in FINAL else 0 for state in State}
        states[State.PENDING] = sum(depth.pending for depth in queues.values())
        states[State.QUEUED] = sum(depth.queued for depth in queues.values())
        states[State.RUNNING] = sum(depth.running for depth in queues.values())
        return Counts(states, queues)

    async def finished(self, run_ids: Sequence[str], timeout: float) -> list[Run]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        ended, gone = await self._client.call("await", encode(list(run_ids))) if run_ids else ([], 0)
        if not ended and not gone and run_ids and timeout > 0:
            async with self._client.ear(_ENDED) as ear:
                while True:
                    ended, gone = await self._client.call("await", encode(list(run_ids)))
                    left = deadline - loop.time()
                    if ended or gone or left <= 0:
                        break
                    await self._told(ear, run_ids, deadline)
        return [seen.run for seen in await listing.look(self._client, [run_id.decode() for run_id in ended], None)]

    @staticmethod
    async def _told(ear: Any, run_ids: Sequence[str], deadline: float) -> None:
        """Return when the end of one of these was told, or may have been."""
        loop, wanted = asyncio.get_running_loop(), {run_id.encode() for run_id in run_ids}
        while (left := deadline - loop.time()) > 0:
            words = await ear.wait(left)
            if any(word == b"" or not wanted.isdisjoint(word.split()) for word in words):
                return

    async def cancel(
        self, run_ids: Sequence[str], reason: str | None = None, *, now: datetime | None = None
    ) -> list[CancelReply]:
        replies: list[CancelReply] = []
        for some in slices_of(run_ids, _OPERATE):
            given = "" if reason is None else "1"
            numbers = await self._client.call(
                "cancel", self._client.moment(now), given, reason or "", encode(list(some))
            )
            replies += [_CANCELS[number] for number in numbers]
        return replies

    async def redrive(self, run_ids: Sequence[str], *, now: datetime | None = None) -> list[RedriveReply]:
        replies: list[RedriveReply] = []
        for some in slices_of(run_ids, _OPERATE):
            numbers = await self._client.call("redrive", self._client.moment(now), encode(list(some)))
            replies += [_REDRIVES[number] for number in numbers]
        return replies

    async def purge(self, state: State, before: datetime | None, keep: int | None, limit: int) -> int:
        purged = 0
        while purged < limit:
            some = await self._client.call(
                "purge",
                NUMBERS[state],
                b"" if before is None else to_micros(before),
                "" if keep is None else keep,
                limit - purged,
            )
            purged += some
            if some < min(limit, _OPERATE):
                break
        return purged

    async def expire(self, limit: int, *, now: datetime | None = None) -> int:
        expired = 0
        while expired < limit:
            some = await self._client.call("expire", self._client.moment(now), limit - expired)
            expired += some
            if some < _OPERATE:
                break
        return expired

    # --- queues

    async def pause(self, queue: str) -> bool:
        return bool(await self._client.call("pause", queue))

    async def resume(self, queue: str) -> bool:
        return bool(await self._client.call("resume", queue))

    async def paused(self) -> set[str]:
        names = await self._client.command("SMEMBERS", self._client.prefix + b"paused")
        return {name.decode() for name in names}

    # --- small things

    async def append(
        self, log: str, entries: Sequence[bytes], expect: int | None = None, keep: int | None = None
    ) -> int | None:
        last: int | None = await self._client.call(
            "append", log, "" if expect is None else expect, "" if keep is None else keep, *entries
        )
        return last

    async def read(self, log: str, after: int = 0, limit: int = 100) -> list[Entry]:
        first, texts = await self._client.call("entries", log, after, limit) if limit > 0 else (0, [])
        return [
            Entry(number, from_micros(_TIME.unpack_from(text)[0]), text[_TIME.size :])
            for number, text in enumerate(texts, first)
        ]

    async def get(self, kind: str, key: str) -> Item | None:
        text = await self._client.command("HGET", self._kind(kind), key)
        return None if text is None else _item(key, text)

    async def put(self, kind: str, key: str, value: bytes | None, expect: int | None = None) -> Item | None:
        version = await self._client.call(
            "value_put", kind, key, "" if expect is None else expect, "0" if value is None else "1", value or b""
        )
        return None if version is None or value is None else Item(key, value, version)

    async def items(self, kind: str) -> list[Item]:
        flat = await self._client.command("HGETALL", self._kind(kind))
        found = [_item(key.decode(), text) for key, text in zip(flat[::2], flat[1::2], strict=True)]
        return sorted(found, key=lambda item: item.key)

    def _kind(self, kind: str) -> bytes:
        return self._client.prefix + b"kind:" + kind.encode()

    async def take(
        self, bucket: str, tokens: float, rate: float, burst: float, *, now: datetime | None = None
    ) -> float:
        return float(
            await self._client.call("take", self._client.moment(now), bucket, repr(tokens), repr(rate), repr(burst))
        )

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
                f"{self._client.place.shown} has keys of layout {layout.decode()} in namespace"
                f" {self._client.namespace!r}, this version of Duly knows {_LAYOUT.decode()}: use that version, or"
                " another namespace"
            )
        return []

    async def time(self) -> datetime:
        seconds, fraction = await self._client.command("TIME")
        return from_micros(int(seconds) * 1_000_000 + int(fraction))


def _micros(now: datetime | None) -> int | None:
    return None if now is None else to_micros(now)


def _no_transactions() -> NoReturn:
    raise BackendError("redis:// has no transactions: use sqlite:// or postgresql://")


def _item(key: str, text: bytes) -> Item:
    return Item(key, text[_VERSION.size :], _VERSION.unpack_from(text)[0])


def _statistics_of(text: bytes) -> JobStatistics:
    completed, failed, cancelled, lost, retried, micros, last, outcome = _SUMS.unpack(text)
    return JobStatistics(
        completed,
        failed,
        cancelled,
        lost,
        retried,
        micros / 1_000_000,
        optional(last),
        OUTCOMES[outcome - 1] if outcome else None,
    )


def _deepen(queues: dict[str, Depth], queue: str, **numbers: int) -> None:
    queues[queue] = msgspec.structs.replace(queues.get(queue, Depth()), **numbers)


def _queued(queues: dict[str, Depth], queue: str, number: int, oldest: datetime) -> None:
    """So many of those that wait are queued."""
    depth = queues.get(queue, Depth())
    first = oldest if depth.oldest is None else min(depth.oldest, oldest)
    queues[queue] = msgspec.structs.replace(
        depth, queued=depth.queued + number, pending=depth.pending - number, oldest=first
    )
