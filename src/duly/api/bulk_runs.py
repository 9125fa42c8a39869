"""Many runs at once: count, cancel, redrive and purge them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from duly.api.calls import Call, Reply, answer
from duly.api.paging import RUNS, start_of
from duly.api.problems import Problem
from duly.api.queries import run_filter
from duly.api.requests import CancelMany, ManyRuns, PurgeBody, RedriveMany, RunsFilter
from duly.api.responses import BulkCancelAnswer, PurgeAnswer, RedriveAnswer, RunCountAnswer, response, run_answer
from duly.api.visibility import require_unlimited, sees_run
from duly.model import CancelReply, RedriveReply, Run, RunFilter, State, is_run_id
from duly.rules.bulk import CANCELLABLE, may_cancel, may_redrive, says_something, stood
from duly.rules.lifecycle import REDRIVABLE
from duly.scheduler.audit_actions import chosen_runs, runs_of
from duly.scheduler.bulk_runs import SLICE, Slice, count_runs, slices_of
from duly.scheduler.client import Client
from duly.scheduler.purging import purge_some

Change = Callable[[Sequence[Run]], Awaitable[Counter[str]]]

_DEFAULT_STATES = {
    "cancel": tuple(state for state in State if state in CANCELLABLE),
    "redrive": (State.FAILED,),
}


async def count(call: Call[None, RunsFilter]) -> Reply:
    """How many runs match a filter, with samples; at most 10,000 are counted."""
    wanted = _checked(run_filter(call.body))
    found = await count_runs(await call.context.client(), wanted, lambda run: sees_run(call.principal, run))
    return answer(response(RunCountAnswer, found, samples=tuple(run_answer(run) for run in found.samples)))


def _checked(wanted: RunFilter) -> RunFilter:
    if wanted.tag is None and not says_something(wanted.query):
        raise Problem(422, "invalid", "the filter is empty, so every run would match: give at least one of its fields")
    return wanted


async def cancel_many(call: Call[None, CancelMany]) -> Reply:
    """Cancel the runs with these ids, or those that match: waiting ones at once, running ones by their workers."""
    client, reason = await call.context.client(), call.body.reason

    async def change(runs: Sequence[Run]) -> Counter[str]:
        replies = await client.cancel_each(runs, reason)
        return Counter(_CANCELLED.get(reply, "left") for reply in replies)

    done = await _Bulk(call, client, "cancel", may_cancel, {"reason": reason}).change(change)
    return answer(BulkCancelAnswer(done.counts["cancelled"], done.counts["cancelling"], done.counts["left"], done.next))


_CANCELLED = {CancelReply.DONE: "cancelled", CancelReply.REQUESTED: "cancelling"}


async def redrive_many(call: Call[None, RedriveMany]) -> Reply:
    """Run the runs with these ids, or those that match, again, the newest first."""
    client = await call.context.client()

    async def change(runs: Sequence[Run]) -> Counter[str]:
        handlers = Counter(run.handler for run in runs)
        await call.context.limits(client).count_submissions(client.backend.store, handlers)
        replies = await client.redrive_each(runs)
        return Counter("redriven" if reply is RedriveReply.DONE else "left" for reply in replies)

    done = await _Bulk(call, client, "redrive", may_redrive, {}).change(change)
    return answer(RedriveAnswer(done.counts["redriven"], done.counts["left"], done.next))


class _Done:
    """What has been done so far, and the cursor to go on from."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.next: str | None = None


class _Bulk:
    """One call that changes many runs: it finds them, changes them in slices, and records each slice."""

    def __init__(
        self,
        call: Call[None, Any],
        client: Client,
        action: str,
        possible: Callable[[Run], bool],
        details: dict[str, Any],
    ) -> None:
        self._call = call
        self._body: ManyRuns = call.body
        self._client = client
        self._action = action
        self._possible = possible
        self._details = details

    async def change(self, change: Change) -> _Done:
        """Change the runs. If a later slice is refused, what was done before is the answer, with a cursor to go on."""
        done = _Done()
        wanted, as_of = self._filter(), self._body.as_of or await self._client.backend.store.time()
        slices = self._by_ids(done) if wanted is None else self._by_filter(wanted, as_of)
        cursor: str | None = None
        async for part in slices:
            try:
                counts = await change(part.runs) if part.runs else Counter[str]()
            except Problem:
                if not done.counts.total() or wanted is None:
                    raise
                cursor = part.start
                break
            done.counts += counts
            cursor = part.next
            if counts.total() > counts["left"]:
                await self._record(wanted, as_of, part.runs, counts)
        done.next = None if cursor is None else await self._call.context.cursor_keys.encrypt(RUNS, cursor)
        return done

    def _filter(self) -> RunFilter | None:
        """The filter of the call; None if it names runs by their ids."""
        wanted = run_filter(self._body)
        if self._body.ids is not None:
            if wanted.tag is not None or says_something(wanted.query):
                raise Problem(422, "invalid", "ids and a filter were both given: give one of them", pointer="/ids")
            return None
        _checked(wanted)
        states = wanted.query.states or _DEFAULT_STATES[self._action]
        possible = CANCELLABLE if self._action == "cancel" else REDRIVABLE
        if odd := [state.value for state in states if state not in possible]:
            known = ", ".join(state.value for state in State if state in possible)
            detail = f"status: {odd[0]} runs cannot be changed in this way; expected any of {known}"
            raise Problem(422, "invalid", detail, pointer="/status")
        return replace(wanted, query=replace(wanted.query, states=states))

    async def _by_filter(self, wanted: RunFilter, as_of: datetime) -> AsyncIterator[Slice]:
        start = await start_of(self._call, RUNS, self._body.cursor)
        async for part in slices_of(self._client, wanted, self._chosen, as_of, self._body.limit, start):
            yield part

    async def _by_ids(self, done: _Done) -> AsyncIterator[Slice]:
        """The runs of these ids that the caller may see and that can be changed; the others are left."""
        ids, as_of = list(dict.fromkeys(self._body.ids or ())), self._body.as_of
        for start in range(0, len(ids), SLICE):
            found: list[Run] = []
            for run_id in ids[start : start + SLICE]:
                run = await self._client.backend.store.run(run_id) if is_run_id(run_id) else None
                if run is not None and self._chosen(run) and (as_of is None or stood(run, as_of)):
                    found.append(run)
                else:
                    done.counts["left"] += 1
            yield Slice(found, None, None)

    def _chosen(self, run: Run) -> bool:
        return sees_run(self._call.principal, run) and self._possible(run)

    async def _record(
        self, wanted: RunFilter | None, as_of: datetime, runs: Sequence[Run], counts: Counter[str]
    ) -> None:
        number = counts.total() - counts["left"]
        after = {**chosen_runs(wanted, as_of, runs), **self._details}
        await self._call.record(self._action, runs_of(number), after=after)


async def purge(call: Call[None, PurgeBody]) -> Reply:
    """Delete ended runs and their attempts for good, the earliest ended first."""
    require_unlimited(call.principal)
    client, body = await call.context.client(), call.body
    states = [State(each) for each in dict.fromkeys(body.status)]
    purged = await purge_some(client.backend.store, states, body.before, body.limit)
    if purged:
        await call.record("purge", runs_of(purged), after={"status": body.status, "before": body.before})
    return answer(PurgeAnswer(purged, more=purged >= body.limit))
