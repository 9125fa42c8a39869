"""What every machine has: two stores, its own clock, steps that may happen, and the comparison after each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import Struct

from duly.backends.memory import open_url
from duly.model import Counts, JobRecord, JobStatistics, OutcomeKind, Run, RunQuery, State
from duly.ports import Backend, Opening, Order
from duly.testing.conformance.machine.twins import Twins, agree, agree_on_counts, agree_on_statistics
from duly.testing.conformance.world import LEASE, World

ALL = 1000
NODES = st.sampled_from(["n1", "n2"])
BACK = st.sampled_from([0, 0, 0, 0, 1, 2])
RECENT = st.integers(0, 9)
PICKS = st.lists(RECENT, min_size=1, max_size=4, unique=True)

Step = Callable[..., None]


def step(weight: int = 1, **arguments: st.SearchStrategy[Any]) -> Callable[[Step], Step]:
    """Marks a method as one thing that may happen.

    A machine has one rule, which draws a step: Hypothesis switches whole rules off at random, and a history without
    claims, for example, tests little.
    """

    def mark(method: Step) -> Step:
        setattr(method, _MARK, (weight, st.fixed_dictionaries(arguments)))
        return method

    return mark


_MARK = "_duly_step"


class Seen(Struct, frozen=True):
    """What is visible of a store from outside."""

    runs: list[Run]
    upcoming: list[Run]
    jobs: list[JobRecord]
    holds: dict[str, int]
    counts: Counts
    statistics: dict[str, JobStatistics]


class Machine(RuleBasedStateMachine):
    """Both stores, a time that steps move, and the comparison after every step."""

    make_backend: Callable[[], Backend]

    @classmethod
    def on(cls, make_backend: Callable[[], Backend]) -> type[Machine]:
        """This machine for one kind of backend."""
        marked = {name: getattr(getattr(cls, name), _MARK, None) for name in sorted(dir(cls))}
        arguments = {name: mark[1] for name, mark in marked.items() if mark}
        names = [name for name, mark in marked.items() if mark for _ in range(mark[0])]
        choices = st.sampled_from(names).flatmap(lambda name: st.tuples(st.just(name), arguments[name]))
        members = {"make_backend": staticmethod(make_backend), "do": rule(step=choices)(cls.do)}
        return type(cls.__name__, (cls,), members)

    def do(self, step: tuple[str, dict[str, Any]]) -> None:
        name, arguments = step
        getattr(self, name)(**arguments)

    def __init__(self) -> None:
        super().__init__()
        self.twins = Twins(self.make_backend(), open_url("memory://", Opening()))
        self.twins.open()
        self.world = World(self.twins.model)
        self.exact = self.twins.real.capabilities.order is Order.EXACT
        self.versions: defaultdict[str, list[JobRecord]] = defaultdict(list)
        self.outcomes: defaultdict[tuple[str, datetime], set[OutcomeKind]] = defaultdict(set)
        self._told: dict[str, int] = {}

    def teardown(self) -> None:
        self.twins.close()

    @property
    def now(self) -> datetime:
        return self.world.now

    @initialize()
    def begin(self) -> None:
        """Advance by a second, so that everything the stores recorded when they were opened lies in the past."""
        self.world.advance(1)
        self.twins.ask(lambda backend: backend.queue.renew([], LEASE, now=self.now))

    @step(3, seconds=st.sampled_from([0.5, 1.0, 5.0, LEASE, LEASE, 40.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.world.advance(seconds)

    # --- what can be seen

    @invariant()
    def all_that_can_be_seen_is_the_same(self) -> None:
        real, model = self.twins.ask(self._look)
        agree("order of runs", *([run.created_at for run in seen.runs] for seen in (real, model)))
        self.twins.alike("runs", *(sorted(seen.runs, key=lambda run: run.id) for seen in (real, model)))
        self.twins.alike("upcoming", real.upcoming, model.upcoming)
        agree("jobs", real.jobs, model.jobs)
        agree("holds", real.holds, model.holds)
        agree_on_counts(real.counts, model.counts)
        agree_on_statistics(real.statistics, model.statistics, self.outcomes)
        self._keep_versions(model.jobs)
        self._same_histories(model.runs)

    async def _look(self, backend: Backend) -> Seen:
        return Seen(
            runs=(await backend.store.runs(RunQuery(), ALL, now=self.now)).runs,
            upcoming=await backend.store.upcoming(ALL, now=self.now),
            jobs=await backend.store.jobs(),
            holds=await backend.queue.holds(),
            counts=await backend.store.counts(now=self.now),
            statistics=await backend.store.statistics(),
        )

    def _keep_versions(self, records: Sequence[JobRecord]) -> None:
        for record in records:
            versions = self.versions[record.name]
            if not versions or versions[-1] != record:
                versions.append(record)

    def _same_histories(self, runs: Sequence[Run]) -> None:
        """Those of the runs that came to rest with this step; `look_at_every_history` finds the rest."""
        for run in runs:
            if run.state is not State.RUNNING and run.fence > self._told.get(run.id, 0):
                self.twins.history(run.id)
                self._told[run.id] = run.fence

    @step()
    def look_at_every_history(self) -> None:
        for run_id in self._told:
            self.twins.history(run_id)

    def upcoming(self) -> list[Run]:
        return self.twins.model_says(lambda backend: backend.store.upcoming(ALL, now=self.now))
