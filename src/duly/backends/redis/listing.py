"""Reading runs: by id, the waiting ones, and those of a job's instants. Pages of a listing are in `redis.pages`.

The server returns slices; filtering and sorting happen here, so that no script is long. A listing is not one moment:
a change while it is read may appear or not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from duly.backends.redis.client import RedisClient, slices_of
from duly.backends.redis.codec import body_of, damaged_run, encode, run_of, score_of, status_of
from duly.backends.tolerance import tolerantly
from duly.model import WAITING, Run, from_micros, recurring_id, to_micros
from duly.model.holds import UNPLACED

_READ = 500
_FEW = 5_000
_SLICE = 2_000
_JOBS = 100
_FEW_OF_JOB = 100
_FIELDS = 5


class ListedRun(Struct, frozen=True):
    """A run and its place in the order of creation."""

    run: Run
    place: tuple[int, int]


def decoded(names: Iterable[bytes]) -> list[str]:
    """Ids or names as the server sends them."""
    return [name.decode() for name in names]


async def read_runs(client: RedisClient, run_ids: Sequence[str], now: int | None) -> list[ListedRun]:
    """The runs of these ids that exist, in order."""
    runs: list[ListedRun] = []
    for some in slices_of(run_ids, _READ):
        clock, found = await client.call_at(None, "read_runs", encode(list(some)))
        runs += _listed(some, found, clock if now is None else now)
    return runs


def _listed(run_ids: Sequence[str], found: Sequence[Any], now: int) -> list[ListedRun]:
    """Runs from what the script function `read_runs` returns: five fields for each."""
    entries = [found[at : at + _FIELDS] for at in range(0, len(found), _FIELDS)]
    return tolerantly(
        lambda some: [_decode(run_ids, entry, now) for entry in some],
        entries,
        lambda entry, why: ListedRun(damaged_run(run_ids[entry[0] - 1], entry[1], entry[2], why), (0, 0)),
    )


def _decode(run_ids: Sequence[str], entry: Sequence[Any], now: int) -> ListedRun:
    number, text, status, member, expires = entry
    body = body_of(text)
    run = run_of(
        run_ids[number - 1],
        body,
        status_of(status) if status else None,
        bool(member),
        score_of(expires) if expires else None,
        now,
    )
    return ListedRun(run, (body.place, body.index))


# --- waiting runs


async def upcoming(client: RedisClient, limit: int, job: str | None, now: int | None) -> list[Run]:
    """Waiting runs that are not held, or only until a node is assigned, by ready time, then id."""
    ids = None if job is None else await client.call("waiting_of_job", job, _FEW)
    if ids is None:
        ids = [
            run_id for name in await client.call("waiting_sets") for run_id in await _first(client, name, limit, job)
        ]
    runs = [each.run for each in await read_runs(client, decoded(ids), now)]
    waiting = [run for run in runs if run.state in WAITING and run.hold in (None, UNPLACED)]
    return sorted(waiting, key=lambda run: (run.ready_at, run.id))[:limit]


async def _first(client: RedisClient, name: bytes, limit: int, job: str | None) -> list[bytes]:
    """The ids of the first runs in one of the sets of waiting runs, of one job or of all."""
    found: list[bytes] = []
    async for rows in _waiting(client, name, job or "", _SLICE if job else max(1, min(limit, _SLICE))):
        found += rows[::3]
        if len(found) >= limit:
            break
    return found[:limit]


async def next_runs(client: RedisClient) -> dict[str, int]:
    """The earliest ready time of every job that has upcoming runs."""
    first: dict[str, int] = {}
    for name in await client.call("waiting_sets"):
        async for rows in _waiting(client, name, "", _SLICE):
            for score, job in zip(rows[1::3], rows[2::3], strict=True):
                ready = score_of(score)
                known = job.decode()
                first[known] = min(ready, first.get(known, ready))
    return first


async def next_runs_of(client: RedisClient, jobs: Sequence[str]) -> dict[str, int]:
    """The same for some jobs. Of one that has very many submitted runs, those at the front of the sets count."""
    first: dict[str, int] = {}

    def add(job: str, ready: int) -> None:
        first[job] = min(ready, first.get(job, ready))

    many: set[str] = set()
    for some in slices_of(jobs, _JOBS):
        ids, more = await client.call("next_runs", _FEW_OF_JOB, *some)
        many.update(decoded(more))
        for each in await read_runs(client, decoded(ids), None):
            if each.run.state in WAITING and each.run.hold in (None, UNPLACED):
                add(each.run.job, to_micros(each.run.ready_at))
    for name in await client.call("waiting_sets") if many else []:
        rows, _ = await client.call("waiting_slice", name, 0, _SLICE, "")
        for score, job in zip(rows[1::3], decoded(rows[2::3]), strict=True):
            if job in many:
                add(job, score_of(score))
    return first


async def _waiting(client: RedisClient, name: bytes, job: str, size: int) -> AsyncIterator[list[bytes]]:
    """The runs in one of the sets of waiting runs, in slices: id, ready time and job of each, as a flat list."""
    start, count = 0, size
    while count == size:
        rows, count = await client.call("waiting_slice", name, start, size, job)
        yield rows
        start += size


async def coming(
    client: RedisClient, node: str, until: datetime, start: int, step: int, limit: int, now: datetime | None
) -> tuple[list[Run], bool]:
    """Scheduled runs that are ready after now and by `until`, if this node may start them; whether there are more."""
    at, ids, found, more = await client.call_at(now, "read_ahead", to_micros(until), node, start, step, limit)
    return [each.run for each in _listed(decoded(ids), found, at) if each.run.damage is None], bool(more)


async def held(client: RedisClient, key: str, limit: int, after: Run | None, now: datetime | None) -> list[Run]:
    """Runs under a hold, in the order of `rules.placement.placing_order`; with `after`, those that follow that run."""
    start: tuple[bytes | int | str, ...] = (b"", b"", b"")
    if after is not None:
        start = (after.priority, to_micros(after.ready_at), after.id)
    at, ids, found = await client.call_at(now, "held_runs", min(limit, _READ), *start, key)
    runs = [each.run for each in _listed(decoded(ids), found, at)]
    if _READ == len(runs) < limit:
        runs += await held(client, key, limit - len(runs), runs[-1], now)
    return runs


async def covering(client: RedisClient, uid: str, at: int) -> Run | None:
    """The skipped range of a job that includes an instant."""
    start = 0
    instant = from_micros(at)
    while True:
        ids = await client.on_key("ZREVRANGEBYSCORE", f"ranges:{uid}", at, "-inf", "LIMIT", start, _READ)
        for each in await read_runs(client, decoded(ids), None):
            if each.run.until is not None and instant <= each.run.until:
                return each.run
        if len(ids) < _READ:
            return None
        start += _READ


async def ledger(
    client: RedisClient,
    uid: str,
    start: datetime,
    until: datetime,
    limit: int,
    expected: Sequence[datetime],
    now: int | None,
) -> list[Run]:
    """The records of a recurring job for a time: those of expected instants, and ranges."""
    first, last = to_micros(start), to_micros(until)
    ids = {recurring_id(uid, at): None for at in expected if start <= at <= until}
    ranges = await client.on_key("ZRANGEBYSCORE", f"ranges:{uid}", first, last, "LIMIT", 0, limit)
    ids |= dict.fromkeys(decoded(ranges))
    found = {each.run.id: each.run for each in await read_runs(client, list(ids), now)}
    around = await covering(client, uid, first)
    if around is not None:
        found[around.id] = around
    return sorted(found.values(), key=lambda run: run.due)[:limit]
