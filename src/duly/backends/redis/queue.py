"""The queue port on Redis: packs batches for the scripts of the hot path and reads their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec.structs import replace

from duly.backends.redis import listing
from duly.backends.redis.client import RedisClient
from duly.backends.redis.codec import (
    OUTCOME_NUMBERS,
    batch_of,
    bodies_of,
    encode,
    instant_of,
    lent_run,
    life_of,
    run_of,
    score_of,
    settled_life,
)
from duly.backends.redis.notify import Wakeup
from duly.backends.staff import Staff, digest_of
from duly.backends.tolerance import UNREADABLE
from duly.model import (
    EPOCH,
    Assignment,
    Beat,
    BeatReply,
    Claim,
    Claimed,
    Put,
    Renewal,
    Run,
    Settlement,
    Share,
    State,
    from_micros,
    to_micros,
)

_FEW = 32


class RedisStaff:
    """Tells the server of one session which handlers its node has."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._staff = Staff(_words_of)

    def words(self, handlers: Collection[str] | None) -> tuple[bytes, bytes]:
        """Two arguments of `claim`: the names themselves, or what their set is called; nothing means all."""
        return self._staff.of(handlers)

    async def tell(self, handlers: Collection[str]) -> None:
        """Make the set of these names known."""
        _, name = self.words(handlers)
        await self._client.call("staff", name, encode(sorted(handlers)))


def _words_of(handlers: Collection[str] | None) -> tuple[bytes, bytes]:
    if handlers is None:
        return b"", b""
    if len(handlers) <= _FEW:
        return encode(list(handlers)), b""
    return b"", digest_of(handlers).encode()


def rows_of(settlements: Sequence[Settlement]) -> tuple[bytes, bytes, bytes]:
    """Rows, texts and keys. Runs claimed together have one start, and many share their ready time, node and job."""
    rows: list[str | int] = []
    texts: list[bytes] = []
    keys: dict[tuple[str, str], int] = {}
    nodes: dict[str, bytes] = {}
    started_at: datetime | None = None
    ended_at: datetime | None = None
    ready_at: datetime | None = None
    started = ended = ready = 0
    for each in settlements:
        if each.started_at is not started_at:
            started_at = each.started_at
            started = to_micros(started_at)
        if each.ended_at is not ended_at:
            ended_at = each.ended_at
            ended = to_micros(ended_at)
        if each.ready_at is not ready_at:
            ready_at = each.ready_at
            ready = to_micros(ready_at)
        node = nodes.get(each.node)
        if node is None:
            node = nodes[each.node] = encode(each.node)
        key = (each.job, each.queue)
        number = keys.get(key)
        if number is None:
            number = keys[key] = len(keys) + 1
        life = settled_life(each, started, ended, ready, node)
        texts.append(life)
        attempt = b"" if each.attempt is None else encode(each.attempt)
        if attempt:
            texts.append(attempt)
        outcome = 0 if each.outcome is None else OUTCOME_NUMBERS[each.outcome]
        group = None if each.keyed else each.group
        rows += (each.run_id, len(life), len(attempt), number, outcome, started, ended, ready, group or "")
    flat = [part for key in keys for part in key]
    return encode(rows), b"".join(texts), encode(flat)


_PUT = 1000
_PUTS_UNDER_WAY = 4
_SETTLE = 500
_RENEW = 1000
_HOLD = 500
_T = TypeVar("_T")


class RedisQueue:
    """One script call per verb and slice. Claims and settlements have connections of their own."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._sleep = Wakeup(client)
        self._staff = RedisStaff(client)

    # --- putting

    async def put(self, runs: Sequence[Run], *, now: datetime | None = None) -> list[Put]:
        if len(runs) <= _PUT:
            return await self._put_slice(runs, now) if runs else []
        window = asyncio.Semaphore(_PUTS_UNDER_WAY)
        async with asyncio.TaskGroup() as tasks:  # one connection: the slices arrive in order
            slices = [tasks.create_task(self._put_in_turn(some, now, window)) for some in slices_of(runs, _PUT)]
        return [put for some in slices for put in some.result()]

    async def _put_in_turn(self, runs: Sequence[Run], now: datetime | None, window: asyncio.Semaphore) -> list[Put]:
        """One slice is packed while the server works on the one before; none waits for its answer past its deadline."""
        async with window:
            return await self._put_slice(runs, now)

    async def _put_slice(self, runs: Sequence[Run], now: datetime | None = None) -> list[Put]:
        batch = batch_of(runs)
        at, *refused = await self._client.call(
            "put", self._client.moment(now), encode(batch.flat), batch.bodies, encode(batch.odd), lane="put"
        )
        created_at = from_micros(at)
        answers = [Put(run.id, True, created_at) for run in runs]
        for number, existing, before in zip(refused[::3], refused[1::3], refused[2::3], strict=True):
            answers[number - 1] = Put(existing.decode(), False, from_micros(before))
        return answers

    async def promote(self, limit: int, *, now: datetime | None = None) -> tuple[int, datetime | None]:
        looked_at, next_due = await self._client.call("promote", self._client.moment(now), limit)
        return looked_at, _instant(next_due)

    # --- claiming

    async def claim(
        self,
        node: str,
        queues: Sequence[str] | None,
        handlers: Collection[str] | None,
        limit: int,
        lease: float,
        request: int,
        *,
        now: datetime | None = None,
    ) -> Claimed:
        wanted = b"" if queues is None else encode(list(queues))
        names, staff = self._staff.words(handlers)
        words = (
            self._client.moment(now),
            node,
            request,
            limit,
            micros(lease),
            wanted,
            names,
            staff,
            self._sleep.claim(),
        )
        notifier: bytes | int = b""
        try:
            answer = await self._client.call("claim", *words, lane="claim")
            while answer is None and handlers is not None:
                await self._staff.tell(handlers)
                answer = await self._client.call("claim", *words, lane="claim")
            at, expires, fence, next_due, lent, bodies, lives, notifier = answer
        finally:
            self._sleep.claimed(notifier)
        if expires == 0:
            again = await self._claims(lent[::2], lent[1::2], bodies, lives, at)
            return Claimed(sorted(again, key=lambda claim: claim.fence), _instant(next_due))
        if lent:
            self._client.incarnation.saw(fence + len(lent) // 2 - 1)
        try:
            claims = _lent(node, request, at, expires, fence, lent, bodies, lives)
        except UNREADABLE:  # they are lent all the same: what cannot be read is found out one by one
            claims = await self._running([run_id.decode() for run_id in lent[::2]], fence, expires)
        return Claimed(claims, _instant(next_due))

    async def _running(self, run_ids: Sequence[str], first: int, expires: int) -> list[Claim]:
        """Claims of runs that have just been lent or taken over, under fences from the first on, read one by one."""
        seen = await listing.look(self._client, run_ids, None)
        until = from_micros(expires)
        fences = {run_id: first + number for number, run_id in enumerate(run_ids)}
        runs = [replace(each.run, state=State.RUNNING, fence=fences[each.run.id], expires_at=until) for each in seen]
        return [Claim(run, run.fence, until) for run in runs]

    async def renew(
        self, beats: Sequence[Beat], lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> Renewal:
        replies: list[BeatReply] = []
        silent_since: datetime | None = None
        for some in slices_of(beats, _RENEW) if beats else [beats]:
            progress = [b"" if beat.progress is None else encode(beat.progress) for beat in some]
            gone, wanted, silent = await self._client.call(
                "renew",
                self._client.moment(now),
                micros(lease),
                quiet_for(silence),
                encode([beat.run_id for beat in some]),
                b"".join([beat.fence.to_bytes(8, "big") for beat in some]),
                encode([len(each) for each in progress]),
                b"".join(progress),
            )
            some_replies = [BeatReply.KEPT] * len(some)
            for number in wanted:
                some_replies[number - 1] = BeatReply.CANCEL
            for number in gone:
                some_replies[number - 1] = BeatReply.LOST
            replies += some_replies
            silent_since = instant_of(silent) if silent else silent_since
        return Renewal(tuple(replies), silent_since)

    # --- settling

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        fresh: list[bool] = []
        for some in slices_of(settlements, _SETTLE):
            stale = await self._client.call("settle", *rows_of(some), lane="settle")
            fresh += [True] * len(some)
            for number in stale:
                fresh[number - 1 - len(some)] = False
        return fresh

    async def reap(
        self, limit: int, lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> list[Claim]:
        expires, ids, bodies, lives, before = await self._client.call(
            "reap", self._client.moment(now), limit, micros(lease), quiet_for(silence)
        )
        claims = await self._claims(ids, [expires] * len(ids), bodies, lives, 0)
        lapsed = {run_id.decode(): instant_of(until) for run_id, until in zip(ids, before, strict=True)}
        return [replace(claim, run=replace(claim.run, expires_at=lapsed[claim.run.id])) for claim in claims]

    async def _claims(
        self, ids: Sequence[bytes], expiries: Sequence[Any], bodies: bytes, lives: Sequence[bytes], now: int
    ) -> list[Claim]:
        """Claims of runs that are running, from their records."""
        try:
            return _claims(ids, expiries, bodies, lives, now)
        except UNREADABLE:
            seen = await listing.look(self._client, [run_id.decode() for run_id in ids], None)
            return [Claim(each.run, each.run.fence, each.run.expires_at or EPOCH) for each in seen]

    # --- holding

    async def hold(self, key: str, run_ids: Sequence[str]) -> list[str]:
        taken: list[str] = []
        for some in slices_of(run_ids, _HOLD):
            taken += [run_id.decode() for run_id in await self._client.call("hold", key, encode(list(some)))]
        return taken

    async def unhold(self, key: str, limit: int) -> int:
        number = 0
        while number < limit:
            some: int = await self._client.call("unhold", key, limit - number)
            number += some
            if some < min(limit, _HOLD):
                break
        return number

    async def holds(self) -> dict[str, int]:
        counted = await self._client.call("holds")
        return {key.decode(): int(number) for key, number in zip(counted[::2], counted[1::2], strict=True)}

    async def held(self, key: str, limit: int, after: Run | None = None, *, now: datetime | None = None) -> list[Run]:
        return await listing.held(self._client, key, limit, after, now)

    async def claim_held(
        self, key: str, run_id: str, node: str, lease: float, request: int, *, now: datetime | None = None
    ) -> Claim | None:
        words = (self._client.moment(now), key, run_id, node, request, micros(lease))
        expires, body, life = await self._client.call("claim_held", *words, lane="claim")
        if not life:
            return None
        [claim] = await self._claims([run_id.encode()], [expires], body, [life], 0)
        self._client.incarnation.saw(claim.fence)
        return claim

    # --- placing

    async def assign(self, assignments: Sequence[Assignment]) -> list[bool]:
        given: list[bool] = []
        for some in slices_of(assignments, _HOLD):
            words = [word for assignment in some for word in (assignment.run_id, assignment.node)]
            given += [bool(number) for number in await self._client.call("assign", encode(words))]
        return given

    async def unassign(self, node: str, limit: int) -> int:
        number = 0
        while number < limit:
            some: int = await self._client.call("unassign", node, limit - number)
            number += some
            if some < _HOLD:
                break
        return number

    async def assigned(self, *, now: datetime | None = None) -> dict[str, Share]:
        flat = await self._client.call("assigned", self._client.moment(now))
        shares = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        return {node.decode(): Share(due, upcoming) for node, due, upcoming in shares}

    async def wait(self, node: str, queues: Sequence[str] | None, timeout: float) -> None:
        await self._sleep.until_rung(timeout)


def micros(seconds: float) -> int:
    return round(min(seconds, 1e9) * 1_000_000)


def quiet_for(seconds: float | None) -> bytes | int:
    """The longest silence that says nothing, in microseconds; or that none says anything."""
    return b"" if seconds is None else micros(seconds)


def slices_of(items: Sequence[_T], most: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), most):
        yield items[start : start + most]


def _instant(text: bytes | int) -> datetime | None:
    return instant_of(text) if text != b"" else None


def _lent(
    node: str,
    request: int,
    at: int,
    expires: int,
    fence: int,
    lent: Sequence[bytes],
    bodies: bytes,
    lives: Sequence[Any],
) -> list[Claim]:
    """Claims of runs that were lent just now, under fences from the first on."""
    started_at, expires_at = from_micros(at), from_micros(expires)
    before = dict(zip(lives[::2], lives[1::2], strict=True)) if lives else {}
    claims = []
    created = due = at
    created_at = due_at = started_at
    for number, body in enumerate(bodies_of(bodies, len(lent) // 2), 1):
        life = life_of(before[number]) if number in before else None
        run_id, ready = lent[2 * number - 2].decode(), score_of(lent[2 * number - 1])
        if body.created != created:  # runs that were put together have one
            created, created_at = body.created, from_micros(body.created)
        if body.due != due:  # and so have those that are due together
            due, due_at = body.due, from_micros(body.due)
        ready_at = due_at if ready == due else instant_of(ready)
        run = lent_run(run_id, due_at, ready_at, body, life, fence, node, request, created_at, started_at, expires_at)
        claims.append(Claim(run, fence, expires_at))
        fence += 1
    return claims


def _claims(
    ids: Sequence[bytes], expiries: Sequence[Any], bodies: bytes, lives: Sequence[bytes], now: int
) -> list[Claim]:
    """Claims of runs that are running, from their records."""
    claims = []
    for run_id, until, body, text in zip(ids, expiries, bodies_of(bodies, len(ids)), lives, strict=True):
        life, expires = life_of(text), score_of(until)
        run = run_of(run_id.decode(), body, life, body.group is not None, expires, now)
        claims.append(Claim(run, life.fence, from_micros(expires)))
    return claims
