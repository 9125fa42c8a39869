"""What every queue must do with runs that nodes read before they are due, and begin when they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from duly.errors import ConfigurationError
from duly.model import Beat, BeatReply, Cause, Claim, JobChange, Pause, Run, State, Waiting, WhenFull
from duly.model.holds import UNPLACED
from duly.testing.conformance.world import LEASE, Scenario, Suite, World, failed, give, part, scenario


def _scheduled(world: World, job: str = "report", *, delay: float = 1.0, **fields: Any) -> Run:
    return world.run(job, cause=Cause.SCHEDULE, delay=delay, **fields)


async def _read(
    world: World,
    node: str = "node-1",
    *,
    queues: Sequence[str] | None = None,
    handlers: Collection[str] | None = None,
    seconds: float = 2.0,
) -> list[Run]:
    until = world.after(seconds)
    runs, cursor = await world.queue.read_ahead(node, queues, handlers, until, 2000, now=world.now)
    assert cursor is None
    return runs


async def _read_in_slices(world: World, limit: int, start: int, step: int) -> list[list[str]]:
    """The ids that `read_ahead` returns, call by call."""
    what = ("node-1", None, None, world.after(2), limit, start, step)
    found, cursor = await world.queue.read_ahead(*what, now=world.now)
    slices = [_ids(found)]
    while cursor is not None:
        found, cursor = await world.queue.read_ahead(*what, cursor, now=world.now)
        slices.append(_ids(found))
    return slices


async def _begin(world: World, *runs: Run, node: str = "node-1", request: int | None = None) -> list[Claim | None]:
    return await world.queue.begin(node, runs, LEASE, world.request() if request is None else request, now=world.now)


def _ids(runs: Sequence[Run]) -> list[str]:
    return [run.id for run in runs]


def reading(play: Scenario) -> Callable[[Suite], None]:
    """A scenario for backends that have the capability; on the others it does nothing."""

    @functools.wraps(play)
    async def where_it_is_possible(self: Suite, world: World) -> None:
        if world.backend.capabilities.reads_ahead:
            await play(self, world)

    return scenario(where_it_is_possible)


@part
class BeginningSuite:
    """Reading ahead, and beginning what was read. Without the capability nothing is read, and nothing begins."""

    @scenario
    async def test_without_the_capability_nothing_is_read_and_nothing_begins(self, world: World) -> None:
        if not world.backend.capabilities.reads_ahead:
            await world.put(run := _scheduled(world))
            assert await _read(world) == []
            world.advance(1)
            assert await _begin(world, run) == [None]
            assert len(await world.claim()) == 1

    # --- reading

    @reading
    async def test_scheduled_runs_that_are_soon_ready_are_read_by_ready_time(self, world: World) -> None:
        later, sooner = _scheduled(world, delay=1.5, payload=b'{"n":1}'), _scheduled(world, delay=0.5)
        await world.put(later, sooner, _scheduled(world, delay=2.5), _scheduled(world, delay=-1.0))
        read = await _read(world)
        assert _ids(read) == [sooner.id, later.id]
        assert read == [await world.stored(sooner), await world.stored(later)]
        assert [run.state for run in read] == [State.PENDING] * 2

    @reading
    async def test_only_scheduled_runs_are_read(self, world: World) -> None:
        await world.put(world.run(delay=1), world.run(delay=1, cause=Cause.TRIGGER))
        assert await _read(world) == []

    @reading
    async def test_what_this_node_could_not_claim_is_not_read(self, world: World) -> None:
        await world.put(
            _scheduled(world, queue="other"),
            _scheduled(world, "unknown"),
            _scheduled(world, hold="breaker:x"),
            _scheduled(world, queue="stopped"),
            run := _scheduled(world),
        )
        await world.store.pause("stopped")
        read = await _read(world, queues=["default", "stopped"], handlers={"report"})
        assert _ids(read) == [run.id]

    @reading
    async def test_runs_of_paused_jobs_are_not_read(self, world: World) -> None:
        await _pause(world, "paused")
        await world.put(_scheduled(world, "paused"))
        assert await _read(world) == []

    @reading
    async def test_an_assigned_run_is_read_by_its_node(self, world: World) -> None:
        run = _scheduled(world, hold=UNPLACED, assignable=True)
        await world.put(run)
        assert await _read(world) == []
        await give(world, run, "node-1")
        assert _ids(await _read(world)) == [run.id]
        assert await _read(world, "node-2") == []

    @reading
    async def test_a_run_that_was_tried_before_is_not_read(self, world: World) -> None:
        await world.put(_scheduled(world, delay=0.0))
        [claim] = await world.claim()
        await world.settle(claim, failed())
        assert await _read(world, seconds=1000) == []

    @reading
    async def test_nodes_can_read_different_runs_in_slices(self, world: World) -> None:
        runs = [_scheduled(world, delay=1 + number / 100) for number in range(10)]
        await world.put(*runs)

        async def read(limit: int, start: int, step: int) -> list[list[str]]:
            return await _read_in_slices(world, limit, start, step)

        ids = _ids(runs)
        assert [await read(10, start, 3) for start in range(3)] == [[ids[start::3]] for start in range(3)]
        assert await read(2, 1, 3) == [[ids[1], ids[4]], [ids[7]]]
        assert await read(4, 0, 1) == [ids[:4], ids[4:8], ids[8:]]
        assert await read(5, 0, 2) == [ids[::2]]
        assert await read(1, 0, 5) == [[ids[0]], [ids[5]]]

    @reading
    async def test_slices_of_runs_that_are_ready_together_go_by_their_ids(self, world: World) -> None:
        runs = [_scheduled(world, priority=number % 3, queue=("mail", "default")[number % 2]) for number in range(12)]
        await world.put(*runs)
        assert await _read_in_slices(world, 5, 0, 1) == [_ids(runs)[:5], _ids(runs)[5:10], _ids(runs)[10:]]

    @reading
    async def test_reading_continues_behind_a_run_that_is_gone(self, world: World) -> None:
        runs = [_scheduled(world) for _ in range(6)]
        await world.put(*runs)
        found, cursor = await world.queue.read_ahead("node-1", None, None, world.after(2), 3, now=world.now)
        assert _ids(found) == _ids(runs)[:3]
        await world.store.cancel([runs[2].id], now=world.now)
        found, cursor = await world.queue.read_ahead(
            "node-1", None, None, world.after(2), 3, cursor=cursor, now=world.now
        )
        assert (_ids(found), cursor) == (_ids(runs)[3:], None)

    @reading
    async def test_a_cursor_that_no_store_made_is_refused(self, world: World) -> None:
        for cursor in ("", "x", "1", "1.", "1.\x00", "é.1"):
            with pytest.raises(ConfigurationError):
                await world.queue.read_ahead("node-1", None, None, world.after(2), 3, cursor=cursor, now=world.now)

    # --- beginning

    @reading
    async def test_a_run_that_was_read_begins_at_its_ready_time(self, world: World) -> None:
        await world.put(_scheduled(world, payload=b'{"n":1}', queue="mail"))
        [read] = await _read(world)
        world.advance(1)
        [claim] = await _begin(world, read, node="node-7")
        assert claim is not None
        assert claim.expires_at == world.after(LEASE)
        assert claim.run == await world.stored(read)
        assert (claim.run.state, claim.run.node, claim.run.started_at) == (State.RUNNING, "node-7", world.now)
        assert (claim.run.fence, claim.run.payload) == (claim.fence, b'{"n":1}')
        assert await world.claim() == []
        counts = await world.store.counts(now=world.now)
        assert counts.queues["mail"].running == 1
        assert await world.settle(claim)
        assert await world.state(read) is State.COMPLETED

    @reading
    async def test_a_run_does_not_begin_before_it_is_ready(self, world: World) -> None:
        await world.put(_scheduled(world))
        [read] = await _read(world)
        world.advance(0.999)
        assert await _begin(world, read) == [None]
        assert await world.state(read) is State.PENDING
        world.advance(0.001)
        [claim] = await world.claim()
        assert claim.run.id == read.id

    @reading
    async def test_a_run_begins_once(self, world: World) -> None:
        await world.put(*(_scheduled(world) for _ in range(3)))
        read = await _read(world)
        world.advance(1)
        [first] = await world.claim(1)
        begun = await _begin(world, *read, node="node-2")
        assert [None if claim is None else claim.run.id for claim in begun] == [
            None if run.id == first.run.id else run.id for run in read
        ]
        assert await _begin(world, *read, node="node-3") == [None] * 3
        fences = [claim.fence for claim in begun if claim is not None]
        assert first.fence < fences[0] < fences[1]

    @reading
    async def test_a_run_that_another_node_promoted_begins(self, world: World) -> None:
        await world.put(_scheduled(world), _scheduled(world, group="g"))
        read = await _read(world)
        world.advance(1)
        await world.queue.promote(10, now=world.now)
        assert None not in await _begin(world, *read)
        assert await world.claim() == []

    @reading
    async def test_a_repeat_returns_the_same_claims(self, world: World) -> None:
        await world.put(*(_scheduled(world) for _ in range(3)))
        read = await _read(world)
        world.advance(1)
        number = world.request()
        begun = await _begin(world, *read, request=number)
        [first, *_] = [claim for claim in begun if claim is not None]
        await world.settle(first)
        again = await _begin(world, *read, request=number)
        assert again == [None if claim is None or claim.run.id == first.run.id else claim for claim in begun]

    @reading
    async def test_what_changed_since_it_was_read_does_not_begin(self, world: World) -> None:
        runs = [_scheduled(world, job) for job in ("cancelled", "paused", "held", "stopped")]
        runs[3] = replace(runs[3], queue="stopped")
        await world.put(*runs)
        read = {run.job: run for run in await _read(world)}
        await world.store.cancel([read["cancelled"].id], now=world.now)
        await _pause(world, "paused")
        await world.store.pause("stopped")
        world.advance(1)
        await world.claim(handlers={"cancelled", "paused", "stopped"})
        assert await _begin(world, *(read[run.job] for run in runs)) == [None] * 4
        assert await world.state(read["stopped"]) in (State.PENDING, State.QUEUED)

    @reading
    async def test_a_run_that_was_planned_again_does_not_begin_as_it_was_read(self, world: World) -> None:
        record = world.record("report")
        await world.create(record)
        due = world.after(1)
        await world.put(world.planned(record, due, payload=b'{"n":1}'))
        [read] = await _read(world)
        changed = replace(record, revision=2)
        assert await world.store.save([JobChange(changed, 1, waiting=Waiting.REWIND)], now=world.advance(0.1)) != [None]
        assert await world.state(read) is None
        assert await _begin(world, read) == [None]
        await world.put(world.planned(changed, due, payload=b'{"n":2}'))
        world.advance(1)
        assert await _begin(world, read) == [None]
        [claim] = await world.claim()
        assert claim.run.payload == b'{"n":2}'

    @reading
    async def test_a_run_that_should_have_started_by_now_does_not_begin(self, world: World) -> None:
        run = _scheduled(world)
        await world.put(replace(run, start_by=world.after(1.5)))
        [read] = await _read(world)
        world.advance(1.6)
        assert await _begin(world, read) == [None]

    @reading
    async def test_a_run_enters_its_group_when_it_begins(self, world: World) -> None:
        await world.put(*(_scheduled(world, group="g", limit=2, when_full=WhenFull.QUEUE) for _ in range(3)))
        read = await _read(world)
        world.advance(1)
        first, second, third = await _begin(world, *read)
        assert first is not None
        assert second is not None
        assert third is None
        assert (await world.stored(read[0])).member
        assert await world.claim() == []
        await world.settle(first)
        [last] = await world.claim()
        assert last.run.id == read[2].id

    @reading
    async def test_a_begun_run_is_renewed_and_reaped_as_any(self, world: World) -> None:
        await world.put(_scheduled(world))
        read = await _read(world)
        world.advance(1)
        [claim] = await _begin(world, *read)
        assert claim is not None
        renewal = await world.queue.renew([Beat(claim.run.id, claim.fence)], LEASE, now=world.advance(LEASE / 2))
        assert renewal.replies == (BeatReply.KEPT,)
        [taken] = await world.queue.reap(10, LEASE, now=world.advance(LEASE + 1))
        assert (taken.run.id, taken.run.node) == (claim.run.id, "node-1")
        assert not await world.settle(claim)

    @reading
    async def test_many_runs_begin_together(self, world: World) -> None:
        await world.put(*(_scheduled(world, f"job-{number}", group=f"job-{number}") for number in range(1200)))
        read = await _read(world)
        world.advance(1)
        begun = await _begin(world, *read)
        assert [claim.run.id for claim in begun if claim is not None] == _ids(read)
        assert len(read) == 1200


async def _pause(world: World, name: str) -> None:
    record = world.record(name, every=None)
    await world.create(record)
    await world.store.save([JobChange(replace(record, revision=2, paused=Pause(world.now)), 1)], now=world.now)
