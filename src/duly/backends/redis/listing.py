"""Reading runs: by id, the waiting ones, those of a job's instants, and pages of a listing.

The server returns ids in slices; runs are decoded, matched and sorted here, so that no script is long. For a page in
the order of ends and of ready times the ids come from sorted sets. In the order of creation they come from the pages of
all ids, but where a query names a job, or states that few runs have, all candidates are read at once. A listing is not
one moment: a change while it is read may appear or not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from duly.backends.cursors import cursor_of, numbers_in, place_in
from duly.backends.redis.client import ClientView, RedisClient, slices_of
from duly.backends.redis.codec import NUMBERS, body_of, damaged_run, encode, run_of, score_of, status_of
from duly.backends.search import Budget, Descending, Keys, Streams, Wanted, search
from duly.backends.tolerance import tolerantly
from duly.model import FINAL, WAITING, Page, Run, RunOrder, RunQuery, State, from_micros, recurring_id, to_micros
from duly.model.holds import UNPLACED

_READ = 500
_MOST_WAITING = 5_000
_WAITING_SLICE = 2_000
_JOBS = 100
_WAITING_OF_JOB = 100
_FIELDS = 5
_MOST = 5_000  # looked at by one page
_FEW = 1_000  # read as a whole
_COUNTED = 500
_SLICE, _MOST_SLICE = 64, 500
_FEW_JOBS = 20
_MOST_RECENT = 200  # as in recent_runs.lua
_MARGIN = 60_000_000  # microseconds by which ends may be recorded out of order
_PLACES = 1 << 24  # as in layout.lua
_ANY = b"+inf"

_Ended = tuple[int, Descending]  # end, negative, and id
_Ready = tuple[int, str]  # ready time and id
_Place = tuple[int, ...]


class ListedRun(Struct, frozen=True):
    """A run and its place in the order of creation."""

    run: Run
    place: tuple[int, int]


def decoded(names: Iterable[bytes]) -> list[str]:
    """Ids or names as the server sends them."""
    return [name.decode() for name in names]


async def read_runs(client: RedisClient | ClientView, run_ids: Sequence[str], now: int | None) -> list[ListedRun]:
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
    ids = None if job is None else await client.call("waiting_of_job", job, _MOST_WAITING)
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
    async for rows in _waiting(client, name, job or "", _WAITING_SLICE if job else max(1, min(limit, _WAITING_SLICE))):
        found += rows[::3]
        if len(found) >= limit:
            break
    return found[:limit]


async def next_runs(client: RedisClient) -> dict[str, int]:
    """The earliest ready time of every job that has upcoming runs."""
    first: dict[str, int] = {}
    for name in await client.call("waiting_sets"):
        async for rows in _waiting(client, name, "", _WAITING_SLICE):
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
        ids, more = await client.call("next_runs", _WAITING_OF_JOB, *some)
        many.update(decoded(more))
        for each in await read_runs(client, decoded(ids), None):
            if each.run.state in WAITING and each.run.hold in (None, UNPLACED):
                add(each.run.job, to_micros(each.run.ready_at))
    for name in await client.call("waiting_sets") if many else []:
        rows, _ = await client.call("waiting_slice", name, 0, _WAITING_SLICE, "")
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
    client: RedisClient, until: datetime, limit: int, start: int, step: int, cursor: str | None, now: datetime | None
) -> tuple[list[Run], str | None]:
    """Scheduled runs that are ready after now and by `until`, and were never claimed; where to continue."""
    after: tuple[int | bytes, str | bytes] = (b"", b"") if cursor is None else place_in(cursor)
    at, found, bodies, ready, last = await client.call_at(
        now, "read_ahead", to_micros(until), *after, start, step, limit
    )

    def read(some: Sequence[tuple[bytes, bytes]]) -> list[Run]:
        return [run_of(run_id.decode(), body_of(body), None, False, None, at) for run_id, body in some]

    rows = list(zip(found, bodies, strict=True))
    runs = tolerantly(read, rows, lambda row, why: damaged_run(row[0].decode(), row[1], b"", why))
    return [run for run in runs if run.damage is None], cursor_of(score_of(ready), last.decode()) if last else None


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


# --- pages


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
