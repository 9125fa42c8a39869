"""Runs: the machine of the hot path, and of what operators do to runs and queues."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from duly.model import (
    SCAN,
    Beat,
    Cancelled,
    Cause,
    Delivery,
    EndedProcess,
    Failed,
    Failure,
    Interrupted,
    Lost,
    Missed,
    Outcome,
    Progress,
    RetrySpec,
    Run,
    RunOrder,
    RunPolicy,
    RunQuery,
    Settlement,
    State,
    Succeeded,
    TimedOut,
    Verdict,
    WhenFull,
)
from duly.model.holds import ALONE
from duly.ports import Backend
from duly.rules.settling import settle
from duly.testing.conformance.machine.base import ALL, BACK, NODES, PICKS, Machine, step
from duly.testing.conformance.machine.twins import Pair, agree, agree_on_next
from duly.testing.conformance.world import LEASE

LIMITS = {None: 1, "one": 1, "two": 2}
_ANY_REQUEST = 1_000_000
_FAILURE = Failure("ValueError", "boom", "Traceback …")
_JOBS = st.sampled_from(["mail", "sms", "report"])
_QUEUES = st.sampled_from(["fast", "slow"])
_SILENCES = st.sampled_from([None, None, 1.0, LEASE / 3, LEASE * 2])
_POLICIES = st.builds(
    RunPolicy,
    retry=st.sampled_from([RetrySpec(max_retries=0), RetrySpec(max_retries=2)]),
    delivery=st.sampled_from([Delivery.AT_LEAST_ONCE, Delivery.AT_LEAST_ONCE, Delivery.AT_MOST_ONCE]),
)
DRAFTS = st.fixed_dictionaries(
    {
        "job": _JOBS,
        "cause": st.sampled_from([Cause.SUBMIT, Cause.SUBMIT, Cause.TRIGGER, Cause.SCHEDULE, Cause.SCHEDULE]),
        "delay": st.sampled_from([-5.0, 0.0, 0.0, 0.5, 10.0]),
        "queue": _QUEUES,
        "priority": st.sampled_from([0, 0, 5, 9]),
        "dedupe_key": st.sampled_from([None, None, "k"]),
        "unique_for": st.sampled_from([None, None, 4.0, 30.0]),
        "group": st.sampled_from([None, None, "one", "two"]),
        "when_full": st.sampled_from(WhenFull),
        "policy": _POLICIES,
        "start_within": st.sampled_from([None, None, -3.0, 0.0, 5.0]),
        "strict": st.booleans(),
    }
)
_MAX_LOSSES = 2  # so that one loss makes a suspect
_OUTCOMES: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        Succeeded(),
        Succeeded(b'"kept"', "a note"),
        Failed(_FAILURE),
        Failed(_FAILURE, delay=0.0),
        Failed(_FAILURE, Verdict.NEVER),
        TimedOut(_FAILURE),
        Cancelled(),
        Interrupted(),
        Interrupted(began=False),
        Lost(),
        Missed(),
    ]
)


class WorkMachine(Machine):
    """Runs are put, claimed, settled, reaped, cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.pairs: list[Pair] = []
        self.put_runs: dict[str, Run] = {}
        self.requests: defaultdict[str, int] = defaultdict(int)
        self.asked: defaultdict[str, int] = defaultdict(int)
        self.settled: dict[int, Settlement] = {}
        self.read: dict[str, list[tuple[Run, Run]]] = {}

    def picked_ids(self, picks: list[int]) -> list[str]:
        """Different runs that were put, counted from the latest back."""
        return list(dict.fromkeys(self.ids[-1 - pick % len(self.ids)] for pick in picks)) if self.ids else []

    def picked_pairs(self, picks: list[int]) -> list[Pair]:
        """Claims of different runs, counted from the latest back: answers name runs, not fences."""
        pairs = [self.pairs[-1 - pick % len(self.pairs)] for pick in picks] if self.pairs else []
        return list({pair.model.run.id: pair for pair in pairs}.values())

    @step(3, drafts=st.lists(DRAFTS, min_size=1, max_size=4))
    def put(self, drafts: list[dict[str, Any]]) -> None:
        runs = [self.drafted(draft) for draft in drafts]
        self.ids += [run.id for run in runs]
        self._put(runs)

    def drafted(self, draft: dict[str, Any], **fields: Any) -> Run:
        """A new run."""
        values = dict(draft)
        within, strict = values.pop("start_within"), values.pop("strict")
        if within is not None:
            values |= {"start_by": self.world.after(values["delay"] + within), "strict": strict}
        return self.world.run(limit=LIMITS[draft["group"]], **values | fields)

    def _put(self, runs: list[Run]) -> None:
        self.put_runs |= {run.id: run for run in runs}
        self.twins.same("put", lambda backend: backend.queue.put(runs, now=self.now))

    @step(
        4,
        node=NODES,
        queues=st.sampled_from([None, None, ["fast"], ["slow", "fast"], []]),
        handlers=st.sampled_from([None, None, None, {"mail"}, {"mail", "sms", "report"}]),
        limit=st.sampled_from([1, 2, 5, ALL]),
        back=BACK,
    )
    def claim(self, node: str, queues: list[str] | None, handlers: set[str] | None, limit: int, back: int) -> None:
        """A new request, or a repeat of one of the last."""
        if back == 0:
            self.requests[node] += 1
        number = max(1, self.requests[node] - max(0, back - 1))
        repeated = number <= self.asked[node]  # a repeat may list what was lent in any order
        self.asked[node] = max(number, self.asked[node])
        most = limit if self.exact else ALL
        real, model = self.twins.ask(
            lambda backend: backend.queue.claim(node, queues, handlers, most, LEASE, number, now=self.now)
        )
        agree_on_next("claim", real.next_due, self.upcoming(), self.now, node)
        self.pairs += self.twins.lent("claim", real.claims, model.claims, ordered=self.exact and not repeated)

    @step(4, picks=PICKS, outcomes=st.lists(_OUTCOMES, min_size=4, max_size=4))
    def settle(self, picks: list[int], outcomes: list[Outcome]) -> None:
        """In time, late, or again: an attempt ends only one way, so a repeat sends the same settlement."""
        pairs = self.picked_pairs(picks)
        model = [self._settlement(pair, outcome) for pair, outcome in zip(pairs, outcomes, strict=False)]
        real = [_under(pair.real.fence, settlement) for pair, settlement in zip(pairs, model, strict=True)]
        self.twins.same("settle", lambda backend: backend.queue.settle(real if backend is self.twins.real else model))

    def _settlement(self, pair: Pair, outcome: Outcome) -> Settlement:
        fence = pair.model.fence
        if fence not in self.settled:
            run = pair.model.run
            self.settled[fence] = settle(run, fence, outcome, self.now, dice=0.5, max_losses=_MAX_LOSSES)
        settlement = self.settled[fence]
        if settlement.outcome is not None:
            self.outcomes[settlement.job, settlement.started_at].add(settlement.outcome)
        return settlement

    @step(2, node=NODES, seconds=st.sampled_from([1.0, 20.0]))
    def read_ahead(self, node: str, seconds: float) -> None:
        """Keep what both have read, for `begin`."""
        if not self.twins.real.capabilities.reads_ahead:
            return
        until = self.world.after(seconds)
        real, model = self.twins.ask(
            lambda backend: backend.queue.read_ahead(node, None, None, until, ALL, now=self.now)
        )
        agree("more", real[1], model[1])
        self.twins.alike("read ahead", real[0], model[0])
        self.read = {node: list(zip(real[0], model[0], strict=True))}

    @step(3, node=NODES, again=st.booleans())
    def begin_what_was_read(self, node: str, again: bool) -> None:  # Hypothesis names it
        """Begin what was read, as far as no other run waits to enter the same groups: then any order is correct."""
        chosen = [pair for pair in self.read.get(node, ()) if self._alone(pair[1])]
        if not again:
            self.requests[node] += 1
        number = self.requests[node] = max(1, self.requests[node])
        self.asked[node] = max(number, self.asked[node])

        def runs(backend: Backend) -> list[Run]:
            return [real if backend is self.twins.real else model for real, model in chosen]

        real, model = self.twins.ask(
            lambda backend: backend.queue.begin(node, runs(backend), LEASE, number, now=self.now)
        )
        agree("begun", [claim is None for claim in real], [claim is None for claim in model])
        pairs = [[claim for claim in claims if claim is not None] for claims in (real, model)]
        self.pairs += self.twins.lent("begin", *pairs, ordered=False)
        self.twins.ask(lambda backend: backend.queue.promote(ALL, now=self.now))

    def _alone(self, run: Run) -> bool:
        if run.group is None:
            return True
        page = self.twins.model_says(lambda backend: backend.store.runs(RunQuery(), ALL, now=self.now))
        others = [other for other in page.runs if other.group == run.group and other.id != run.id]
        return all(other.member or other.final for other in others)

    @step(2, picks=PICKS, node=NODES, again=st.booleans())
    def claim_held(self, picks: list[int], node: str, again: bool) -> None:  # Hypothesis names it
        """Lend runs one by one from under the hold that settlements put them under."""
        for run_id in [*self.picked_ids(picks), "0none"]:
            if not again:
                self.requests[node] += 1
            number = self.requests[node] = max(1, self.requests[node])
            self.asked[node] = max(number, self.asked[node])
            self._claim_held(run_id, node, number)

    def _claim_held(self, run_id: str, node: str, number: int) -> None:
        real, model = self.twins.ask(
            lambda backend: backend.queue.claim_held(ALONE, run_id, node, LEASE, number, now=self.now)
        )
        if real is None or model is None:
            agree("claim_held", real, model)
        else:
            self.pairs += self.twins.lent("claim_held", [real], [model], ordered=True)

    @step()
    def look_at_suspects(self) -> None:
        real, model = self.twins.ask(lambda backend: backend.queue.held(ALONE, ALL, now=self.now))
        self.twins.alike("held", real, model)

    @step(2, silence=_SILENCES)
    def reap(self, silence: float | None) -> None:
        real, model = self.twins.ask(lambda backend: backend.queue.reap(ALL, LEASE, silence, now=self.now))
        self.pairs += self.twins.lent("reap", real, model, ordered=False)

    @step(node=NODES)
    def take_over(self, node: str) -> None:
        """All claims of a node, as if its only process had ended."""
        ended = EndedProcess(node, 1, _ANY_REQUEST)
        real, model = self.twins.ask(lambda backend: backend.queue.take_over(ended, ALL, LEASE, now=self.now))
        self.pairs += self.twins.lent("take_over", real, model, ordered=False)

    @step(picks=PICKS, reason=st.sampled_from([None, "by ada"]))
    def cancel(self, picks: list[int], reason: str | None) -> None:
        run_ids = [*(picked := self.picked_ids(picks)), "0none", *picked[:1]]
        self.twins.same("cancel", lambda backend: backend.store.cancel(run_ids, reason, now=self.now))


def _under(fence: int, settlement: Settlement) -> Settlement:
    """The same settlement in the backend's numbers."""
    attempt = settlement.attempt
    return replace(settlement, fence=fence, attempt=None if attempt is None else replace(attempt, fence=fence))


class QueueMachine(WorkMachine):
    """The whole hot path, and what operators do to runs and queues."""

    @step(picks=PICKS)
    def put_again(self, picks: list[int]) -> None:
        self._put([self.put_runs[run_id] for run_id in self.picked_ids(picks)])

    @step(limit=st.sampled_from([1, 2, ALL]))
    def promote(self, limit: int) -> None:
        """Until nothing is left to promote; how many calls that takes may differ."""
        real, _ = self.twins.ask(lambda backend: self._promote(backend, limit))
        agree_on_next("promote", real, self.upcoming(), self.now)

    async def _promote(self, backend: Backend, limit: int) -> datetime | None:
        for _ in range(ALL):
            looked_at, next_due = await backend.queue.promote(limit, now=self.now)
            assert looked_at <= limit, f"promote({limit}) looked at {looked_at}"
            if looked_at == 0:
                return next_due
        raise AssertionError("promote does not come to an end")

    @step(2, picks=PICKS, progress=st.sampled_from([None, Progress(1, 2, "rows")]), silence=_SILENCES)
    def renew(self, picks: list[int], progress: Progress | None, silence: float | None) -> None:
        pairs = self.picked_pairs(picks)
        real = [Beat(pair.real.run.id, pair.real.fence, progress) for pair in pairs]
        model = [Beat(pair.model.run.id, pair.model.fence, progress) for pair in pairs]
        self.twins.same(
            "renew",
            lambda backend: backend.queue.renew(
                real if backend is self.twins.real else model, LEASE, silence, now=self.now
            ),
        )

    @step(key=st.sampled_from(["breaker:x", "breaker:y"]), drafts=st.lists(DRAFTS, min_size=1, max_size=2))
    def put_held(self, key: str, drafts: list[dict[str, Any]]) -> None:
        runs = [self.drafted(draft, hold=key) for draft in drafts]
        self.ids += [run.id for run in runs]
        self._put(runs)

    @step(
        key=st.sampled_from(["breaker:x", "breaker:y", "group:one", "handler:sms", "job:mail"]),
        limit=st.sampled_from([1, 2, ALL]),
    )
    def unhold(self, key: str, limit: int) -> None:
        self.twins.same("unhold", lambda backend: backend.queue.unhold(key, limit))

    @step(2, picks=PICKS, payload=st.sampled_from([None, b'{"other": 1}']))
    def redrive(self, picks: list[int], payload: bytes | None) -> None:
        run_ids = [*(picked := self.picked_ids(picks)), "0none", *picked[:1]]
        self.twins.same("redrive", lambda backend: backend.store.redrive(run_ids, payload=payload, now=self.now))

    @step(
        state=st.sampled_from([State.COMPLETED, State.FAILED, State.CANCELLED, State.LOST, State.SKIPPED]),
        age=st.sampled_from([None, 0.0, 10.0]),
        keep=st.sampled_from([None, 0, 1, 2]),
        limit=st.sampled_from([1, ALL]),
    )
    def purge(self, state: State, age: float | None, keep: int | None, limit: int) -> None:
        if not self._clear_cut(state, keep, limit):
            keep, limit = None, ALL
        before = None if age is None else self.world.after(-age)
        self.twins.same("purge", lambda backend: backend.store.purge(state, before, keep, limit))
        self.look_at_every_history()

    def _clear_cut(self, state: State, keep: int | None, limit: int) -> bool:
        """Whether it is certain which runs are purged: no two ended at the same moment."""
        page = self.twins.model_says(lambda backend: backend.store.runs(RunQuery(states=(state,)), ALL, now=self.now))
        moments = [run.finished_at for run in page.runs]
        return (keep in {None, 0} and limit >= len(moments)) or len(set(moments)) == len(moments)

    @step(limit=st.sampled_from([1, ALL]))
    def expire(self, limit: int) -> None:
        self.twins.same("expire", lambda backend: backend.store.expire(limit, now=self.now))

    @step(queue=_QUEUES, pause=st.sampled_from([False, False, True]))
    def pause_or_resume(self, queue: str, pause: bool) -> None:
        self.twins.same("pause", lambda backend: backend.store.pause(queue) if pause else backend.store.resume(queue))

    @step(picks=PICKS)
    def look_up(self, picks: list[int]) -> None:
        run_ids = self.picked_ids(picks)
        for run_id in run_ids:
            self._same_run(run_id)
        ended = self.twins.ask(lambda backend: backend.store.finished(run_ids, 0.0))
        agree("finished", *(sorted({run.id for run in runs}) for runs in ended))

    def _same_run(self, run_id: str) -> None:
        real, model = self.twins.ask(lambda backend: backend.store.run(run_id, now=self.now))
        self.twins.alike("run", [real] if real else [], [model] if model else [])

    @step(
        query=st.builds(
            RunQuery,
            job=st.none() | _JOBS,
            queue=st.none() | _QUEUES,
            states=st.lists(st.sampled_from(State), max_size=3, unique=True).map(tuple),
            cause=st.sampled_from([None, Cause.SUBMIT, Cause.SCHEDULE]),
            order=st.sampled_from(RunOrder),
            node=st.sampled_from([None, None, "node-1"]),
            min_attempt=st.sampled_from([None, None, 2]),
            min_late=st.sampled_from([None, None, 1.0]),
        ),
        limit=st.sampled_from([1, 3, 10]),
        scan=st.sampled_from([2, 20, SCAN]),
    )
    def list_by_page(self, query: RunQuery, limit: int, scan: int) -> None:
        found = self.twins.ask(lambda backend: self._pages(backend, query, limit, scan))
        self.twins.alike("listing", *(sorted(runs, key=lambda run: run.id) for runs in found))

    async def _pages(self, backend: Backend, query: RunQuery, limit: int, scan: int) -> list[Run]:
        runs: list[Run] = []
        page = await backend.store.runs(query, limit, scan=scan, now=self.now)
        while True:
            assert len(page.runs) <= limit, f"a page of {len(page.runs)} runs, asked for {limit}"
            runs += page.runs
            if page.next is None:
                return runs
            page = await backend.store.runs(query, limit, page.next, scan=scan, now=self.now)
