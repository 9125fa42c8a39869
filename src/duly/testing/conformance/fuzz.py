"""Fuzz: several workers with separate sessions do everything at once, crash, come back late, and lose answers.

A seed decides what each of them tries; time is moved by them, not by a clock. Afterwards everything is drained and the
record of all answers is checked (`answers.problems`): in whatever order the store applied the calls, no run ever had
two owners, nothing was lost, nothing is stuck, and the counters are right.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime

from msgspec.structs import replace

from duly.model import (
    Beat,
    BeatReply,
    Cancelled,
    Cause,
    Claim,
    Delivery,
    Failed,
    Failure,
    Interrupted,
    Lost,
    Outcome,
    Progress,
    RetrySpec,
    Run,
    RunPolicy,
    RunQuery,
    Settlement,
    Succeeded,
    TimedOut,
    Verdict,
    WhenFull,
    shift,
)
from duly.model.holds import ALONE, held_group
from duly.ports import Backend
from duly.rules.settling import settle
from duly.testing.conformance.answers import (
    Added,
    Answers,
    CancelAsked,
    Ending,
    Glance,
    Grant,
    Held,
    Offer,
    Renewed,
    Span,
    Unheld,
    problems,
)
from duly.testing.conformance.world import LEASE, Suite, World, part, scenario

LIMITS = {"one": 1, "two": 2, "three": 3}
CLAIMERS = 4
STEPS = 60
_ALL = 1000
_PATIENCE = 200
_FAILURE = Failure("ValueError", "boom")
_OUTCOMES: tuple[Outcome, ...] = (
    Succeeded(),
    Succeeded(b'"kept"'),
    Succeeded(),
    Failed(_FAILURE),
    Failed(_FAILURE, delay=0.0),
    Failed(_FAILURE, Verdict.NEVER),
    TimedOut(_FAILURE),
    Cancelled(),
    Interrupted(),
    Interrupted(began=False),
)


def chaos(seed: int) -> Callable[[Suite], None]:
    """The scenario of one seed."""

    @scenario
    async def test(_: Suite, world: World) -> None:
        answers = Answers()
        async with AsyncExitStack() as stack:
            sessions = [await stack.enter_async_context(world.backend.session()) for _ in range(CLAIMERS)]
            claimers = [Claimer(n, Witness(session, world, answers), seed) for n, session in enumerate(sessions)]
            async with asyncio.TaskGroup() as tasks:
                for claimer in claimers:
                    tasks.create_task(claimer.work(STEPS))
        ending = await _drain(Witness(world.backend, world, answers), random.Random(seed))
        wrong = problems(answers, ending, LIMITS)
        assert not wrong, f"seed {seed}: {len(wrong)} problems\n" + "\n".join(wrong[:20])

    return test


@part
class FuzzSuite:
    """Cases that no scenario covers. The number is the seed; run that test again to reproduce a failure."""

    test_chaos_1 = chaos(1)
    test_chaos_2 = chaos(2)
    test_chaos_3 = chaos(3)
    test_chaos_4 = chaos(4)
    test_chaos_5 = chaos(5)
    test_chaos_6 = chaos(6)


class Witness:
    """A session whose answers are recorded."""

    def __init__(self, session: Backend, world: World, answers: Answers) -> None:
        self.queue = session.queue
        self.store = session.store
        self.world = world
        self.answers = answers

    @property
    def now(self) -> datetime:
        return self.world.now

    async def put(self, runs: list[Run]) -> None:
        asked = self.answers.tick()
        puts = await self.queue.put(runs, now=self.now)
        span = Span(asked, self.answers.tick())
        for run, put in zip(runs, puts, strict=True):
            self.answers.added.append(Added(span, run, put))
            if put.created and run.hold is not None:
                self.answers.held.append(Held(span, run.hold, run.id))

    async def claim(
        self, node: str, queues: list[str] | None, handlers: set[str] | None, limit: int, request: int
    ) -> list[Claim]:
        asked, now = self.answers.tick(), self.now
        claimed = await self.queue.claim(node, queues, handlers, limit, LEASE, request, now=now)
        span = Span(asked, self.answers.tick())
        self.answers.grants += [Grant(span, now, claim, node, request) for claim in claimed.claims]
        return claimed.claims

    async def reap(self, limit: int) -> list[Claim]:
        asked, now = self.answers.tick(), self.now
        claims = await self.queue.reap(limit, LEASE, now=now)
        span = Span(asked, self.answers.tick())
        self.answers.grants += [Grant(span, now, claim, claim.run.node or "", None) for claim in claims]
        return claims

    async def claim_held(self, node: str, run_id: str, request: int) -> list[Claim]:
        asked, now = self.answers.tick(), self.now
        claim = await self.queue.claim_held(ALONE, run_id, node, LEASE, request, now=now)
        span = Span(asked, self.answers.tick())
        claims = [] if claim is None else [claim]
        self.answers.grants += [Grant(span, now, claim, node, request) for claim in claims]
        return claims

    async def read_ahead(self, node: str) -> list[Run]:
        runs, _ = await self.queue.read_ahead(node, None, None, self.world.after(25), 10, now=self.now)
        return runs

    async def begin(self, node: str, runs: list[Run], request: int) -> list[Claim]:
        asked, now = self.answers.tick(), self.now
        claims = [claim for claim in await self.queue.begin(node, runs, LEASE, request, now=now) if claim is not None]
        span = Span(asked, self.answers.tick())
        self.answers.grants += [Grant(span, now, claim, node, request) for claim in claims]
        return claims

    async def renew(self, beats: list[Beat]) -> set[int]:
        """The fences that no longer own their runs."""
        asked, now = self.answers.tick(), self.now
        replies = (await self.queue.renew(beats, LEASE, now=now)).replies
        lost = {beat.fence for beat, reply in zip(beats, replies, strict=True) if reply is BeatReply.LOST}
        known = [beat for beat, reply in zip(beats, replies, strict=True) if reply is not BeatReply.BUSY]
        span = Span(asked, self.answers.tick())
        self.answers.renewed += [Renewed(span, beat, shift(now, LEASE), beat.fence in lost) for beat in known]
        return lost

    async def settle(self, settlements: list[Settlement]) -> None:
        asked = self.answers.tick()
        fresh = await self.queue.settle(settlements)
        span = Span(asked, self.answers.tick())
        self.answers.offers += [
            Offer(span, each, not is_fresh) for each, is_fresh in zip(settlements, fresh, strict=True)
        ]

    async def cancel(self, run_ids: list[str]) -> None:
        asked = self.answers.tick()
        replies = await self.store.cancel(run_ids, "by fuzz", now=self.now)
        span = Span(asked, self.answers.tick())
        self.answers.cancels += [CancelAsked(span, *each) for each in zip(run_ids, replies, strict=True)]

    async def unhold(self, key: str, limit: int) -> None:
        asked = self.answers.tick()
        await self.queue.unhold(key, limit)
        self.answers.unheld.append(Unheld(Span(asked, self.answers.tick()), key))

    async def look(self) -> list[Run]:
        asked = self.answers.tick()
        page = await self.store.runs(RunQuery(), _ALL, now=self.now)
        self.answers.glances.append(Glance(Span(asked, self.answers.tick()), page.runs))
        return page.runs


class Claimer:
    """A worker that does anything at any time. After a crash it continues as a new node without memory."""

    def __init__(self, number: int, witness: Witness, seed: int) -> None:
        self._number = number
        self._witness = witness
        self._rng = random.Random(f"{seed}/{number}")
        self._life = 0
        self._request = 1
        self._mine: list[Claim] = []
        self._late: list[Settlement] = []
        self._read: list[Run] = []

    async def work(self, steps: int) -> None:
        ways: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._put, 6),
            (self._claim, 8),
            (self._claim_twice, 2),
            (self._claim_again, 4),
            (self._claim_held, 3),
            (self._read_ahead, 3),
            (self._begin, 5),
            (self._renew, 5),
            (self._settle, 9),
            (self._settle_later, 2),
            (self._settle_late, 3),
            (self._reap, 4),
            (self._cancel, 2),
            (self._put_held, 1),
            (self._unhold, 1),
            (self._promote, 1),
            (self._crash, 1),
            (self._look, 1),
            (self._let_time_pass, 6),
        ]
        chosen = self._rng.choices([way for way, _ in ways], [weight for _, weight in ways], k=steps)
        for way in (self._put, *chosen):
            await way()
            await asyncio.sleep(0)

    @property
    def _node(self) -> str:
        return f"node-{self._number}.{self._life}"

    # --- putting

    async def _put(self) -> None:
        runs = [self._run() for _ in range(self._rng.randint(1, 4))]
        if self._rng.random() < 0.2:
            runs.append(self._rng.choice(runs))
        if self._rng.random() < 0.2 and self._witness.answers.added:
            runs.append(self._rng.choice(self._witness.answers.added).run)
        await self._witness.put(runs)

    def _run(self) -> Run:
        rng = self._rng
        group = rng.choice([None, None, None, *LIMITS])
        return self._witness.world.run(
            rng.choice(["mail", "sms", "report"]),
            delay=rng.choice([-2.0, 0.0, 0.0, 1.5, 20.0]),
            queue=rng.choice(["default", "other"]),
            priority=rng.choice([0, 0, 5, 9]),
            cause=rng.choice([Cause.SUBMIT, Cause.SCHEDULE]),
            dedupe_key=rng.choice([None, None, None, "a", "b"]),
            group=group,
            limit=LIMITS.get(group or "", 1),
            when_full=rng.choice(list(WhenFull)),
            policy=RunPolicy(
                retry=RetrySpec(max_retries=rng.randint(0, 2), max_interval=5.0),
                delivery=rng.choice([Delivery.AT_LEAST_ONCE, Delivery.AT_LEAST_ONCE, Delivery.AT_MOST_ONCE]),
            ),
        )

    # --- owning

    async def _claim(self) -> None:
        self._request += 1
        self._own(await self._ask())

    async def _claim_held(self) -> None:
        """Take suspects, as others do at the same time."""
        for run in (await self._witness.queue.held(ALONE, 3, now=self._witness.now))[:2]:
            self._request += 1
            self._own(await self._witness.claim_held(self._node, run.id, self._request))

    async def _read_ahead(self) -> None:
        self._read = await self._witness.read_ahead(self._node)

    async def _begin(self) -> None:
        """Begin what was read some time ago; others may have it, and so may this node."""
        self._request += 1
        self._own(await self._witness.begin(self._node, self._read, self._request))

    async def _claim_twice(self) -> None:
        """The first answer is lost."""
        self._request += 1
        state = self._rng.getstate()
        await self._ask()
        self._rng.setstate(state)
        if self._rng.random() < 0.5:
            await asyncio.sleep(0)
        self._own(await self._ask())

    async def _claim_again(self) -> None:
        """A copy of the latest request arrives late; what it brings beyond the first answer would be new."""
        known = {grant.fence for grant in self._witness.answers.grants if grant.request is not None}
        self._own([claim for claim in await self._ask() if claim.fence not in known])

    def _own(self, claims: list[Claim]) -> None:
        """A newer claim of a run takes the place of an older one: answers name runs, not fences."""
        newer = {claim.run.id for claim in claims}
        self._mine = [claim for claim in self._mine if claim.run.id not in newer] + claims

    async def _ask(self) -> list[Claim]:
        queues = self._rng.choice([None, None, ["default"], ["other", "default"]])
        handlers = self._rng.choice([None, None, {"mail", "sms", "report"}, {"mail"}])
        return await self._witness.claim(self._node, queues, handlers, self._rng.randint(1, 5), self._request)

    async def _renew(self) -> None:
        progress = self._rng.choice([None, Progress(1, 2)])
        lost = await self._witness.renew([Beat(claim.run.id, claim.fence, progress) for claim in self._mine])
        self._mine = [claim for claim in self._mine if claim.fence not in lost]

    async def _settle(self) -> None:
        settlements = self._outcomes()
        for _ in range(self._rng.choice([1, 1, 1, 2])):
            await self._witness.settle(settlements)

    def _outcomes(self) -> list[Settlement]:
        """End some of what this claimer has."""
        self._rng.shuffle(self._mine)
        count = self._rng.randint(0, len(self._mine))
        ended, self._mine = self._mine[:count], self._mine[count:]
        return [_settled(claim, self._rng.choice(_OUTCOMES), self._witness.now) for claim in ended]

    async def _settle_later(self) -> None:
        self._late += self._outcomes()

    async def _settle_late(self) -> None:
        self._rng.shuffle(self._late)
        for offered in self._late[:3]:
            await self._witness.settle([offered])
            if self._rng.random() < 0.7:
                self._late.remove(offered)

    async def _reap(self) -> None:
        taken = await self._witness.reap(self._rng.randint(1, 6))
        if self._rng.random() < 0.8:
            await self._witness.settle([_settled(claim, Lost(), self._witness.now) for claim in taken])

    async def _crash(self) -> None:
        self._mine.clear()
        self._life += 1

    # --- operating

    async def _cancel(self) -> None:
        await self._witness.cancel(self._some_ids(2))

    async def _put_held(self) -> None:
        key = self._rng.choice(["breaker:x", "breaker:y"])
        await self._witness.put([replace(self._run(), hold=key) for _ in range(self._rng.randint(1, 3))])

    async def _unhold(self) -> None:
        await self._witness.unhold(self._rng.choice(["breaker:x", "breaker:y"]), self._rng.randint(1, 3))

    def _some_ids(self, most: int) -> list[str]:
        ids = list(self._witness.answers.created)
        return self._rng.sample(ids, min(most, len(ids)))

    async def _promote(self) -> None:
        await self._witness.queue.promote(self._rng.choice([1, 5, 100]), now=self._witness.now)

    async def _look(self) -> None:
        await self._witness.look()

    async def _let_time_pass(self) -> None:
        self._witness.world.advance(self._rng.choice([0.3, 1.0, 4.0, LEASE - 1, LEASE]))


def _settled(claim: Claim, outcome: Outcome, now: datetime) -> Settlement:
    return settle(claim.run, claim.fence, outcome, now, dice=0.5)


def _in_line(world: World, group: str) -> Run:
    return world.run(group=group, limit=LIMITS[group], when_full=WhenFull.QUEUE)


async def _drain(witness: Witness, rng: random.Random) -> Ending:
    """Reap, unhold, claim and settle until every run has ended, within a limit. Groups must empty on their own."""
    await witness.put([_in_line(witness.world, group) for group in LIMITS for _ in range(5)])
    for request in range(1, _PATIENCE):
        witness.world.advance(LEASE * 2)
        taken = await witness.reap(_ALL)
        await witness.settle([_settled(claim, Lost(), witness.now) for claim in taken])
        for key in await witness.queue.holds():
            if held_group(key) is None:
                await witness.unhold(key, _ALL)
        claims = await witness.claim("drain", None, None, _ALL, request)
        await witness.settle([_settled(claim, Succeeded(), witness.now) for claim in claims])
        left = [run for run in await witness.look() if not run.final]
        if not left:
            break
        waiting = [run.id for run in left if run.hold is None]
        if waiting and request < 6:  # it may be the one that is next in its group's line
            await witness.cancel([rng.choice(waiting)])
    return Ending(
        runs={run.id: run for run in await witness.look()},
        holds=await witness.queue.holds(),
        counts=await witness.store.counts(now=witness.now),
        statistics=await witness.store.statistics(),
    )
