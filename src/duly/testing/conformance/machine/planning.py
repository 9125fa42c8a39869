"""Planning: the machine of jobs, which are saved, planned, paused and removed while their runs come and go."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import strategies as st
from msgspec.structs import replace

from duly.model import Cause, CustomSpec, EverySpec, Firing, JobChange, JobRecord, Pause, State, Waiting, WhenFull
from duly.model.definitions import definitions_log
from duly.model.run import BACKFILLED_BY
from duly.testing.conformance.machine.base import ALL, BACK, step
from duly.testing.conformance.machine.runs import WorkMachine
from duly.testing.conformance.machine.twins import agree, agree_on_due

_NAMES = st.sampled_from(["mail", "report", "digest"])


class PlanningMachine(WorkMachine):
    """Jobs are saved, planned, paused, removed, while their runs come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs = {"main": 0, "main/1": 0, "job:mail": 0}
        self.install("main", 1)

    @step(
        4,
        name=_NAMES,
        schedule=st.sampled_from([None, EverySpec(timedelta(seconds=10)), CustomSpec("tides.Moon")]),
        first=st.sampled_from([-15.0, 5.0, 10.0]),
    )
    def create(self, name: str, schedule: EverySpec | CustomSpec | None, first: float) -> None:
        record = self.world.record(name, every=None)
        record = replace(record, spec=replace(record.spec, schedule=schedule))
        if schedule is not None:
            record = replace(record, cursor=self.world.after(first), plan_at=self.world.after(first - 5))
        self.twins.same("save", lambda backend: backend.store.save([JobChange(record, None)], now=self.now))

    @step(
        5,
        name=_NAMES,
        back=BACK,
        edit=st.sampled_from(["touch", "pause", "resume", "retire", "remove", "restore", "every", "custom", "handler"]),
        waiting=st.sampled_from(Waiting),
        moves_cursor=st.sampled_from([None, None, -5.0, 20.0]),
        ledger=st.booleans(),
        replaces=st.booleans(),
    )
    def change(
        self,
        name: str,
        back: int,
        edit: str,
        waiting: Waiting,
        moves_cursor: float | None,
        ledger: bool,
        replaces: bool,
    ) -> None:
        if (record := self._version(name, back)) is None:
            return
        edited = replace(self._edited(record, edit), revision=record.revision + 1, updated_at=self.now)
        if moves_cursor is not None:
            moved = self.world.after(moves_cursor)
            edited = replace(edited, cursor=moved, plan_at=moved)
        skipped = self.world.planned(
            record, self.world.after(-30), state=State.SKIPPED, reason="paused", until=self.world.after(-20)
        )
        change = JobChange(
            edited,
            record.revision,
            waiting,
            moves_cursor is not None,
            ledger=(skipped,) if ledger else (),
            replaces=b"revision %d" % record.revision if replaces else None,
        )
        self.twins.same("save", lambda backend: backend.store.save([change], now=self.now))
        self.look_at_definitions(name)

    @step(name=_NAMES)
    def look_at_definitions(self, name: str) -> None:
        logs = self.twins.ask(lambda backend: backend.store.read(definitions_log(name)))
        agree("definitions", *([(entry.sequence, entry.value) for entry in log] for log in logs))

    def _edited(self, record: JobRecord, edit: str) -> JobRecord:
        match edit:
            case "pause":
                return replace(record, paused=Pause(self.now, "why"))
            case "resume":
                return replace(record, paused=None, retired_at=None)
            case "retire":
                return replace(record, retired_at=self.now)
            case "remove":
                return replace(record, removed_at=self.now)
            case "restore":
                return replace(record, removed_at=None)
            case "every":
                return replace(record, spec=replace(record.spec, schedule=EverySpec(timedelta(seconds=7))))
            case "custom":
                return replace(record, spec=replace(record.spec, schedule=CustomSpec("tides.Moon")))
            case "handler":
                return replace(record, spec=replace(record.spec, handler="common"))
            case _:
                return record

    def _version(self, name: str, back: int) -> JobRecord | None:
        """The record as it is now, or as it was one or two changes ago."""
        versions = self.versions[name]
        return versions[-1 - min(back, len(versions) - 1)] if versions else None

    @step(name=_NAMES, back=BACK)
    def remove(self, name: str, back: int) -> None:
        if (record := self._version(name, back)) is not None:
            self.twins.same("remove", lambda backend: backend.store.remove(name, record.revision, now=self.now))

    @step(2, shard=st.sampled_from(["main", "main/1", "job:mail"]), proposed=st.integers(0, 5))
    def install(self, shard: str, proposed: int) -> None:
        self.epochs[shard] = self.twins.same("install", lambda backend: backend.store.install(shard, proposed))

    @step(
        8,
        names=st.lists(st.tuples(_NAMES, BACK), min_size=1, max_size=3, unique_by=lambda pick: pick[0]),
        count=st.integers(0, 3),
        overlap=st.sampled_from([None, *WhenFull]),
        missed=st.booleans(),
        last=st.sampled_from([False, False, True]),
        old=st.sampled_from([0, 0, 0, 1]),
        shard=st.sampled_from(["main", "main", "main/1"]),
        move_to=st.sampled_from([None, None, "main", "main/1"]),
    )
    def fire(
        self,
        names: list[tuple[str, int]],
        count: int,
        overlap: WhenFull | None,
        missed: bool,
        last: bool,
        old: int,
        shard: str,
        move_to: str | None,
    ) -> None:
        versions = [self._version(name, back) for name, back in names]
        firings = [
            replace(self._firing(record, count, overlap, missed, last), move_to=move_to)
            for record in versions
            if record is not None and record.cursor is not None and record.shard == shard
        ]
        epoch = self.epochs[shard] - old
        self.twins.same("fire", lambda backend: backend.store.fire(firings, shard, epoch, now=self.now))

    def _firing(self, record: JobRecord, count: int, overlap: WhenFull | None, missed: bool, last: bool) -> Firing:
        """A plan from the record's cursor on: the first instant perhaps missed, the others to be run."""
        assert record.cursor is not None
        instants = [record.cursor + timedelta(seconds=10 * number) for number in range(count + 1)]
        group = None if overlap is None else record.uid
        runs = [
            self.world.planned(record, due, group=group, when_full=overlap or WhenFull.SKIP) for due in instants[:-1]
        ]
        if runs and missed:
            runs[0] = replace(runs[0], state=State.SKIPPED, reason="misfire", until=runs[0].due)
        return Firing(
            uid=record.uid,
            name=record.name,
            revision=record.revision,
            expect=record.cursor,
            cursor=None if last else instants[-1],
            plan_at=None if last else instants[-1] - timedelta(seconds=5),
            runs=tuple(runs),
        )

    @step(
        3,
        name=_NAMES,
        back=BACK,
        earlier=st.lists(st.sampled_from([0, 10, 20, 30]), min_size=1, max_size=3),
        offset=st.sampled_from([None, -30.0, -25.0]),
        overlap=st.sampled_from([None, WhenFull.QUEUE]),
        rest=st.booleans(),
    )
    def backfill(
        self, name: str, back: int, earlier: list[int], offset: float | None, overlap: WhenFull | None, rest: bool
    ) -> None:
        """Runs for instants before the cursor, or for others; perhaps with a skip after them."""
        if (record := self._version(name, back)) is None:
            return
        base = record.cursor if offset is None and record.cursor is not None else self.world.after(offset or -30.0)
        group = None if overlap is None else record.uid
        runs = [
            self.world.planned(
                record,
                base - timedelta(seconds=seconds),
                ready_at=self.now,
                cause=Cause.BACKFILL,
                headers={BACKFILLED_BY: "ada"},
                group=group,
                when_full=overlap or WhenFull.SKIP,
            )
            for seconds in earlier
        ]
        if rest:
            first = base - timedelta(seconds=5)
            runs.append(self.world.planned(record, first, state=State.SKIPPED, reason="misfire", until=base))
        self.twins.same("backfill", lambda backend: backend.store.backfill(runs, now=self.now))

    @step(3, shard=st.sampled_from(["main", "main/1", "job:mail", "job:report"]), limit=st.sampled_from([1, 2, ALL]))
    def due(self, shard: str, limit: int) -> None:
        agree_on_due(*self.twins.ask(lambda backend: backend.store.due(shard, limit, now=self.now)), limit)

    @step(name=_NAMES, back=BACK, offset=st.sampled_from([-25.0, 0.0, 10.0]))
    def covering(self, name: str, back: int, offset: float) -> None:
        if (record := self._version(name, back)) is None:
            return
        at = record.cursor or self.world.after(offset)
        for instant in (at, at - timedelta(seconds=10), self.world.after(offset)):
            self._same_cover(record.uid, instant)

    def _same_cover(self, uid: str, instant: datetime) -> None:
        found = self.twins.ask(lambda backend: backend.store.covering(uid, instant))
        agree("covering", *(run is not None for run in found))

    @step(name=_NAMES)
    def unhold_job(self, name: str) -> None:
        self.twins.same("unhold", lambda backend: backend.queue.unhold(f"job:{name}", ALL))

    @step(name=_NAMES)
    def list_upcoming(self, name: str) -> None:
        answers = self.twins.ask(lambda backend: backend.store.upcoming(3, name, now=self.now))
        self.twins.alike("upcoming", *answers)

    @step(name=_NAMES)
    def look_at_next_runs(self, name: str) -> None:
        answers = self.twins.ask(lambda backend: backend.store.next_runs([name], now=self.now))
        agree("next_runs", *answers)

    @step(2, handler=st.one_of(_NAMES, st.just("common")), retired=st.booleans(), after=_NAMES)
    def look_at_handlers(self, handler: str, retired: bool, after: str) -> None:
        self.twins.same("handlers", lambda backend: backend.store.handlers(retired=retired))
        self.twins.same("jobs_of", lambda backend: backend.store.jobs_of(handler, retired=retired, limit=9))
        self.twins.same(
            "jobs_of", lambda backend: backend.store.jobs_of(handler, retired=retired, after=after, limit=1)
        )
        self.twins.same("next_plans", lambda backend: backend.store.next_plans(9))
