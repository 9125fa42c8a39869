"""Facts: what the events of a history mean, in the terms of the protocol.

A call may do many things to many runs; each becomes a fact about one run or one job, in order. Invariants are judged
from facts, and the facts about a run, in order, are its history.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from duly.model import FINAL, BeatReply, Claim, Fired, Firing, JobRecord, Run, Settlement, State
from duly.testing.sim.history import Begin, Call, Change, End, Event, History, Note


class Fact(Struct, frozen=True):
    """Something that is true from a certain moment on. `subject` is a run's id, a job's name, or a shard's."""

    at: float
    now: datetime
    node: str
    subject: str

    def tell(self) -> str:
        return f"{self.at:10.3f}s  {self.node or '-':<10} {self._words()}"

    def _words(self) -> str:
        return type(self).__name__.lower()


class Materialised(Fact, frozen=True):
    """A run or a skip came into being."""

    run: Run
    by: str

    def _words(self) -> str:
        until = f" to {self.run.until}" if self.run.until else ""
        return f"{self.by} made it: {self.run.state}, due {self.run.due}{until}"


class Deleted(Fact, frozen=True):
    """A run was deleted."""

    run: Run
    by: str

    def _words(self) -> str:
        return f"{self.by} deleted it"


class Granted(Fact, frozen=True):
    """A claim was given out. `request` None: to a reaper. `again`: the answer to a repeated request."""

    claim: Claim
    request: int | None
    again: bool = False

    def _words(self) -> str:
        how = "reaped" if self.request is None else f"claimed by request {self.request}"
        repeat = " (again)" if self.again else ""
        return f"{how}{repeat} under fence {self.claim.fence} until {self.claim.expires_at}"


class Lapsed(Fact, frozen=True):
    """A claim ended: it had expired or its process had ended, and another process took over the run."""

    fence: int

    def _words(self) -> str:
        return f"the claim with fence {self.fence} lapsed"


class Renewed(Fact, frozen=True):
    """A renewal of a claim was requested; `lost`: the store refused."""

    fence: int
    lost: bool

    def _words(self) -> str:
        return f"renewal under fence {self.fence} {'refused' if self.lost else 'accepted'}"


class Settled(Fact, frozen=True):
    """A settlement was offered: refused (stale), applied, or accepted as a repeat of an applied one."""

    settlement: Settlement
    accepted: bool
    applied: bool

    def _words(self) -> str:
        fate = "applied" if self.applied else "accepted as a repeat" if self.accepted else "refused"
        how = self.settlement.outcome or "release"
        return f"settlement under fence {self.settlement.fence} ({how} → {self.settlement.state}) {fate}"


class Ended(Fact, frozen=True):
    """A run reached a final state."""

    run: Run
    by: str

    def _words(self) -> str:
        return f"{self.by} ended it as {self.run.state}" + (f" ({self.run.reason})" if self.run.reason else "")


class Revived(Fact, frozen=True):
    """A run left a final state; only a redrive may do that."""

    run: Run
    was: State
    by: str

    def _words(self) -> str:
        return f"{self.by} revived it from {self.was}"


class Joined(Fact, frozen=True):
    """A run became a member of its group."""

    run: Run

    def _words(self) -> str:
        return f"joined group {self.run.group} ({self.run.limit} places)"


class Planned(Fact, frozen=True):
    """A leader's firing and its result."""

    firing: Firing
    shard: str
    epoch: int
    fired: Fired

    def _words(self) -> str:
        return f"firing of epoch {self.epoch} in shard {self.shard}, {len(self.firing.runs)} runs: {self.fired}"


class Installed(Fact, frozen=True):
    """A leader's epoch was installed."""

    epoch: int

    def _words(self) -> str:
        return f"epoch {self.epoch} installed"


class Saved(Fact, frozen=True):
    """A job's record was written."""

    record: JobRecord

    def _words(self) -> str:
        return f"saved revision {self.record.revision}, {self.record.status}, cursor {self.record.cursor}"


class Removed(Fact, frozen=True):
    """A job's record was deleted for good."""

    def _words(self) -> str:
        return "job removed"


class Began(Fact, frozen=True):
    """A handler began."""

    fence: int

    def _words(self) -> str:
        return f"handler begins under fence {self.fence}"


class Finished(Fact, frozen=True):
    """A handler ended."""

    fence: int
    how: str

    def _words(self) -> str:
        return f"handler ends under fence {self.fence} {self.how}"


class Noted(Fact, frozen=True):
    """Something done to a node or the network."""

    text: str

    def _words(self) -> str:
        return self.text


def read(history: History) -> list[Fact]:
    """All facts of a history, in order."""
    reader = _Reader()
    return [fact for event in history.events for fact in reader.facts(event)]


class _Reader:
    """Remembers which claim has which run, to distinguish a repeat from the first time."""

    def __init__(self) -> None:
        self._given: dict[int, tuple[str, str, int | None]] = {}
        self._latest: dict[str, int] = {}
        self._open: dict[str, int] = {}

    def facts(self, event: Event) -> Iterator[Fact]:
        match event:
            case Call():
                yield from self._call(event)
            case Begin():
                yield Began(event.at, event.now, event.node, event.run_id, event.fence)
            case End():
                yield Finished(event.at, event.now, event.node, event.run_id, event.fence, event.how)
            case Note():
                yield Noted(event.at, event.now, event.node, "", event.text)
            case _:
                raise TypeError(f"{event!r} is not an event of a history")

    def _call(self, call: Call) -> Iterator[Fact]:
        if isinstance(call.answer, Exception):
            return
        match call.method:
            case "queue.claim":
                yield from self._granted(call, call.answer.claims, call.arguments["request"])
            case "queue.begin":
                begun = [claim for claim in call.answer if claim is not None]
                yield from self._granted(call, begun, call.arguments["request"])
            case "queue.claim_held" if call.answer is not None:
                yield from self._granted(call, [call.answer], call.arguments["request"])
            case "queue.reap" | "queue.take_over":
                yield from self._granted(call, call.answer, None)
            case "queue.renew":
                yield from self._renewed(call)
            case "queue.settle":
                yield from self._settled(call)
            case "store.fire":
                for firing, fired in zip(call.arguments["firings"], call.answer, strict=True):
                    shard, epoch = call.arguments["shard"], call.arguments["epoch"]
                    yield Planned(call.at, call.now, call.node, firing.name, firing, shard, epoch, fired)
            case "store.install":
                yield Installed(call.at, call.now, call.node, call.arguments["shard"], call.answer)
            case "store.save":
                for record in call.answer:
                    if record is not None:
                        yield Saved(call.at, call.now, call.node, record.name, record)
            case "store.remove" if call.answer:
                yield Removed(call.at, call.now, call.node, call.arguments["name"])
            case _:
                pass
        for change in call.changes:
            yield from _changed(call, change)

    def _granted(self, call: Call, claims: Sequence[Claim], request: int | None) -> Iterator[Fact]:
        for claim in claims:
            run_id, owner = claim.run.id, (claim.run.id, call.node, request)
            again = request is not None and self._given.get(claim.fence) == owner
            if request is None and run_id in self._latest:
                yield Lapsed(call.at, call.now, call.node, run_id, self._latest[run_id])
            if not again:
                self._given[claim.fence] = owner
                self._latest[run_id] = self._open[run_id] = claim.fence
            yield Granted(call.at, call.now, call.node, run_id, claim, request, again)

    def _renewed(self, call: Call) -> Iterator[Fact]:
        for beat, reply in zip(call.arguments["beats"], call.answer.replies, strict=True):
            yield Renewed(call.at, call.now, call.node, beat.run_id, beat.fence, reply is BeatReply.LOST)

    def _settled(self, call: Call) -> Iterator[Fact]:
        for settlement, accepted in zip(call.arguments["settlements"], call.answer, strict=True):
            run_id = settlement.run_id
            applied = accepted and run_id in self._open
            if applied:
                del self._open[run_id]
            yield Settled(call.at, call.now, call.node, run_id, settlement, accepted, applied)


def _changed(call: Call, change: Change) -> Iterator[Fact]:
    before, after = change.before, change.after
    if after is None:
        if before is not None:
            yield Deleted(call.at, call.now, call.node, before.id, before, call.method)
        return
    if before is None:
        yield Materialised(call.at, call.now, call.node, after.id, after, call.method)
    elif before.state in FINAL and after.state not in FINAL:
        yield Revived(call.at, call.now, call.node, after.id, after, before.state, call.method)
    if after.state in FINAL:
        yield Ended(call.at, call.now, call.node, after.id, after, call.method)
    if after.member and (before is None or not before.member):
        yield Joined(call.at, call.now, call.node, after.id, after)


def history_of(facts: Sequence[Fact], subject: str) -> tuple[str, ...]:
    """What happened to one run or job, line by line."""
    return tuple(fact.tell() for fact in facts if fact.subject == subject)
