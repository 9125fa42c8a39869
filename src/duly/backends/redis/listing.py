"""Reading runs: by id, by what they are, newest first, and by what waits. Nothing here changes anything.

The server gives slices; choosing and sorting is done here, so that no script is long. A listing is not one moment: what
changes while it is read may be seen before or after.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from duly.backends.cursors import cursor_of, numbers_in
from duly.backends.redis.client import RedisClient
from duly.backends.redis.codec import NUMBERS, bare_run, body_of, encode, life_of, run_of, score_of
from duly.backends.tolerance import tolerantly
from duly.model import FINAL, WAITING, Page, Run, RunQuery, State, from_micros, to_micros
from duly.model.holds import UNPLACED

_LOOK = 500
_FEW = 5_000
_SLICE = 2_000
_ENTRY = 5
_PLACES = 1 << 24  # as in record.lua


class Seen(Struct, frozen=True):
    """A run and its place in the order of creation."""

    run: Run
    place: tuple[int, int]


async def look(client: RedisClient, run_ids: Sequence[str], now: int | None) -> list[Seen]:
    """The runs of these ids that exist, in order."""
    seen: list[Seen] = []
    for start in range(0, len(run_ids), _LOOK):
        some = run_ids[start : start + _LOOK]
        clock, found = await client.call("look", encode(list(some)), client.moment(None))
        seen += _seen(some, found, clock if now is None else now)
    return seen


def _seen(run_ids: Sequence[str], found: Sequence[Any], now: int) -> list[Seen]:
    """Runs as a script has seen them: five words each."""
    entries = [found[at : at + _ENTRY] for at in range(0, len(found), _ENTRY)]
    return tolerantly(
        lambda some: [_read(run_ids, entry, now) for entry in some],
        entries,
        lambda entry, why: Seen(bare_run(run_ids[entry[0] - 1], entry[1], entry[2], why), (0, 0)),
    )


def _read(run_ids: Sequence[str], entry: Sequence[Any], now: int) -> Seen:
    number, text, life, member, expires = entry
    body = body_of(text)
    run = run_of(
        run_ids[number - 1],
        body,
        life_of(life) if life else None,
        bool(member),
        score_of(expires) if expires else None,
        now,
    )
    return Seen(run, (body.place, body.index))


# --- pages


async def page(client: RedisClient, query: RunQuery, limit: int, cursor: str | None, now: int | None) -> Page:
    """Runs that match, newest created first. The cursor is the place of the last run of the page before."""
    before = None if cursor is None else numbers_in(cursor, 2)
    found: list[Seen] = []
    async for some in _newest(client, query, before, now):
        matching = [seen for seen in some if (before is None or seen.place < before) and query.matches(seen.run)]
        found += sorted(matching, key=lambda seen: seen.place, reverse=True)
        if len(found) > limit:
            break
    more = len(found) > limit > 0
    last = found[limit - 1] if more else None
    return Page([seen.run for seen in found[:limit]], None if last is None else cursor_of(*last.place))


async def _newest(
    client: RedisClient, query: RunQuery, before: tuple[int, ...] | None, now: int | None
) -> AsyncIterator[list[Seen]]:
    """All runs that may match, in lots from the newest to the oldest."""
    few = await _few(client, query)
    if few is not None:
        yield await look(client, few, now)
        return
    below: bytes | int = b"+inf" if before is None else before[0] // _PLACES + 1
    while True:
        first, ids = await client.call("page", below)
        if first == b"":
            return
        yield await look(client, ids.decode().split(), now)
        below = int(first)


async def _few(client: RedisClient, query: RunQuery) -> list[str] | None:
    """The ids of all runs in the states asked for, if they are few."""
    if not query.states:
        return None
    states = frozenset(query.states)
    numbers = [NUMBERS[state] for state in states & FINAL]
    if State.RUNNING in states:
        numbers.append(NUMBERS[State.RUNNING])
    if states & WAITING:
        numbers.append(NUMBERS[State.PENDING])
    ids = await client.call("few", _FEW, *numbers)
    return None if ids is None else [run_id.decode() for run_id in ids]


# --- what waits


async def upcoming(client: RedisClient, limit: int, job: str | None, now: int | None) -> list[Run]:
    """Waiting runs that nothing holds, or that are yet to be placed, by ready time, then id."""
    ids = await _of_job(client, job) if job is not None else None
    if ids is None:
        ids = [run_id for line in await _lines(client) for run_id in await _first_of_line(client, line, limit, job)]
    runs = [seen.run for seen in await look(client, ids, now)]
    waiting = [run for run in runs if run.state in WAITING and run.hold in (None, UNPLACED)]
    return sorted(waiting, key=lambda run: (run.ready_at, run.id))[:limit]


async def held(client: RedisClient, key: str, limit: int, after: Run | None, now: datetime | None) -> list[Run]:
    """Runs under a hold, in the order of `rules.placement.placing_order`; those after one of them."""
    start: tuple[bytes | int | str, ...] = (b"", b"", b"")
    if after is not None:
        start = (after.priority, to_micros(after.ready_at), after.id)
    moment = client.moment(now)
    at, ids, found = await client.call("held", moment, min(limit, _LOOK), *start, key)
    runs = [seen.run for seen in _seen([run_id.decode() for run_id in ids], found, at)]
    if _LOOK == len(runs) < limit:
        runs += await held(client, key, limit - len(runs), runs[-1], now)
    return runs


async def _of_job(client: RedisClient, job: str) -> list[str] | None:
    ids = await client.call("of_job", job, _FEW)
    return None if ids is None else [run_id.decode() for run_id in ids]


async def _lines(client: RedisClient) -> list[bytes]:
    lines: list[bytes] = await client.call("lines")
    return lines


async def _first_of_line(client: RedisClient, line: bytes, limit: int, job: str | None) -> list[str]:
    found: list[str] = []
    start = 0
    while len(found) < limit:
        some, looked_at = await client.call("line", line, start, _SLICE if job else limit - len(found), job or "")
        if looked_at == 0:
            break
        found += [run_id.decode() for run_id in some[::2]]
        start += looked_at
    return found[:limit]


async def next_runs(client: RedisClient) -> dict[str, int]:
    """The earliest ready time of every job that has runs which are upcoming."""
    first: dict[str, int] = {}
    for line in await _lines(client):
        start = 0
        while True:
            some, looked_at = await client.call("firsts", line, start, _SLICE)
            for job, ready in zip(some[::2], some[1::2], strict=True):
                name = job.decode()
                first[name] = min(score_of(ready), first.get(name, score_of(ready)))
            if looked_at < _SLICE:
                break
            start += looked_at
    return first


async def covering(client: RedisClient, uid: str, at: int) -> Run | None:
    """The skipped range of a job around an instant."""
    start = 0
    instant = from_micros(at)
    while True:
        ids = await client.command(
            "ZREVRANGEBYSCORE", client.prefix + b"ranges:" + uid.encode(), at, "-inf", "LIMIT", start, _LOOK
        )
        for seen in await look(client, [run_id.decode() for run_id in ids], None):
            if seen.run.until is not None and instant <= seen.run.until:
                return seen.run
        if len(ids) < _LOOK:
            return None
        start += _LOOK
