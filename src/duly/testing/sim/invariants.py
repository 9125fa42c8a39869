"""Invariants: what must be true of every history, whatever went wrong in it. Safety here, liveness in `liveness`.

Each is a function from facts to violations and stands on its own. The numbers are those of the protocol:

    I1 one record per due instant        I7 every repetition of a begin is explained
    I2 nothing invented, nothing early   I8 pause and remove are respected
    I3 fences grow, none is given twice  I9 groups have no more members than places
    I4 only the latest fence acts        I11 at most once means one begin
    I5 one final state                   I12 what was lost is lost, not failed and not done
    I6 leaders in order

I10 (acknowledged is durable) concerns the store, I13 to I15 executors, resources and transactions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from duly.model import Cause, Delivery, Fired, JobRecord, JobStatus, Run, State
from duly.testing.sim.facts import (
    Began,
    Deleted,
    Ended,
    Fact,
    Granted,
    Installed,
    Joined,
    Lapsed,
    Materialised,
    Planned,
    Removed,
    Renewed,
    Revived,
    Saved,
    Settled,
    history_of,
)

NextRun = Callable[[datetime], datetime | None]
Schedules = Callable[[JobRecord], NextRun | None]
"""How to compute a job's instants: for a record, the function from an instant to the next due one after it."""

Facts = Sequence[Fact]


class Violation(Struct, frozen=True):
    """Something that must never happen. `history` is what happened to its subject, in order."""

    invariant: str
    subject: str
    message: str
    history: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.invariant} {self.subject}: {self.message}", *self.history])


def check(facts: Facts, schedules: Schedules | None = None) -> list[Violation]:
    """Every violation of safety, in the order of the numbers. Without `schedules` invention is not judged."""
    found = [violation for judge in JUDGES for violation in judge(facts)]
    if schedules is not None:
        found += no_invention(facts, schedules)
    return found


def _violation(facts: Facts, invariant: str, fact: Fact, message: str) -> Violation:
    return Violation(invariant, fact.subject, f"at {fact.at:.3f}s {message}", history_of(facts, fact.subject))


def one_record_per_instant(facts: Facts) -> Iterator[Violation]:
    """I1: a recurring run comes into being once, unless an edit took it back; no instant is both run and skipped."""
    present: defaultdict[str, dict[str, Run]] = defaultdict(dict)
    gone: set[str] = set()
    for fact in facts:
        match fact:
            case Materialised(run=run) if run.cause is Cause.SCHEDULE:
                if run.id in present[run.uid] or run.id in gone:
                    yield _violation(facts, "I1", fact, "it was made a second time")
                for other in present[run.uid].values():
                    if other.id != run.id and _covers(run, other):
                        yield _violation(facts, "I1", fact, f"the same instant has two records: {run.id}, {other.id}")
                present[run.uid][run.id] = run
            case Deleted(run=run) if run.cause is Cause.SCHEDULE:
                present[run.uid].pop(run.id, None)
                if fact.by == "store.purge":
                    gone.add(run.id)
            case _:
                pass


def _covers(one: Run, other: Run) -> bool:
    """Whether two records stand for the same instant."""
    return one.due <= (other.until or other.due) and other.due <= (one.until or one.due)


def nothing_early(facts: Facts) -> Iterator[Violation]:
    """I2: nothing is claimed before the store's clock has ever shown its time, and nothing begins without its claim."""
    claimed: set[tuple[str, int]] = set()
    latest = None
    for fact in facts:
        latest = fact.now if latest is None else max(latest, fact.now)  # a clock that stepped back has shown that time
        match fact:
            case Granted(request=int(), again=False, claim=claim):
                claimed.add((fact.subject, claim.fence))
                if latest < claim.run.ready_at:
                    yield _violation(facts, "I2", fact, f"it was claimed early: ready {claim.run.ready_at}")
            case Began() if (fact.subject, fact.fence) not in claimed:
                yield _violation(facts, "I2", fact, f"a handler began under fence {fact.fence}, which no claim has")
            case _:
                pass


def no_invention(facts: Facts, schedules: Schedules) -> Iterator[Violation]:
    """I2: every recurring run that is made is an instant of the job's schedule as it was then."""
    records: dict[str, JobRecord] = {}
    for fact in facts:
        match fact:
            case Saved(record=record):
                records[record.uid] = record
            case Materialised(run=run) if _is_planned(run) and run.uid in records:
                next_run = schedules(records[run.uid])
                if next_run is not None and next_run(run.due - timedelta(microseconds=1)) != run.due:
                    yield _violation(facts, "I2", fact, f"{run.due} is not an instant of {run.job}'s schedule")
            case _:
                pass


def _is_planned(run: Run) -> bool:
    """Whether it stands for one instant of a schedule; a skip may stand for any range."""
    return run.cause is Cause.SCHEDULE and run.state is not State.SKIPPED


def fences_grow(facts: Facts) -> Iterator[Violation]:
    """I3: every claim has a fence greater than all before; only a repeated request hears one again."""
    latest = 0
    for fact in facts:
        if isinstance(fact, Granted) and not fact.again:
            if fact.claim.fence <= latest:
                yield _violation(facts, "I3", fact, f"fence {fact.claim.fence} was given after {latest}")
            latest = max(latest, fact.claim.fence)


def latest_fence_acts(facts: Facts) -> Iterator[Violation]:
    """I4: a renewal or settlement succeeds only under the run's latest fence, a renewal only while it runs."""
    latest: dict[str, int] = {}
    running: set[str] = set()
    for fact in facts:
        match fact:
            case Granted(again=False):
                latest[fact.subject] = fact.claim.fence
                running.add(fact.subject)
            case Renewed(lost=False) if fact.fence != latest.get(fact.subject) or fact.subject not in running:
                yield _violation(facts, "I4", fact, f"fence {fact.fence} was renewed without authority")
            case Settled(accepted=True, settlement=settlement):
                if settlement.fence != latest.get(fact.subject):
                    yield _violation(
                        facts, "I4", fact, f"a settlement under fence {settlement.fence} was accepted without authority"
                    )
                running.discard(fact.subject)
            case Ended():
                running.discard(fact.subject)
            case _:
                pass


def one_final_state(facts: Facts) -> Iterator[Violation]:
    """I5: a run ends once, and nothing follows, except an operator's redrive."""
    ended: dict[str, str] = {}
    for fact in facts:
        match fact:
            case Ended(run=run):
                if fact.subject in ended:
                    yield _violation(facts, "I5", fact, f"it ended as {run.state} after {ended[fact.subject]}")
                ended[fact.subject] = run.state
            case Revived():
                if fact.by != "store.redrive":
                    yield _violation(facts, "I5", fact, f"{fact.by} revived it from {fact.was}")
                ended.pop(fact.subject, None)
            case Deleted():
                ended.pop(fact.subject, None)
            case Granted(again=False) if fact.subject in ended:
                yield _violation(facts, "I5", fact, f"it was claimed after it had ended as {ended[fact.subject]}")
            case _:
                pass


def leaders_in_order(facts: Facts) -> Iterator[Violation]:
    """I6: an accepted firing carries the epoch that is current in its shard, and so epochs never go back."""
    current: dict[str, int] = {}
    for fact in facts:
        match fact:
            case Installed(epoch=epoch):
                if epoch <= current.get(fact.subject, 0):
                    yield _violation(facts, "I6", fact, f"epoch {epoch} follows {current[fact.subject]}")
                current[fact.subject] = epoch
            case Planned(fired=Fired.APPLIED, shard=shard, epoch=epoch) if epoch != current.get(shard):
                yield _violation(facts, "I6", fact, f"epoch {epoch} planned while {current.get(shard)} was current")
            case _:
                pass


def repetitions_explained(facts: Facts) -> Iterator[Violation]:
    """I7: of all claims under which a handler began, at most one has not lapsed, failed or been released."""
    begun: defaultdict[str, set[int]] = defaultdict(set)
    explained: defaultdict[str, set[int]] = defaultdict(set)
    final: defaultdict[str, set[int]] = defaultdict(set)
    for fact in facts:
        match fact:
            case Lapsed(fence=fence):
                explained[fact.subject].add(fence)
            case Settled(applied=True, settlement=settlement):
                kind = explained if settlement.state is State.PENDING else final
                kind[fact.subject].add(settlement.fence)
            case Revived(by="store.redrive"):
                explained[fact.subject] |= final[fact.subject]
            case Began(fence=fence):
                if fence in begun[fact.subject]:
                    yield _violation(facts, "I7", fact, f"it began twice under fence {fence}")
                begun[fact.subject].add(fence)
                if len(open_ones := begun[fact.subject] - explained[fact.subject]) > 1:
                    message = f"it began under fence {fence}, and nothing ended its begin under {open_ones - {fence}}"
                    yield _violation(facts, "I7", fact, message)
            case _:
                pass


def pauses_respected(facts: Facts) -> Iterator[Violation]:
    """I8: of a paused or removed job no run is planned and no waiting one claimed."""
    status: dict[str, JobStatus] = {}
    uids: dict[str, str] = {}
    removed: set[str] = set()
    for fact in facts:
        match fact:
            case Saved(record=record):
                status[record.name], uids[record.name] = record.status, record.uid
            case Removed():
                status.pop(fact.subject, None)
                removed.add(uids.get(fact.subject, ""))
            case Materialised(run=run, by="store.fire"):
                if status.get(run.job) in _UNPLANNED or run.uid in removed:
                    yield _violation(facts, "I8", fact, f"{run.job} was planned although it must not be")
            case Granted(request=int(), again=False, claim=claim) if status.get(claim.run.job) in _BLOCKED:
                yield _violation(facts, "I8", fact, f"it was claimed while {claim.run.job} was {status[claim.run.job]}")
            case _:
                pass


_BLOCKED = (JobStatus.PAUSED, JobStatus.REMOVED)
_UNPLANNED = (*_BLOCKED, JobStatus.RETIRED)


def groups_bounded(facts: Facts) -> Iterator[Violation]:
    """I9: a group has no more members, and no more claims, than places; an expired claim counts until it is reaped."""
    members: defaultdict[str, set[str]] = defaultdict(set)
    running: defaultdict[str, set[str]] = defaultdict(set)
    groups: dict[str, str] = {}
    for fact in facts:
        match fact:
            case Joined(run=run) if run.group is not None:
                members[run.group].add(run.id)
                groups[run.id] = run.group
                if len(members[run.group]) > run.limit:
                    yield _violation(facts, "I9", fact, f"{run.group} has {run.limit} places: {members[run.group]}")
            case Granted(claim=claim, again=False) if claim.run.group is not None:
                running[claim.run.group].add(claim.run.id)
                groups[claim.run.id] = claim.run.group
                if len(running[claim.run.group]) > claim.run.limit:
                    message = f"{claim.run.group} has {claim.run.limit} places: {running[claim.run.group]} are running"
                    yield _violation(facts, "I9", fact, message)
            case Settled(applied=True) if fact.subject in groups:
                running[groups[fact.subject]].discard(fact.subject)
            case Ended() | Deleted() if fact.subject in groups:
                members[groups[fact.subject]].discard(fact.subject)
                running[groups[fact.subject]].discard(fact.subject)
            case _:
                pass


def one_begin_at_most(facts: Facts) -> Iterator[Violation]:
    """I11: an at-most-once run begins once; after a lapse it is not claimed again. A redrive starts it again."""
    careful: set[str] = set()
    begun: dict[str, int] = {}
    lapsed: set[str] = set()
    for fact in facts:
        match fact:
            case Granted(claim=claim, again=False):
                if claim.run.policy.delivery is Delivery.AT_MOST_ONCE:
                    careful.add(fact.subject)
                    if fact.request is not None and fact.subject in lapsed:
                        yield _violation(facts, "I11", fact, "it was claimed again after its claim had lapsed")
            case Lapsed():
                lapsed.add(fact.subject)
            case Revived(by="store.redrive"):
                begun.pop(fact.subject, None)
                lapsed.discard(fact.subject)
            case Began(fence=fence):
                if fact.subject in careful and fact.subject in begun:
                    message = f"it began under fence {fence} and before under {begun[fact.subject]}"
                    yield _violation(facts, "I11", fact, message)
                begun[fact.subject] = fence
            case _:
                pass


def lost_is_lost(facts: Facts) -> Iterator[Violation]:
    """I12: an at-most-once run whose claim lapsed ends as lost, or cancelled if that was asked for; nothing else."""
    lapsed: set[str] = set()
    for fact in facts:
        match fact:
            case Granted(request=None, claim=claim) if claim.run.policy.delivery is Delivery.AT_MOST_ONCE:
                lapsed.add(fact.subject)
            case Revived(by="store.redrive"):
                lapsed.discard(fact.subject)
            case Settled(applied=True, settlement=settlement) if fact.subject in lapsed:
                if settlement.state not in {State.LOST, State.CANCELLED}:
                    yield _violation(facts, "I12", fact, f"it was lost and is reported as {settlement.state}")
            case _:
                pass


JUDGES: tuple[Callable[[Facts], Iterator[Violation]], ...] = (
    one_record_per_instant,
    nothing_early,
    fences_grow,
    latest_fence_acts,
    one_final_state,
    leaders_in_order,
    repetitions_explained,
    pauses_respected,
    groups_bounded,
    one_begin_at_most,
    lost_is_lost,
)
