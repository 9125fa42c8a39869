"""Answers: everything a store returned to several concurrent sessions, and what must be true of it.

The calls overlap, so the order in which the store applied them is unknown. Each answer therefore has a span of ticks,
from call to return; only a call that returned before another began is certainly earlier. `problems` judges only by
what is certain and describes what is wrong; it assumes nothing about how the store works inside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import pairwise

from msgspec import Struct

from duly.model import Beat, CancelReply, Claim, Counts, Delivery, JobStatistics, Put, Run, Settlement, State
from duly.model.holds import held_group
from duly.rules.statistics import Tally, tally


class Span(Struct, frozen=True, gc=False):
    """From the tick of the question to the tick of the answer."""

    asked: int
    heard: int

    def before(self, other: Span) -> bool:
        """Whether this was certainly over when the other began."""
        return self.heard < other.asked


class Added(Struct, frozen=True):
    span: Span
    run: Run
    put: Put


class Grant(Struct, frozen=True):
    """A claim as it was handed out; `request` None means by reaping."""

    span: Span
    now: datetime
    claim: Claim
    node: str
    request: int | None

    @property
    def fence(self) -> int:
        return self.claim.fence


class Renewed(Struct, frozen=True):
    span: Span
    beat: Beat
    expires_at: datetime
    lost: bool


class Offer(Struct, frozen=True):
    """A settlement as it was offered, and whether it was refused."""

    span: Span
    settlement: Settlement
    stale: bool


class CancelAsked(Struct, frozen=True):
    span: Span
    run_id: str
    reply: CancelReply


class Held(Struct, frozen=True):
    span: Span
    key: str
    run_id: str


class Unheld(Struct, frozen=True):
    span: Span
    key: str


class Glance(Struct, frozen=True):
    """All runs as one call showed them."""

    span: Span
    runs: list[Run]


class Ending(Struct, frozen=True):
    """What is stored at the end."""

    runs: dict[str, Run]
    holds: dict[str, int]
    counts: Counts
    statistics: dict[str, JobStatistics]


class Answers:
    """The record. One list per kind of answer, in the order of arrival."""

    def __init__(self) -> None:
        self._tick = 0
        self.added: list[Added] = []
        self.grants: list[Grant] = []
        self.renewed: list[Renewed] = []
        self.offers: list[Offer] = []
        self.cancels: list[CancelAsked] = []
        self.held: list[Held] = []
        self.unheld: list[Unheld] = []
        self.glances: list[Glance] = []

    def tick(self) -> int:
        self._tick += 1
        return self._tick

    @property
    def created(self) -> dict[str, Added]:
        """The runs that were added, by id."""
        return {added.run.id: added for added in self.added if added.put.created}

    def applied(self) -> dict[tuple[str, int], Offer]:
        """The settlements that took effect: the first accepted under each fence; later ones were repeats."""
        first: dict[tuple[str, int], Offer] = {}
        for offer in self.offers:
            if not offer.stale:
                first.setdefault((offer.settlement.run_id, offer.settlement.fence), offer)
        return first


def problems(answers: Answers, ending: Ending, limits: dict[str, int]) -> list[str]:
    """Everything that is wrong with these answers. `limits` are the places each group has."""
    return [
        *_fences(answers),
        *_owners(answers),
        *_authority(answers),
        *_endings(answers, ending),
        *_groups(answers, limits),
        *_dedupe(answers),
        *_holds(answers),
        *_counters(answers, ending),
    ]


# --- fences and owners


def _grants_by_run(answers: Answers) -> dict[str, list[Grant]]:
    """The grants of each run by fence, repeats of a request left out."""
    by_run: defaultdict[str, dict[int, Grant]] = defaultdict(dict)
    for grant in answers.grants:
        by_run[grant.claim.run.id].setdefault(grant.fence, grant)
    return {run_id: [grants[fence] for fence in sorted(grants)] for run_id, grants in by_run.items()}


def _fences(answers: Answers) -> Iterator[str]:
    owners: dict[int, Grant] = {}
    for grant in answers.grants:
        first = owners.setdefault(grant.fence, grant)
        if (first.claim.run.id, first.node, first.request) != (grant.claim.run.id, grant.node, grant.request):
            yield f"fence {grant.fence} was given twice: {_who(first)}, then {_who(grant)}"
    latest = 0
    for fence in sorted(owners):
        if owners[fence].span.heard < latest:
            yield f"fence {fence} was given to {_who(owners[fence])} before a smaller one was asked for"
        latest = max(latest, owners[fence].span.asked)


def _who(grant: Grant) -> str:
    how = "a reaper" if grant.request is None else f"{grant.node} (request {grant.request})"
    return f"{how} for run {grant.claim.run.id}"


def _owners(answers: Answers) -> Iterator[str]:
    applied = answers.applied()
    expiry = _expiries(answers)
    for run_id, grants in _grants_by_run(answers).items():
        if grants[0].request is None:
            yield f"run {run_id} was reaped before anybody had claimed it"
        for grant, following in pairwise(grants):
            ended = applied.get((run_id, grant.fence))
            if following.request is None:
                yield from _lapsed(run_id, grant, following, ended, expiry)
            else:
                yield from _given_back(run_id, grant, following, ended)
        for grant in grants:
            if grant.request is not None and grant.now < grant.claim.run.ready_at:
                yield f"run {run_id} was claimed early: ready {grant.claim.run.ready_at}, claimed {grant.now}"


def _expiries(answers: Answers) -> dict[tuple[str, int], datetime]:
    expiry = {(grant.claim.run.id, grant.fence): grant.claim.expires_at for grant in reversed(answers.grants)}
    for renewed in answers.renewed:
        if not renewed.lost:
            expiry[renewed.beat.run_id, renewed.beat.fence] = renewed.expires_at
    return expiry


def _lapsed(
    run_id: str, grant: Grant, reaped: Grant, ended: Offer | None, expiry: dict[tuple[str, int], datetime]
) -> Iterator[str]:
    if ended is not None:
        yield f"run {run_id} was reaped under fence {reaped.fence}, though fence {grant.fence} had settled it"
    elif reaped.now < expiry[run_id, grant.fence]:
        yield f"run {run_id} was reaped at {reaped.now}, its claim held until {expiry[run_id, grant.fence]}"


def _given_back(run_id: str, grant: Grant, again: Grant, ended: Offer | None) -> Iterator[str]:
    if ended is None or ended.settlement.state is not State.PENDING or again.span.before(ended.span):
        yield f"run {run_id} was claimed under fence {again.fence} while fence {grant.fence} still had it"
    elif grant.claim.run.policy.delivery is Delivery.AT_MOST_ONCE and ended.settlement.outcome is not None:
        yield f"at-most-once run {run_id} was claimed again after {ended.settlement.outcome}"


# --- authority


def _authority(answers: Answers) -> Iterator[str]:
    grants, applied = _grants_by_run(answers), answers.applied()
    for offer in answers.offers:
        run_id, fence = offer.settlement.run_id, offer.settlement.fence
        newer = [grant for grant in grants.get(run_id, ()) if grant.fence > fence]
        if not offer.stale and any(grant.span.before(offer.span) for grant in newer):
            yield f"run {run_id}: a settlement under fence {fence} was accepted though a newer fence was out"
        if offer.stale and all(offer.span.before(grant.span) for grant in newer):
            yield f"run {run_id}: a settlement under fence {fence} was refused though no newer fence was out"
    for renewed in answers.renewed:
        run_id, fence = renewed.beat.run_id, renewed.beat.fence
        ends = [grant.span for grant in grants.get(run_id, ()) if grant.fence > fence]
        if (offer_applied := applied.get((run_id, fence))) is not None:
            ends.append(offer_applied.span)
        if not renewed.lost and any(end.before(renewed.span) for end in ends):
            yield f"run {run_id}: fence {fence} was renewed after it had ended"
        if renewed.lost and all(renewed.span.before(end) for end in ends):
            yield f"run {run_id}: fence {fence} was called lost while it was good"


# --- ends


def _endings(answers: Answers, ending: Ending) -> Iterator[str]:
    if ending.holds:
        yield f"runs are still held: {ending.holds}"
    if unknown := ending.runs.keys() - answers.created.keys():
        yield f"runs that nobody put: {sorted(unknown)}"
    grants, applied = _grants_by_run(answers), answers.applied()
    finals: defaultdict[str, list[Settlement]] = defaultdict(list)
    for (run_id, _), offer in applied.items():
        if _ends(offer):
            finals[run_id].append(offer.settlement)
    cancelled: defaultdict[str, list[CancelAsked]] = defaultdict(list)
    for asked in answers.cancels:
        if asked.reply is CancelReply.DONE:
            cancelled[asked.run_id].append(asked)
    for run_id in answers.created:
        run = ending.runs.get(run_id)
        if run is None:
            yield f"run {run_id} is gone"
        elif not run.final:
            yield f"run {run_id} never ended: {run.state}, hold {run.hold}, ready {run.ready_at}"
        else:
            yield from _one_end(run, finals[run_id], cancelled[run_id], grants.get(run_id, []))
    for asked in answers.cancels:
        claimed = [grant for grant in grants.get(asked.run_id, ()) if grant.request is not None]
        if asked.reply is CancelReply.REQUESTED and any(asked.span.before(grant.span) for grant in claimed):
            yield f"run {asked.run_id} was tried again although its cancellation had been asked for"
    for glance in answers.glances:
        for seen in glance.runs:
            run = ending.runs.get(seen.id)
            if seen.final and run is not None and (seen.state, seen.fence) != (run.state, run.fence):
                yield f"run {seen.id} ended as {seen.state} and later as {run.state}"


def _one_end(run: Run, finals: list[Settlement], cancelled: list[CancelAsked], grants: list[Grant]) -> Iterator[str]:
    if len(finals) + len(cancelled) > 1:
        yield f"run {run.id} ended {len(finals) + len(cancelled)} times"
    for settlement in finals:
        if (run.state, run.fence) != (settlement.state, settlement.fence):
            yield f"run {run.id} was settled as {settlement.state} and is {run.state}"
    for asked in cancelled:
        if run.state is not State.CANCELLED or any(asked.span.before(grant.span) for grant in grants):
            yield f"run {run.id} went on after it was cancelled"
    if run.state in {State.COMPLETED, State.FAILED, State.LOST} and not finals:
        yield f"run {run.id} is {run.state}, which nobody settled"
    if run.state is State.SKIPPED and grants:
        yield f"run {run.id} was both run and skipped"


# --- groups, dedupe keys, holds


def _last_sign(answers: Answers) -> dict[str, int]:
    """The latest tick at which each run was certainly unfinished."""
    signs: defaultdict[str, int] = defaultdict(int)
    for grant in answers.grants:
        signs[grant.claim.run.id] = max(signs[grant.claim.run.id], grant.span.asked)
    for renewed in answers.renewed:
        if not renewed.lost:
            signs[renewed.beat.run_id] = max(signs[renewed.beat.run_id], renewed.span.asked)
    for (run_id, _), offer in answers.applied().items():
        signs[run_id] = max(signs[run_id], offer.span.asked)
    return signs


def _groups(answers: Answers, limits: dict[str, int]) -> Iterator[str]:
    for glance in answers.glances:
        for group, limit in limits.items():
            members = [run.id for run in glance.runs if run.group == group and run.member and not run.final]
            running = [run.id for run in glance.runs if run.group == group and run.state is State.RUNNING]
            if max(len(members), len(running)) > limit:
                yield f"group {group} has {limit} places and was seen with {members}, running {running}"
    signs = _last_sign(answers)
    changes: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for run_id, grants in _grants_by_run(answers).items():
        own, since, until = grants[0].claim.run.group, grants[0].span.heard, signs[run_id]
        if own is not None and since < until:
            changes[own] += [(since, 1), (until, -1)]
    for group, steps in changes.items():
        if _peak(steps) > limits[group]:
            yield f"group {group} has {limits[group]} places and had {_peak(steps)} members at once"


def _peak(steps: Iterable[tuple[int, int]]) -> int:
    level = peak = 0
    for _, step in sorted(steps):
        level += step
        peak = max(peak, level)
    return peak


def _dedupe(answers: Answers) -> Iterator[str]:
    signs, created = _last_sign(answers), answers.created
    ends = {run_id: offer for (run_id, _), offer in answers.applied().items() if _ends(offer)}
    by_key: defaultdict[tuple[str, str], list[Added]] = defaultdict(list)
    for added in answers.added:
        if added.run.dedupe_key is not None:
            by_key[added.run.handler, added.run.dedupe_key].append(added)
    for key, all_added in by_key.items():
        for added in all_added:
            if not added.put.created:
                yield from _rightly_refused(added, key, created, ends)
                continue
            for other in all_added:
                if other.put.created and added.span.before(other.span) and other.span.heard < signs[added.run.id]:
                    yield f"{other.run.id} was added beside {added.run.id}, an unfinished run with its key {key}"
    for glance in answers.glances:
        keys = [(run.handler, run.dedupe_key) for run in glance.runs if run.dedupe_key and not run.final]
        if len(keys) > len(set(keys)):
            yield f"two unfinished runs with one dedupe key were seen: {sorted(keys)}"


def _ends(offer: Offer) -> bool:
    return offer.settlement.state is not State.PENDING


def _rightly_refused(
    added: Added, key: tuple[str, str], created: dict[str, Added], ends: dict[str, Offer]
) -> Iterator[str]:
    twin = created.get(added.put.id)
    if twin is None or added.span.before(twin.span):
        yield f"{added.run.id} was refused for {added.put.id}, which did not exist"
    elif twin.run.id != added.run.id and (twin.run.handler, twin.run.dedupe_key) != key:
        yield f"{added.run.id} was refused for {twin.run.id}, which has another key"
    elif twin.run.id != added.run.id and twin.run.id in ends and ends[twin.run.id].span.before(added.span):
        yield f"{added.run.id} was refused for {twin.run.id}, which had ended"


def _holds(answers: Answers) -> Iterator[str]:
    grants = _grants_by_run(answers)
    for held in answers.held:
        let_go = [each.span for each in answers.unheld if each.key == held.key and not each.span.before(held.span)]
        if held_group(held.key) is not None:
            continue
        for grant in grants.get(held.run_id, ()):
            if held.span.before(grant.span) and all(grant.span.before(span) for span in let_go):
                yield f"run {held.run_id} was claimed while it was held under {held.key}"


# --- counters


def _counters(answers: Answers, ending: Ending) -> Iterator[str]:
    if ending.runs.keys() == answers.created.keys() and all(run.final for run in ending.runs.values()):
        for state in State:
            stored = sum(run.state is state for run in ending.runs.values())
            if ending.counts.states.get(state, 0) != stored:
                yield f"{ending.counts.states.get(state, 0)} runs are counted as {state}, there are {stored}"
    # A retry of a run to be cancelled was counted as cancelled; from outside the two look the same.
    counted: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0, 0.0])
    for (job, _), sums in tally(offer.settlement for offer in answers.applied().values()).items():
        for index, part in enumerate(_parts(sums)):
            counted[job][index] += part
    for job in counted.keys() | ending.statistics.keys():
        kept = _parts(ending.statistics.get(job, JobStatistics()))
        if any(abs(a - b) > 1e-3 for a, b in zip(counted[job], kept, strict=True)):
            yield f"job {job}: counted {kept}, accepted {counted[job]} (completed, failed, lost, other, seconds)"


def _parts(sums: JobStatistics | Tally) -> list[float]:
    return [sums.completed, sums.failed, sums.lost, sums.cancelled + sums.retried, sums.seconds]
