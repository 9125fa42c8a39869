"""The queue port on Redis: packs batches for the scripts of the hot path and reads their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from duly.backends.redis import listing
from duly.backends.redis.codec import batch_of, bodies_of, encode, lent_run, life_of, run_of
from duly.backends.redis.settling import rows_of
from duly.backends.redis.sleep import Sleep
from duly.backends.redis.staff import RedisStaff
from duly.backends.redis.wire import Wire
from duly.model import (
    Assignment,
    Beat,
    Claim,
    Claimed,
    Put,
    Renewal,
    Run,
    Settlement,
    Share,
    from_micros,
    to_micros,
)

_PUT = 1000
_PUTS_UNDER_WAY = 4
_SETTLE = 500
_RENEW = 1000
_HOLD = 500
_T = TypeVar("_T")


class RedisQueue:
    """One script call per verb and slice. Claims and settlements have connections of their own."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._sleep = Sleep(wire)
        self._staff = RedisStaff(wire)

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
        at, *refused = await self._wire.call(
            "put", moment(now), encode(batch.flat), batch.bodies, encode(batch.odd), lane="put"
        )
        created_at = from_micros(at)
        answers = [Put(run.id, True, created_at) for run in runs]
        for number, existing, before in zip(refused[::3], refused[1::3], refused[2::3], strict=True):
            answers[number - 1] = Put(existing.decode(), False, from_micros(before))
        return answers

    async def promote(self, limit: int, *, now: datetime | None = None) -> tuple[int, datetime | None]:
        looked_at, next_due = await self._wire.call("promote", moment(now), limit)
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
        words = (moment(now), node, request, limit, micros(lease), wanted, names, staff, self._sleep.claim())
        bell: bytes | int = b""
        try:
            answer = await self._wire.call("claim", *words, lane="claim")
            while answer is None and handlers is not None:
                await self._staff.tell(handlers)
                answer = await self._wire.call("claim", *words, lane="claim")
            at, expires, fence, next_due, lent, bodies, lives, bell = answer
        finally:
            self._sleep.claimed(bell)
        if expires == 0:
            again = _claims(lent[::2], lent[1::2], bodies, lives, at)
            return Claimed(sorted(again, key=lambda claim: claim.fence), _instant(next_due))
        started_at, expires_at = from_micros(at), from_micros(expires)
        before = dict(zip(lives[::2], lives[1::2], strict=True)) if lives else {}
        claims = []
        created = due = at
        created_at = due_at = started_at
        for number, body in enumerate(bodies_of(bodies, len(lent) // 2), 1):
            life = life_of(before[number]) if number in before else None
            run_id, ready = lent[2 * number - 2].decode(), int(lent[2 * number - 1])
            if body.created != created:  # runs that were put together have one
                created, created_at = body.created, from_micros(body.created)
            if body.due != due:  # and so have those that are due together
                due, due_at = body.due, from_micros(body.due)
            ready_at = due_at if ready == due else from_micros(ready)
            run = lent_run(
                run_id, due_at, ready_at, body, life, fence, node, request, created_at, started_at, expires_at
            )
            claims.append(Claim(run, fence, expires_at))
            fence += 1
        if claims:
            self._wire.incarnation.saw(claims[-1].fence)
        return Claimed(claims, _instant(next_due))

    async def renew(
        self, beats: Sequence[Beat], lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> Renewal:
        lost: list[str] = []
        cancelled: list[str] = []
        for some in slices_of(beats, _RENEW) if beats else [beats]:
            told = [b"" if beat.progress is None else encode(beat.progress) for beat in some]
            gone, wanted = await self._wire.call(
                "renew",
                moment(now),
                micros(lease),
                quiet_for(silence),
                encode([beat.run_id for beat in some]),
                b"".join([beat.fence.to_bytes(8, "big") for beat in some]),
                encode([len(each) for each in told]),
                b"".join(told),
            )
            lost += [some[number - 1].run_id for number in gone]
            cancelled += [some[number - 1].run_id for number in wanted]
        return Renewal(tuple(lost), tuple(cancelled))

    # --- settling

    async def settle(self, settlements: Sequence[Settlement]) -> list[str]:
        stale: list[str] = []
        for some in slices_of(settlements, _SETTLE):
            numbers = await self._wire.call("settle", *rows_of(some), lane="settle")
            stale += [some[number - 1].run_id for number in numbers]
        return stale

    async def reap(
        self, limit: int, lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> list[Claim]:
        expires, ids, bodies, lives = await self._wire.call(
            "reap", moment(now), limit, micros(lease), quiet_for(silence)
        )
        return _claims(ids, [expires] * len(ids), bodies, lives, 0)

    # --- holding

    async def hold(self, key: str, run_ids: Sequence[str]) -> list[str]:
        taken: list[str] = []
        for some in slices_of(run_ids, _HOLD):
            taken += [run_id.decode() for run_id in await self._wire.call("hold", key, encode(list(some)))]
        return taken

    async def unhold(self, key: str, limit: int) -> int:
        number = 0
        while number < limit:
            some: int = await self._wire.call("unhold", key, limit - number)
            number += some
            if some < min(limit, _HOLD):
                break
        return number

    async def holds(self) -> dict[str, int]:
        counted = await self._wire.call("holds")
        return {key.decode(): int(number) for key, number in zip(counted[::2], counted[1::2], strict=True)}

    # --- placing

    async def unplaced(self, limit: int, after: Run | None = None, *, now: datetime | None = None) -> list[Run]:
        return await listing.unplaced(self._wire, limit, after, now)

    async def assign(self, assignments: Sequence[Assignment]) -> list[bool]:
        given: list[bool] = []
        for some in slices_of(assignments, _HOLD):
            words = [word for assignment in some for word in (assignment.run_id, assignment.node)]
            given += [bool(number) for number in await self._wire.call("assign", encode(words))]
        return given

    async def unassign(self, node: str, limit: int) -> int:
        number = 0
        while number < limit:
            some: int = await self._wire.call("unassign", node, limit - number)
            number += some
            if some < _HOLD:
                break
        return number

    async def assigned(self, *, now: datetime | None = None) -> dict[str, Share]:
        flat = await self._wire.call("assigned", moment(now))
        shares = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        return {node.decode(): Share(due, upcoming) for node, due, upcoming in shares}

    async def wait(self, node: str, queues: Sequence[str] | None, timeout: float) -> None:
        await self._sleep.until_rung(timeout)


def moment(now: datetime | None) -> bytes | int:
    """An instant that a test gave, or none: the server's clock decides."""
    return b"" if now is None else to_micros(now)


def micros(seconds: float) -> int:
    return round(min(seconds, 1e9) * 1_000_000)


def quiet_for(seconds: float | None) -> bytes | int:
    """The longest silence that says nothing, in microseconds; or that none says anything."""
    return b"" if seconds is None else micros(seconds)


def slices_of(items: Sequence[_T], most: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), most):
        yield items[start : start + most]


def _instant(text: bytes | int) -> datetime | None:
    return from_micros(int(text)) if text != b"" else None


def _claims(
    ids: Sequence[bytes], expiries: Sequence[Any], bodies: bytes, lives: Sequence[bytes], now: int
) -> list[Claim]:
    """Claims of runs that are running, from their records."""
    claims = []
    for run_id, until, body, text in zip(ids, expiries, bodies_of(bodies, len(ids)), lives, strict=True):
        life, expires = life_of(text), int(until)
        run = run_of(run_id.decode(), body, life, body.group is not None, expires, now)
        claims.append(Claim(run, life.fence, from_micros(expires)))
    return claims
