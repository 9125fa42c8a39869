"""Twins: a backend and the memory model, asked the same questions, and how their answers are compared.

Fences differ between stores, so they are compared as a one-to-one relation in which later ones are greater. Everything
else that a contract fixes must be equal; where it leaves a choice (the order of equals, where a due run is kept until
it is promoted), any choice is accepted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from duly.model import Attempt, Cause, Claim, Counts, Depth, JobRecord, JobStatistics, Lease, OutcomeKind, Run, State
from duly.ports import Backend

T = TypeVar("T")


class Pair(Struct, frozen=True):
    """One claim as each of the two gave it."""

    real: Claim
    model: Claim


class LeasePair(Struct, frozen=True):
    """One lease as each of the two gave it."""

    real: Lease
    model: Lease


class Fences:
    """Which fence of the backend corresponds to which of the model."""

    def __init__(self) -> None:
        self._model: dict[int, int] = {}
        self._real: dict[int, int] = {}

    def meet(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Fences given in one call, (real, model): each known as the same pair, or newer than all before on both."""
        floor = (max(self._model, default=0), max(self._real, default=0))
        for real, model in pairs:
            if real in self._model or model in self._real:
                age = ["given before" if known else "new" for known in (real in self._model, model in self._real)]
                assert self._model.get(real) == model, (
                    f"fence: the backend gave {real} ({age[0]}), the model gave {model} ({age[1]})"
                )
                continue
            assert (real > floor[0], model > floor[1]) == (True, True), (
                f"fence: {real} after {floor[0]}, in the model {model} after {floor[1]}"
            )
            self._model[real], self._real[model] = model, real

    def known(self, real: int) -> int:
        """The model's fence for one of the backend's; one that was never given out stays as it is."""
        return self._model.get(real, real)


class Twins:
    """Both stores, on their own event loop."""

    def __init__(self, real: Backend, model: Backend) -> None:
        self.real = real
        self.model = model
        self.fences = Fences()
        self.leases: dict[str, Fences] = {}
        self._runner = asyncio.Runner()

    def ask(self, call: Callable[[Backend], Coroutine[Any, Any, T]]) -> tuple[T, T]:
        """The answer of the backend, the answer of the model."""

        async def both() -> tuple[T, T]:
            return await call(self.real), await call(self.model)

        return self._run(both())

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        """As `Runner.run`, without its handling of signals, which costs more than most calls."""
        return self._runner.get_loop().run_until_complete(call)

    def model_says(self, call: Callable[[Backend], Coroutine[Any, Any, T]]) -> T:
        """The model's answer alone."""
        return self._run(call(self.model))

    def same(self, what: str, call: Callable[[Backend], Coroutine[Any, Any, T]]) -> T:
        """An answer that must be equal."""
        real, model = self.ask(call)
        agree(what, real, model)
        return model

    def open(self) -> None:
        self._run(self._open())

    async def _open(self) -> None:
        for backend in (self.real, self.model):
            await backend.open()
            await backend.store.migrate()

    def close(self) -> None:
        self._run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        for backend in (self.real, self.model):
            await backend.close()

    # --- fences

    def lent(self, what: str, real: Sequence[Claim], model: Sequence[Claim], *, ordered: bool) -> list[Pair]:
        """The same claims, in the same order if that is promised."""
        tell: Callable[[Sequence[Claim]], object] = _in_their_order if ordered else _sorted_ids
        agree(what, tell(real), tell(model))
        by_id = {claim.run.id: claim for claim in real}
        pairs = [Pair(by_id[claim.run.id], claim) for claim in model]
        self.fences.meet([(pair.real.fence, pair.model.fence) for pair in pairs])
        for pair in pairs:
            agree(f"{what}: the run's fence", pair.real.run.fence, pair.real.fence)
            agree(f"{what}: expiry", pair.real.expires_at, pair.model.expires_at)
            self.alike(what, [pair.real.run], [pair.model.run])
        return pairs

    def leased(self, what: str, real: Lease | None, model: Lease | None) -> LeasePair | None:
        """The same lease, or none."""
        if real is None or model is None:
            agree(what, real, model)
            return None
        self.leases.setdefault(model.name, Fences()).meet([(real.fence, model.fence)])
        agree(what, replace(real, fence=0), replace(model, fence=0))
        return LeasePair(real, model)

    # --- records

    def alike(self, what: str, real: Sequence[Run], model: Sequence[Run]) -> None:
        """The same runs in the same order; which request lent one may differ."""
        ours = [replace(run, fence=self.fences.known(run.fence), request=0) for run in real]
        agree(what, ours, [replace(run, request=0) for run in model])

    def history(self, run_id: str) -> tuple[Attempt, ...]:
        """The attempts of one run, the same in both."""
        real, model = self.ask(lambda backend: backend.store.attempts(run_id))
        ours = [replace(attempt, fence=self.fences.known(attempt.fence)) for attempt in real]
        agree(f"attempts of {run_id}", ours, model)
        return tuple(model)


def _sorted_ids(claims: Sequence[Claim]) -> list[str]:
    return sorted(claim.run.id for claim in claims)


def _in_their_order(claims: Sequence[Claim]) -> list[list[str]]:
    """The ids of each priority in turn, scheduled ones, then others: how the two follow each other is not promised."""
    told: list[list[str]] = []
    for _, same in groupby(claims, key=lambda claim: claim.run.priority):
        runs = [claim.run for claim in same]
        told.append([run.id for run in runs if run.cause is Cause.SCHEDULE])
        told.append([run.id for run in runs if run.cause is not Cause.SCHEDULE])
    return told


def agree(what: str, real: object, model: object) -> None:
    """The two answers are equal; if not, the message names only what differs."""
    if real != model:
        raise AssertionError("\n  ".join([f"{what}: the backend and the model differ", *_differences(real, model)]))


def _differences(real: object, model: object, path: str = "") -> list[str]:
    """Where two answers differ: fields of records, members of dictionaries, elements of lists of the same length."""
    if real == model:
        return []
    pairs: list[tuple[str, object, object]] = []
    if isinstance(real, Struct) and isinstance(model, Struct) and type(real) is type(model):
        path += f"[{real.id}]" if isinstance(real, Run) and isinstance(model, Run) and real.id == model.id else ""
        fields = real.__struct_fields__
        pairs = [(f"{path}.{field}", getattr(real, field), getattr(model, field)) for field in fields]
    elif isinstance(real, dict) and isinstance(model, dict):
        keys = list(dict.fromkeys([*real, *model]))
        pairs = [(f"{path}[{key}]", real.get(key, "absent"), model.get(key, "absent")) for key in keys]
    elif isinstance(real, list) and isinstance(model, list) and len(real) == len(model):
        pairs = [(f"{path}[{index}]", *each) for index, each in enumerate(zip(real, model, strict=True))]
    if not pairs:
        return [f"{path.lstrip('.') or 'answer'}: backend {real!r}, model {model!r}"]
    return [found for name, ours, theirs in pairs for found in _differences(ours, theirs, name)]


def agree_on_next(
    what: str, real: datetime | None, upcoming: Sequence[Run], now: datetime, node: str | None = None
) -> None:
    """When to ask again: the earliest later time; or a past one, as long as something is ready.

    What is assigned to other nodes than the one that asks may be left out.
    """
    waiting = [run for run in upcoming if run.hold is None]
    own = [run for run in waiting if node is None or run.assignee in {None, node}]
    later = [min((run.ready_at for run in runs if run.ready_at > now), default=None) for runs in (waiting, own)]
    ready = any(run.ready_at <= now for run in waiting)
    fine = real in later or (ready and real is not None and real <= now)
    assert fine, f"{what}: the next is {later[0]}, the backend says {real}"


def agree_on_due(
    real: tuple[list[JobRecord], datetime | None], model: tuple[list[JobRecord], datetime | None], limit: int
) -> None:
    """The same records, earliest first; among equally early ones the order, and the cut at the limit, are free."""
    agree("due: next", real[1], model[1])
    agree("due: times", [record.plan_at for record in real[0]], [record.plan_at for record in model[0]])
    if len(model[0]) < limit:
        names = [sorted(record.name for record in each[0]) for each in (real, model)]
        agree("due: names", *names)


def agree_on_counts(real: Counts, model: Counts) -> None:
    """The same numbers; a queue where nothing waits and nothing is paused may be left out."""
    agree("counts by state", *({state: each.states.get(state, 0) for state in State} for each in (real, model)))
    empty = Depth()
    agree(
        "counts by queue",
        *({queue: depth for queue, depth in each.queues.items() if depth != empty} for each in (real, model)),
    )


def agree_on_statistics(
    real: dict[str, JobStatistics],
    model: dict[str, JobStatistics],
    outcomes: dict[tuple[str, datetime], set[OutcomeKind]],
) -> None:
    """The same counters. Of several attempts that started last at one moment, any may be the last outcome."""
    agree("statistics: jobs", sorted(real), sorted(model))
    for job, expected in model.items():
        given = real[job]
        assert abs(given.seconds - expected.seconds) < 1e-3, f"statistics of {job}: {given} and {expected}"
        if given.last_outcome != expected.last_outcome and expected.last_run_at is not None:
            assert given.last_outcome in outcomes[job, expected.last_run_at], f"statistics of {job}: {given}"
        agree(f"statistics of {job}", *(replace(each, seconds=0.0, last_outcome=None) for each in (given, expected)))
