"""A toy scheduler: the least that keeps every promise, to try the simulation kit on something small."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

from msgspec.structs import replace

from duly.errors import BackendUnavailable
from duly.model import (
    Beat,
    BeatReply,
    Cancelled,
    Cause,
    Delivery,
    Failed,
    Failure,
    Fired,
    Firing,
    Interrupted,
    JobChange,
    Lost,
    Pause,
    RetrySpec,
    Run,
    RunPolicy,
    State,
    Succeeded,
    Verdict,
    Waiting,
    WhenFull,
    recurring_id,
    shift,
)
from duly.model.holds import ALONE
from duly.rules.settling import settle

LEASE = 6.0
SLOTS = 4
HORIZON = 10.0
_FAILURE = Failure("ValueError", "boom")
_RETRY = RetrySpec(max_retries=2, max_interval=3.0)
_OUTCOMES = [
    *[Succeeded()] * 7,
    Failed(_FAILURE),
    Failed(_FAILURE),
    Failed(_FAILURE, Verdict.NEVER),
    Interrupted(),
]


class ToyNode:
    """One life of a node: claims, runs, renews, settles, reaps, and plans when it leads."""

    def __init__(self, history, node_id, session, clock, seed):
        self.history = history
        self.id = node_id
        self.queue, self.store, self.coordinator = session.queue, session.store, session.coordinator
        self.clock = clock
        self.rng = random.Random(f"toy/{seed}/{node_id}")
        self.live = {}
        self.request = 0
        self.cancelled = set()
        self.epoch = None
        self.lease = None
        self.tasks = asyncio.TaskGroup()

    async def serve(self):
        async with self.tasks:
            for service in (self._work, self._beat, self._reap, self._plan):
                self.tasks.create_task(service())

    async def _insist(self, call):
        """Ask until there is an answer: every call may be repeated."""
        while True:
            try:
                return await call()
            except BackendUnavailable:
                await asyncio.sleep(self.rng.uniform(0.05, 0.5))

    # --- working

    async def _work(self):
        while True:
            room = SLOTS - len(self.live)
            if room > 0:
                self._begin(await self._claim(room))
                self._begin(await self._claim_suspect())
            await self._idle()

    def _begin(self, claims):
        for claim in claims:
            self.live[claim.run.id] = claim
            self.tasks.create_task(self._execute(claim))

    async def _claim(self, room):
        number = self.request = self.request + 1
        claimed = await self._insist(lambda: self.queue.claim(self.id, None, None, room, LEASE, number))
        return claimed.claims

    async def _claim_suspect(self):
        """Take the first suspect there is, if any; a toy does not care to be alone with it."""
        number = self.request = self.request + 1
        for run in await self._insist(lambda: self.queue.held(ALONE, 1)):
            claim = await self._insist(lambda run=run: self.queue.claim_held(ALONE, run.id, self.id, LEASE, number))
            return [] if claim is None else [claim]
        return []

    async def _idle(self):
        try:
            await self.queue.wait(self.id, None, 1.0)
        except BackendUnavailable:
            await asyncio.sleep(0.2)

    async def _execute(self, claim):
        run = claim.run
        self.history.begin(run.job, run.id, claim.fence)
        await asyncio.sleep(self.rng.choice([0.1, 0.5, 1.0, 3.0, LEASE * 1.5]))
        outcome = Cancelled() if run.id in self.cancelled else self.rng.choice(_OUTCOMES)
        self.history.end(run.job, run.id, claim.fence, type(outcome).__name__)
        await self._settle([self.settlement(claim, outcome)])
        if self.live.get(run.id) is claim:
            del self.live[run.id]

    def settlement(self, claim, outcome):
        return settle(claim.run, claim.fence, outcome, self.clock.now(), self.rng.random())

    async def _settle(self, settlements):
        await self._insist(lambda: self.queue.settle(settlements))

    async def _beat(self):
        while True:
            await asyncio.sleep(LEASE / 3)
            beats = [Beat(run_id, claim.fence) for run_id, claim in self.live.items()]
            try:
                renewal = await self.queue.renew(beats, LEASE)
            except BackendUnavailable:
                continue
            for beat, reply in zip(beats, renewal.replies, strict=True):
                claim = self.live.get(beat.run_id)
                if reply is BeatReply.CANCEL:
                    self.cancelled.add(beat.run_id)
                elif reply is BeatReply.LOST and claim is not None and claim.fence == beat.fence:
                    del self.live[beat.run_id]

    async def _reap(self):
        while True:
            await asyncio.sleep(self.rng.uniform(0.5, 1.5))
            try:
                taken = await self.queue.reap(10, LEASE)
                if taken:
                    await self.queue.settle([self.lost(claim) for claim in taken])
            except BackendUnavailable:
                pass  # whoever reaps next finds them

    def lost(self, claim):
        return self.settlement(claim, Lost())

    # --- planning

    async def _plan(self):
        while True:
            try:
                if await self._lead():
                    await self._fire()
            except BackendUnavailable:
                pass
            await asyncio.sleep(self.rng.uniform(0.5, 1.0))

    async def _lead(self):
        lease = await self.coordinator.acquire("leader", self.id, 4.0)
        if lease is None:
            self.epoch = self.lease = None
        elif self.lease is None or lease.fence != self.lease.fence or self.epoch is None:
            self.epoch = await self.store.install("main", lease.fence)
        self.lease = lease
        return lease is not None

    async def _fire(self):
        now = await self.store.time()
        records, _ = await self.store.due("main", 10)
        firings = [firing(record, shift(now, HORIZON)) for record in records]
        if Fired.STALE_EPOCH in await self.store.fire(firings, "main", self.epoch):
            self.epoch = None


def firing(record, until):
    """Runs for all instants up to `until`."""
    interval, due, runs = record.spec.schedule.interval, record.cursor, []
    while due <= until:
        runs.append(planned(record, due))
        due += interval
    return Firing(
        uid=record.uid,
        name=record.name,
        revision=record.revision,
        expect=record.cursor,
        cursor=due,
        plan_at=due - timedelta(seconds=HORIZON / 2),
        runs=tuple(runs),
    )


def planned(record, due, **fields):
    return Run(
        id=recurring_id(record.uid, due),
        job=record.name,
        handler=record.name,
        uid=record.uid,
        revision=record.revision,
        cause=Cause.SCHEDULE,
        due=due,
        ready_at=due,
        group=record.uid,
        when_full=WhenFull.QUEUE,
        policy=record.spec.policy,
        **fields,
    )


class Operator:
    """Submits, cancels, pauses and resumes, from a place of its own."""

    def __init__(self, stage):
        self.stage = stage
        self.rng = random.Random(f"operator/{stage.loop.seed}")
        session = stage.network.session("operator")
        self.queue, self.store = session.queue, session.store
        self.submitted = []

    async def register(self, *records):
        await self._insist(lambda: self.store.save([JobChange(record, None) for record in records]))

    async def work(self, seconds):
        end = self.stage.loop.time() + seconds
        while self.stage.loop.time() < end:
            await self.rng.choice([self._submit, self._submit, self._submit, self._cancel, self._toggle])()
            await asyncio.sleep(self.rng.uniform(0.2, 2.0))
        await self.resume_all()

    async def _insist(self, call):
        while True:
            try:
                return await call()
            except BackendUnavailable:
                await asyncio.sleep(0.3)

    async def _submit(self):
        runs = [self._draft() for _ in range(self.rng.randint(1, 3))]
        self.submitted += [run.id for run in runs]
        await self._insist(lambda: self.queue.put(runs))

    def _draft(self):
        once = self.rng.random() < 0.4
        group = self.rng.choice([None, None, "one", "two"])
        return self.stage.run(
            self.rng.choice(["mail", "sms"]),
            ready_at=shift(self.stage.clock.now(), self.rng.choice([0, 0, 2, 5])),
            policy=RunPolicy(retry=_RETRY, delivery=Delivery.AT_MOST_ONCE if once else Delivery.AT_LEAST_ONCE),
            dedupe_key=self.rng.choice([None, None, "k"]),
            group=group,
            limit=2 if group == "two" else 1,
            when_full=self.rng.choice(list(WhenFull)),
        )

    async def _cancel(self):
        if self.submitted:
            chosen = self.rng.choice(self.submitted[-10:])
            await self._insist(lambda: self.store.cancel([chosen], "by the operator"))

    async def _toggle(self):
        record = await self._insist(lambda: self.store.job("report"))
        if record.paused is None:
            await self._pause(record)
        else:
            await self._resume(record)

    async def _pause(self, record):
        now = await self._insist(self.store.time)
        changed = replace(record, revision=record.revision + 1, paused=Pause(now))
        await self._insist(lambda: self.store.save([JobChange(changed, record.revision, Waiting.REWIND)]))

    async def _resume(self, record):
        """What was missed meanwhile is written down as skipped; planning goes on after it."""
        now = await self._insist(self.store.time)
        interval, cursor, ledger = record.spec.schedule.interval, record.cursor, ()
        if cursor <= now:
            last = cursor + interval * ((now - cursor) // interval)
            ledger = (planned(record, cursor, until=last, state=State.SKIPPED, reason="paused"),)
            cursor = last + interval
        changed = replace(record, revision=record.revision + 1, paused=None, cursor=cursor, plan_at=now)
        change = JobChange(changed, record.revision, moves_cursor=True, ledger=ledger)
        await self._insist(lambda: self.store.save([change]))
        while await self._insist(lambda: self.queue.unhold("job:report", 100)):
            pass

    async def resume_all(self):
        while (record := await self._insist(lambda: self.store.job("report"))).paused is not None:
            await self._resume(record)
        while await self._insist(lambda: self.queue.unhold("job:report", 100)):
            pass
