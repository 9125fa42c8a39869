"""Pages of a listing: which keys lead to the candidates, and which of them match.

The server returns ids in slices; runs are decoded and matched here, so that no script is long. In the order of ends and
of ready times the ids come from sorted sets. In the order of creation they come from the pages of all ids, but where a
query names a job, or states that few runs have, all candidates are read at once. A listing is not one moment: a change
while it is read may appear or not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from duly.backends.cursors import cursor_of, numbers_in, place_in
from duly.backends.redis.client import RedisClient
from duly.backends.redis.codec import NUMBERS, score_of
from duly.backends.redis.listing import ListedRun, decoded, read_runs
from duly.backends.search import Budget, Descending, Keys, Streams, Wanted, search
from duly.model import FINAL, WAITING, Page, Run, RunOrder, RunQuery, State, from_micros, to_micros

_MOST = 5_000  # looked at by one call
_FEW = 1_000  # read as a whole
_COUNTED = 500
_SLICE, _MOST_SLICE = 64, 500
_FEW_JOBS = 20
_MARGIN = 60_000_000  # microseconds by which ends may be recorded out of order
_PLACES = 1 << 24  # as in layout.lua
_ANY = b"+inf"

_Ended = tuple[int, Descending]  # end, negative, and id
_Ready = tuple[int, str]  # ready time and id
_Place = tuple[int, ...]


async def page(
    client: RedisClient, query: RunQuery, limit: int, cursor: str | None, scan: int, now: int | None
) -> Page:
    """Runs that match; `cursor` is the place of the last run of the page before."""
    at = await _clock(client) if now is None else now
    wanted = Wanted(query, limit, max(limit + 1, min(scan, _MOST)), at)
    match query.order:
        case RunOrder.ENDED:
            return await _ended_page(client, wanted, cursor)
        case RunOrder.READY:
            return await _ready_page(client, wanted, cursor)
        case _:
            return await _created_page(client, wanted, cursor)


async def _clock(client: RedisClient) -> int:
    seconds, fraction = await client.command("TIME")
    return int(seconds) * 1_000_000 + int(fraction)


# --- in the order of creation


class _Candidates(Struct, frozen=True):
    """Runs of which some may match: all such runs that were created after `since` (microseconds; None: ever)."""

    runs: list[ListedRun]
    since: int | None = None


async def _created_page(client: RedisClient, wanted: Wanted, cursor: str | None) -> Page:
    before: _Place | None = None if cursor is None else numbers_in(cursor, 2)
    budget, now = Budget(wanted.scan, wanted.limit), from_micros(wanted.now)
    found: list[ListedRun] = []

    def add(some: Sequence[ListedRun]) -> list[ListedRun]:
        """Keep those that match; returns those that no earlier page had."""
        new = [each for each in some if before is None or each.place < before]
        matching = [each for each in new if wanted.query.matches(each.run, now)]
        found.extend(sorted(matching, key=_place, reverse=True))
        budget.searched += len(new)
        return new

    candidates = await _candidates(client, wanted)
    if candidates is not None:
        since = candidates.since
        certain = [each for each in candidates.runs if since is None or _created(each) > since]
        add(certain)
        if since is None or len(found) > wanted.limit:
            return _page(found, wanted)
        before = min([each.place for each in certain] + ([] if before is None else [before]), default=before)
    below: bytes | int = _ANY if before is None else before[0] // _PLACES + 1
    oldest: ListedRun | None = None
    size = max(_SLICE, min(_MOST_SLICE, wanted.limit + 1))
    while len(found) <= wanted.limit:
        if not budget.left:
            return _page(found, wanted, oldest, budget.searched)
        number, ids = await client.call("run_page", below)
        if number == b"":
            break
        listed = ids.decode().split()  # as many as were put together, the oldest first
        while listed and budget.left and len(found) <= wanted.limit:
            some = await read_runs(client, listed[-size:], wanted.now)
            readable = [each for each in add(some) if each.run.damage is None]  # the place of a damaged one is unknown
            oldest = min(readable, key=_place, default=oldest)
            del listed[-size:]
        below = int(number)
    return _page(found, wanted)


def _page(found: list[ListedRun], wanted: Wanted, oldest: ListedRun | None = None, searched: int = 0) -> Page:
    shown = [each.run for each in found[: wanted.limit]]
    if len(found) > wanted.limit:
        return Page(shown, cursor_of(*found[wanted.limit - 1].place) if wanted.limit > 0 else None)
    if oldest is None:
        return Page(shown)
    return Page(shown, cursor_of(*oldest.place), oldest.run.created_at, searched)


def _place(each: ListedRun) -> _Place:
    return each.place


def _created(each: ListedRun) -> int:
    return 0 if each.run.created_at is None else to_micros(each.run.created_at)


async def _candidates(client: RedisClient, wanted: Wanted) -> _Candidates | None:
    """The runs that an index leads to; None if none does."""
    names, states = wanted.query.names, wanted.query.possible
    if states != frozenset(State):
        numbers = [NUMBERS[state] for state in states & FINAL]
        numbers += [NUMBERS[State.RUNNING]] if State.RUNNING in states else []
        numbers += [NUMBERS[State.PENDING]] if states & WAITING else []
        ids = await client.call("ids_by_state", _FEW, *numbers)
        if ids is not None:
            return _Candidates(await read_runs(client, decoded(ids), wanted.now))
    if names is None or len(names) > _FEW_JOBS:
        return None
    while await client.call("add_pending_counters", _COUNTED):
        pass
    runs: dict[str, ListedRun] = {}
    since = 0
    for name in sorted(names):
        of_job = await _of_job(client, name, wanted.now)
        if of_job is None:
            return None
        runs |= {each.run.id: each for each in of_job.runs}
        since = max(since, of_job.since or 0)
    return _Candidates(list(runs.values()), since or None)


async def _of_job(client: RedisClient, job: str, now: int) -> _Candidates | None:
    """The waiting, running and newest ended runs of a job; None if many wait or run."""
    reply = await client.call("runs_of_job", job, _FEW)
    if reply is None:
        return None
    unfinished, recent, complete_since = reply
    if complete_since == _ANY:
        return None
    ended = decoded(recent)
    runs = await read_runs(client, list(dict.fromkeys([*decoded(unfinished), *ended])), now)
    since = int(complete_since)
    if len(ended) >= _MOST_RECENT:
        # A run that was pushed out ended before those that are left, and was created before it ended.
        once = {run_id for run_id in ended if ended.count(run_id) == 1}
        ends = {each.run.id: each.run.finished_at for each in runs if each.run.id in once}
        first = next((end for run_id in ended if (end := ends.get(run_id)) is not None), None)
        since = max(since, now if first is None else to_micros(first) + _MARGIN)
    return _Candidates(runs, since or None)


_MOST_RECENT = 200  # as in recent_runs.lua


# --- in the order of ends


async def _ended_page(client: RedisClient, wanted: Wanted, cursor: str | None) -> Page:
    after: _Ended | None = None
    if cursor is not None:
        end, run_id = place_in(cursor)
        after = (-end, Descending(run_id))

    async def reached(key: _Ended) -> datetime | None:
        return from_micros(-key[0])

    def place(run: Run) -> _Ended:
        return (0 if run.finished_at is None else -to_micros(run.finished_at), Descending(run.id))

    few = await _few(client, wanted, place)
    streams = [_by_end(client, NUMBERS[state], wanted.query) for state in sorted(wanted.query.possible)]
    return await search(
        Streams(streams if few is None else [few], after),
        _reader(client, wanted.now, place),
        wanted,
        lambda key: cursor_of(-key[0], key[1]),
        reached,
    )


def _by_end(client: RedisClient, state: int, query: RunQuery) -> Keys[_Ended]:
    name = f"ended:{state}"
    latest: bytes | int = _ANY if query.ended_until is None else to_micros(query.ended_until)
    earliest: bytes | int = b"-inf" if query.ended_from is None else to_micros(query.ended_from)

    async def slice_of(most: bytes | int, start: int, limit: int) -> list[_Ended]:
        flat = await client.on_key("ZREVRANGEBYSCORE", name, most, earliest, "WITHSCORES", "LIMIT", start, limit)
        return [(-score_of(score), Descending(i.decode())) for i, score in zip(flat[::2], flat[1::2], strict=True)]

    return _after(slice_of, lambda key: latest if latest != _ANY and -key[0] > int(latest) else -key[0], latest)


# --- in the order of ready times


async def _ready_page(client: RedisClient, wanted: Wanted, cursor: str | None) -> Page:
    after: _Ready | None = None if cursor is None else place_in(cursor)

    async def reached(key: _Ready) -> datetime | None:
        return from_micros(key[0])

    def place(run: Run) -> _Ready:
        return (to_micros(run.ready_at), run.id)

    few = await _few(client, wanted, place)
    names = await client.call("waiting_sets", "all") if few is None else []
    return await search(
        Streams([_by_ready_time(client, name) for name in names] if few is None else [few], after),
        _reader(client, wanted.now, place),
        wanted,
        lambda key: cursor_of(key[0], key[1]),
        reached,
    )


def _by_ready_time(client: RedisClient, name: bytes) -> Keys[_Ready]:
    async def slice_of(least: bytes | int, start: int, limit: int) -> list[_Ready]:
        flat = await client.on_key("ZRANGEBYSCORE", name.decode(), least, _ANY, "WITHSCORES", "LIMIT", start, limit)
        return [(score_of(score), run_id.decode()) for run_id, score in zip(flat[::2], flat[1::2], strict=True)]

    return _after(slice_of, lambda key: key[0], b"-inf")


# --- reading


def _after(
    slice_of: Callable[[bytes | int, int, int], Awaitable[list[Any]]],
    score: Callable[[Any], bytes | int],
    first: bytes | int,
) -> Keys[Any]:
    """The keys after one in a sorted set. Those of the same score that come before it are passed over."""

    async def keys(after: Any, limit: int) -> list[Any]:
        if after is None:
            return await slice_of(first, 0, limit)
        found: list[Any] = []
        start = 0
        while len(found) < limit:
            some = await slice_of(score(after), start, limit + 1)
            found += [key for key in some if key > after]
            start += len(some)
            if len(some) <= limit:
                break
        return found[:limit]

    return keys


def _reader(
    client: RedisClient, now: int, place: Callable[[Run], Any]
) -> Callable[[list[Any]], Awaitable[dict[Any, Run]]]:
    async def read(keys: list[Any]) -> dict[Any, Run]:
        runs = await read_runs(client, [str(key[1]) for key in keys], now)
        return {place(each.run): each.run for each in runs}

    return read


async def _few(client: RedisClient, wanted: Wanted, place: Callable[[Run], Any]) -> Keys[Any] | None:
    """The keys of all runs that an index of the job leads to; None if there is none, or it does not have all."""
    if wanted.query.names is None:
        return None
    candidates = await _candidates(client, wanted)
    if candidates is None or candidates.since is not None:
        return None
    now = from_micros(wanted.now)
    listed = sorted(place(each.run) for each in candidates.runs if wanted.query.matches(each.run, now))

    async def keys(after: Any, limit: int) -> list[Any]:
        return [key for key in listed if after is None or key > after][:limit]

    return keys
