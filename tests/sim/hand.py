"""Histories written by hand, to see what the checker makes of them."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

from msgspec.structs import replace

from duly.model import (
    Beat,
    BeatReply,
    Cause,
    Claim,
    Claimed,
    EverySpec,
    Fired,
    Firing,
    JobRecord,
    JobSpec,
    Origin,
    OutcomeKind,
    Renewal,
    Run,
    Settlement,
    State,
    recurring_id,
    shift,
)
from duly.testing.sim import EPOCH, Begin, Change, End, History, check, read

LEASE = 15


class Hand:
    """Writes one history. It keeps no rule: that is what is tested."""

    def __init__(self):
        self.time = 0.0
        self.step_back = 0.0
        self.history = History(lambda: self.time, lambda: self.now)
        self.runs = {}
        self._numbers = count(1)

    @property
    def now(self):
        return shift(EPOCH, self.time - self.step_back)

    def wait(self, seconds=1.0):
        self.time += seconds

    def found(self, schedules=None):
        """The numbers of the invariants that are violated."""
        return sorted({violation.invariant for violation in check(read(self.history), schedules)})

    def _call(self, method, arguments, answer, *changes, node="a"):
        self.wait(0.25)
        self.history.call(node, method, arguments, answer, tuple(changes))

    def _change(self, run_id, **fields):
        before = self.runs[run_id]
        self.runs[run_id] = replace(before, **fields)
        return Change(before, self.runs[run_id])

    # --- runs

    def put(self, job="mail", delay=0.0, **fields):
        due = shift(self.now, delay)
        run_id = f"0run{next(self._numbers)}"
        run = Run(id=run_id, job=job, handler=job, due=due, ready_at=due, state=State.QUEUED, **fields)
        self.runs[run_id] = run
        self._call("queue.put", {"runs": (run,)}, [], Change(None, run))
        return run_id

    def claim(self, run_id, fence, node="a", request=1):
        expires_at = shift(self.now, LEASE)
        change = self._change(run_id, state=State.RUNNING, fence=fence, node=node, expires_at=expires_at)
        claimed = Claimed([Claim(self.runs[run_id], fence, expires_at)], None)
        self._call("queue.claim", {"node": node, "request": request}, claimed, change, node=node)

    def claim_again(self, run_id, node="a", request=1):
        run = self.runs[run_id]
        claimed = Claimed([Claim(run, run.fence, run.expires_at)], None)
        self._call("queue.claim", {"node": node, "request": request}, claimed, node=node)

    def reap(self, run_id, fence, node="reaper"):
        expires_at = shift(self.now, LEASE)
        change = self._change(run_id, fence=fence, expires_at=expires_at)
        self._call("queue.reap", {"limit": 10}, [Claim(self.runs[run_id], fence, expires_at)], change, node=node)

    def renew(self, run_id, fence, lost=False):
        renewal = Renewal((BeatReply.LOST if lost else BeatReply.KEPT,))
        self._call("queue.renew", {"beats": (Beat(run_id, fence),)}, renewal)

    def settle(self, run_id, fence, state=State.COMPLETED, outcome=OutcomeKind.SUCCEEDED, stale=False, node="a"):
        run = self.runs[run_id]
        settlement = Settlement(
            run_id=run_id,
            fence=fence,
            job=run.job,
            queue=run.queue,
            node=node,
            state=state,
            outcome=outcome,
            started_at=self.now,
            ended_at=self.now,
            ready_at=run.ready_at,
            failures=0,
            losses=0,
        )
        changes = () if stale else (self._change(run_id, state=state, member=run.member and state is State.PENDING),)
        self._call("queue.settle", {"settlements": (settlement,)}, [not stale], *changes, node=node)

    def release(self, run_id, fence):
        self.settle(run_id, fence, State.PENDING, None)

    def fail(self, run_id, fence):
        self.settle(run_id, fence, State.PENDING, OutcomeKind.FAILED)

    def lose(self, run_id, fence):
        """A reaper settles what it took over."""
        self.settle(run_id, fence, State.PENDING, OutcomeKind.LOST, node="reaper")

    def repeat_settlement(self, run_id, fence):
        settlement = self.history.events[-1].arguments["settlements"][0]
        assert (settlement.run_id, settlement.fence) == (run_id, fence)
        self._call("queue.settle", {"settlements": (settlement,)}, [True])

    def begin(self, run_id, fence, node="a"):
        self.history.events.append(Begin(self.time, self.now, node, self.runs[run_id].job, run_id, fence))

    def end(self, run_id, fence, node="a"):
        self.wait()
        self.history.events.append(End(self.time, self.now, node, self.runs[run_id].job, run_id, fence, "returned"))

    def finish(self, run_id, state, method="store.cancel"):
        self._call(method, {}, None, self._change(run_id, state=state, member=False))

    def redrive(self, run_id, by="store.redrive"):
        self._call(by, {"run_ids": (run_id,)}, [], self._change(run_id, state=State.QUEUED))

    def delete(self, run_id, by="store.purge"):
        self._call(by, {}, [], Change(self.runs.pop(run_id), None))

    def join(self, run_id):
        self._call("queue.promote", {}, (1, None), self._change(run_id, member=True))

    def hold(self, run_id, key):
        self._call(
            "queue.claim", {"request": 1}, Claimed([], None), self._change(run_id, hold=key, state=State.PENDING)
        )

    # --- jobs

    def save(self, name="report", every=10.0, **fields):
        """A job with an instant every few seconds from the epoch on."""
        values = {
            "uid": f"0{name}",
            "spec": JobSpec(name=name, handler=name, schedule=EverySpec(timedelta(seconds=every))),
            "revision": 1,
            "origin": Origin.CODE,
            "created_at": self.now,
            "updated_at": self.now,
            "cursor": shift(EPOCH, every),
            "plan_at": self.now,
        }
        record = JobRecord(**values | fields)
        self._call("store.save", {"changes": ()}, [record])
        return record

    def remove(self, name):
        self._call("store.remove", {"name": name, "expect": 1}, True)

    def install(self, epoch, shard="main"):
        self._call("store.install", {"shard": shard, "proposed": epoch}, epoch)

    def fire(self, record, *seconds, epoch=1, fired=Fired.APPLIED, shard="main", until=None, **fields):
        """Runs of a job for instants so many seconds after the epoch; the answer says what became of them."""
        runs = [self._planned(record, shift(EPOCH, each), until, fields) for each in seconds]
        cursor = shift(EPOCH, (seconds[-1] if seconds else 0) + 10)
        firing = Firing(record.uid, record.name, 1, record.cursor, cursor, cursor, tuple(runs))
        changes = [Change(None, run) for run in runs] if fired is Fired.APPLIED else []
        self.runs |= {run.id: run for run in runs}
        self._call("store.fire", {"firings": (firing,), "shard": shard, "epoch": epoch}, [fired], *changes)
        return [run.id for run in runs]

    def _planned(self, record, due, until, fields):
        values = {
            "id": recurring_id(record.uid, due),
            "job": record.name,
            "handler": record.name,
            "uid": record.uid,
            "cause": Cause.SCHEDULE,
            "due": due,
            "ready_at": due,
            "until": None if until is None else shift(EPOCH, until),
        }
        return Run(**values | fields)


def every(record):
    """How to compute the instants of the jobs above."""
    interval = record.spec.schedule.interval

    def next_run(after):
        return EPOCH + interval * ((after - EPOCH) // interval + 1)

    return next_run
