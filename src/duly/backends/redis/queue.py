"""The queue port on Redis: encodes batches for the scripts of the hot path and decodes their replies."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from duly.backends.codec import begun as begun_claim
from duly.backends.handler_sets import HandlerSetCache, digest_of
from duly.backends.redis import listing
from duly.backends.redis.client import RedisClient, slices_of
from duly.backends.redis.codec import (
    batch_arguments,
    bodies_of,
    claimed_run,
    encode,
    instant_of,
    is_plain,
    plain_arguments,
    run_of,
    score_of,
    status_of,
)
from duly.backends.redis.listing import decoded
from duly.backends.redis.pubsub import Wakeup
from duly.backends.redis.reporting import SettlementBatch
from duly.backends.tolerance import UNREADABLE
from duly.model import (
    EPOCH,
    Assignment,
    Beat,
    BeatReply,
    Claim,
    Claimed,
    EndedProcess,
    Put,
    Renewal,
    Run,
    Settlement,
    Share,
    State,
    from_micros,
    to_micros,
)

_PUT = 125  # larger ones gain nothing, and smaller ones let the server and this process work at the same time
_CONCURRENT_PUTS = 4
_SETTLE = 500
_RENEW = 1000
_FEW_HANDLERS = 32
_BEGIN = 1000
_READ_AHEAD = 500


class RedisQueue:
    """One script call per verb and slice. Claims, settlements and puts have separate connections."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._wakeup = Wakeup(client)
        self._handler_sets = HandlerSetCache(_handler_arguments)
        self._has_put = False

    # --- putting

    async def put(self, runs: Sequence[Run], *, now: datetime | None = None) -> list[Put]:
        if len(runs) <= _PUT:
            return await self._put_alone(runs, now) or await self._put_slice(runs, now) if runs else []
        answers: list[Put] = []
        if not self._has_put:  # the first goes alone: if the server lacks the script, it would be repeated after others
            answers = await self._put_slice(runs[:_PUT], now)
            self._has_put = True
        window = asyncio.Semaphore(_CONCURRENT_PUTS)
        slices: list[asyncio.Task[list[Put]]] = []
        async with asyncio.TaskGroup() as tasks:  # one connection: the slices arrive in order
            for some in slices_of(runs[len(answers) :], _PUT):
                slices.append(tasks.create_task(self._put_in_turn(some, now, window)))
                await asyncio.sleep(0)  # sends it, so that the server works while the next one is encoded
        return answers + [put for some in slices for put in some.result()]

    async def _put_alone(self, runs: Sequence[Run], now: datetime | None) -> list[Put] | None:
        """Put one run that is ready and needs nothing else by a shorter script. None: it needs the general one."""
        run = runs[0]
        if len(runs) > 1 or not is_plain(run) or run.ready_at > (now or self._client.now()):
            return None
        added, total = await self._client.call_at(now, "put_one", *plain_arguments(run), connection="put")
        if not added:
            return None
        self._client.identity.saw_added(total)
        return [Put(run.id, True, from_micros(added))]

    async def _put_in_turn(self, runs: Sequence[Run], now: datetime | None, window: asyncio.Semaphore) -> list[Put]:
        """Encode a slice while the server works on earlier ones; the window keeps each within its deadline."""
        async with window:
            return await self._put_slice(runs, now)

    async def _put_slice(self, runs: Sequence[Run], now: datetime | None = None) -> list[Put]:
        at, total, *refused = await self._client.call_at(now, "put", *batch_arguments(runs), connection="put")
        self._client.identity.saw_added(total)
        created_at = from_micros(at)
        answers = [Put(run.id, True, created_at) for run in runs]
        for number, existing, before in zip(refused[::3], refused[1::3], refused[2::3], strict=True):
            answers[number - 1] = Put(existing.decode(), False, from_micros(before))
        return answers

    async def promote(self, limit: int, *, now: datetime | None = None) -> tuple[int, datetime | None]:
        count, next_due = await self._client.call_at(now, "promote", limit)
        return count, _instant(next_due)

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
        arguments = (
            node,
            request,
            limit,
            _micros(lease),
            b"" if queues is None else encode(list(queues)),
            *self._handler_sets.of(handlers),
            self._wakeup.before_claim(),
        )
        wakeups: bytes | int = b""
        try:
            answer = await self._client.call_at(now, "claim", *arguments, connection="claim")
            while answer is None and handlers is not None:
                await self._store_handler_set(handlers)
                answer = await self._client.call_at(now, "claim", *arguments, connection="claim")
            at, expires, fence, next_due, claimed, bodies, statuses, wakeups = answer
        finally:
            self._wakeup.after_claim(wakeups)
        if expires == 0:  # this request was answered before
            again = await self._running(claimed[::2], claimed[1::2], bodies, statuses, at)
            return Claimed(sorted(again, key=lambda claim: claim.fence), _instant(next_due))
        if claimed:
            self._client.identity.saw(fence + len(claimed) // 2 - 1)
        try:
            claims = _new_claims(node, request, at, expires, fence, claimed, bodies, statuses)
        except UNREADABLE:  # they are claimed nevertheless: read them one by one, so that one bad record is alone
            claims = await self._claimed_one_by_one(decoded(claimed[::2]), fence, expires)
        return Claimed(claims, _instant(next_due))

    async def read_ahead(
        self,
        node: str,
        queues: Sequence[str] | None,
        handlers: Collection[str] | None,
        until: datetime,
        limit: int,
        start: int = 0,
        step: int = 1,
        cursor: str | None = None,
        *,
        now: datetime | None = None,
    ) -> tuple[list[Run], str | None]:
        runs: list[Run] = []
        for offset in range(0, limit, _READ_AHEAD):
            some = min(_READ_AHEAD, limit - offset)
            read, cursor = await listing.coming(self._client, until, some, start, step, cursor, now)
            runs += [
                run
                for run in read
                if run.assignee in {None, node}
                and (queues is None or run.queue in queues)
                and (handlers is None or run.handler in handlers)
            ]
            if cursor is None:
                break
        return runs, cursor

    async def begin(
        self, node: str, runs: Sequence[Run], lease: float, request: int, *, now: datetime | None = None
    ) -> list[Claim | None]:
        begun: list[Claim | None] = []
        for some in slices_of(runs, _BEGIN):
            begun += await self._begin(node, some, lease, request, now)
        return begun

    async def _begin(
        self, node: str, runs: Sequence[Run], lease: float, request: int, now: datetime | None
    ) -> list[Claim | None]:
        created = b"".join([to_micros(run.created_at or EPOCH).to_bytes(8, "big", signed=True) for run in runs])
        arguments = (node, request, _micros(lease), encode([run.id for run in runs]), created)
        at, expires, *answer = await self._client.call_at(now, "begin", *arguments, connection="claim")
        if expires == 0:  # this request was answered before
            ids, bodies, statuses = answer
            again = await self._running(ids[::2], ids[1::2], bodies, statuses, at)
            known = {claim.run.id: claim for claim in again}
            return [known.get(run.id) for run in runs]
        fence, numbers = answer
        claims: list[Claim | None] = [None] * len(runs)
        times = (from_micros(at), from_micros(expires))
        for place, number in enumerate(numbers):
            claims[number - 1] = begun_claim(runs[number - 1], fence + place, node, request, *times)
        if numbers:
            self._client.identity.saw(fence + len(numbers) - 1)
        return claims

    async def _store_handler_set(self, handlers: Collection[str]) -> None:
        _, digest = self._handler_sets.of(handlers)
        await self._client.call("store_handler_set", digest, encode(sorted(handlers)))

    async def _claimed_one_by_one(self, run_ids: Sequence[str], first: int, expires: int) -> list[Claim]:
        """Claims of runs that were just claimed, under fences from the first on."""
        found = await listing.read_runs(self._client, run_ids, None)
        until = from_micros(expires)
        fences = {run_id: first + number for number, run_id in enumerate(run_ids)}
        runs = [replace(each.run, state=State.RUNNING, fence=fences[each.run.id], expires_at=until) for each in found]
        return [Claim(run, run.fence, until) for run in runs]

    async def renew(
        self, beats: Sequence[Beat], lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> Renewal:
        replies: list[BeatReply] = []
        silent_since: datetime | None = None
        for some in slices_of(beats, _RENEW) if beats else [beats]:
            progress = [b"" if beat.progress is None else encode(beat.progress) for beat in some]
            lost, cancelled, silent = await self._client.call_at(
                now,
                "renew",
                _micros(lease),
                _longest_silence(silence),
                encode([beat.run_id for beat in some]),
                b"".join([beat.fence.to_bytes(8, "big") for beat in some]),
                encode([len(each) for each in progress]),
                b"".join(progress),
            )
            some_replies = [BeatReply.KEPT] * len(some)
            for number in cancelled:
                some_replies[number - 1] = BeatReply.CANCEL
            for number in lost:
                some_replies[number - 1] = BeatReply.LOST
            replies += some_replies
            silent_since = instant_of(silent) if silent else silent_since
        return Renewal(tuple(replies), silent_since)

    # --- settling

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        fresh: list[bool] = []
        for some in slices_of(settlements, _SETTLE):
            batch = SettlementBatch(some)
            total, stale = await self._client.call("settle", *batch.arguments, connection="settle")
            self._client.identity.saw_settled(total)
            fresh += batch.answers(stale)
        return fresh

    async def reap(
        self, limit: int, lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> list[Claim]:
        expires, ids, bodies, statuses, before = await self._client.call_at(
            now, "reap", limit, _micros(lease), _longest_silence(silence)
        )
        return await self._taken_over(expires, ids, bodies, statuses, before)

    async def take_over(
        self, process: EndedProcess, limit: int, lease: float, *, now: datetime | None = None
    ) -> list[Claim]:
        given = (limit, _micros(lease), process.node, process.first, process.last)
        return await self._taken_over(*await self._client.call_at(now, "take_over", *given))

    async def _taken_over(
        self, expires: Any, ids: Sequence[bytes], bodies: bytes, statuses: Sequence[bytes], before: Sequence[Any]
    ) -> list[Claim]:
        """Claims under new fences; their runs have the expiry that they had before."""
        claims = await self._running(ids, [expires] * len(ids), bodies, statuses, 0)
        lapsed = {run_id.decode(): instant_of(until) for run_id, until in zip(ids, before, strict=True)}
        return [replace(claim, run=replace(claim.run, expires_at=lapsed[claim.run.id])) for claim in claims]

    async def _running(
        self, ids: Sequence[bytes], expiries: Sequence[Any], bodies: bytes, statuses: Sequence[bytes], now: int
    ) -> list[Claim]:
        """Claims of running runs, from their records."""
        claims = []
        try:
            for run_id, until, body, text in zip(ids, expiries, bodies_of(bodies, len(ids)), statuses, strict=True):
                status, expires = status_of(text), score_of(until)
                run = run_of(run_id.decode(), body, status, body.group is not None, expires, now)
                claims.append(Claim(run, status.fence, from_micros(expires)))
        except UNREADABLE:
            found = await listing.read_runs(self._client, decoded(ids), None)
            return [Claim(each.run, each.run.fence, each.run.expires_at or EPOCH) for each in found]
        return claims

    # --- holding

    async def unhold(self, key: str, limit: int) -> int:
        return await self._client.call_until_done("unhold", key, limit=limit)

    async def holds(self) -> dict[str, int]:
        counted = await self._client.on_key("HGETALL", "holds")
        return {key.decode(): int(number) for key, number in zip(counted[::2], counted[1::2], strict=True)}

    async def held(self, key: str, limit: int, after: Run | None = None, *, now: datetime | None = None) -> list[Run]:
        return await listing.held(self._client, key, limit, after, now)

    async def claim_held(
        self, key: str, run_id: str, node: str, lease: float, request: int, *, now: datetime | None = None
    ) -> Claim | None:
        arguments = (key, run_id, node, request, _micros(lease))
        expires, body, status = await self._client.call_at(now, "claim_held", *arguments, connection="claim")
        if not status:
            return None
        [claim] = await self._running([run_id.encode()], [expires], body, [status], 0)
        self._client.identity.saw(claim.fence)
        return claim

    # --- placing

    async def assign(self, assignments: Sequence[Assignment]) -> list[bool]:
        given: list[bool] = []
        for some in slices_of(assignments):
            flat = [word for assignment in some for word in (assignment.run_id, assignment.node)]
            given += [bool(number) for number in await self._client.call("assign", encode(flat))]
        return given

    async def unassign(self, node: str, limit: int) -> int:
        return await self._client.call_until_done("unassign", node, limit=limit)

    async def assigned(self, *, now: datetime | None = None) -> dict[str, Share]:
        flat = await self._client.call_at(now, "assigned")
        shares = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        return {node.decode(): Share(due, upcoming) for node, due, upcoming in shares}

    async def wait(self, node: str, queues: Sequence[str] | None, timeout: float) -> None:
        await self._wakeup.wait(timeout)


def _micros(seconds: float) -> int:
    return round(min(seconds, 1e9) * 1_000_000)


def _longest_silence(seconds: float | None) -> bytes | int:
    """The longest silence that does not count as an outage, in microseconds; empty: none counts."""
    return b"" if seconds is None else _micros(seconds)


def _instant(text: bytes | int) -> datetime | None:
    return instant_of(text) if text != b"" else None


def _handler_arguments(handlers: Collection[str] | None) -> tuple[bytes, bytes]:
    """Two arguments of `claim`: a few names, or the digest of a set that the server keeps; empty means any handler.

    A set that the server does not know makes `claim` return nothing; then it is stored, for a day.
    """
    if handlers is None:
        return b"", b""
    if len(handlers) <= _FEW_HANDLERS:
        return encode(list(handlers)), b""
    return b"", digest_of(handlers).encode()


def _new_claims(
    node: str,
    request: int,
    at: int,
    expires: int,
    fence: int,
    claimed: Sequence[bytes],
    bodies: bytes,
    statuses: Sequence[Any],
) -> list[Claim]:
    """Claims of runs that were just claimed, under fences from the first on."""
    started_at, expires_at = from_micros(at), from_micros(expires)
    before = dict(zip(statuses[::2], statuses[1::2], strict=True)) if statuses else {}
    claims = []
    created = due = at
    score = b""
    created_at = due_at = ready_at = started_at
    found = zip(claimed[::2], claimed[1::2], bodies_of(bodies, len(claimed) // 2), strict=True)
    for number, (run_id, ready, body) in enumerate(found, 1):
        status = status_of(before[number]) if number in before else None
        if body.created != created:  # runs that were put together share it
            created, created_at = body.created, from_micros(body.created)
        if body.due != due:  # and runs that are due together share this
            due, due_at = body.due, from_micros(body.due)
            score = b""
        if ready != score:
            score, micros = ready, score_of(ready)
            ready_at = due_at if micros == due else instant_of(micros)
        run = claimed_run(
            run_id.decode(), due_at, ready_at, body, status, fence, node, request, created_at, started_at, expires_at
        )
        claims.append(Claim(run, fence, expires_at))
        fence += 1
    return claims
