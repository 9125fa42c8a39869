"""Placement: the machine of the hot path with runs that are assigned, taken back and assigned again."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from duly.model import Assignment, Run, Share
from duly.model.holds import UNPLACED
from duly.ports import Backend
from duly.testing.conformance.machine.base import ALL, NODES, PICKS, step
from duly.testing.conformance.machine.runs import DRAFTS, QueueMachine
from duly.testing.conformance.machine.twins import agree


class PlacementMachine(QueueMachine):
    """The whole hot path, for runs that any node may start and runs that are placed."""

    @step(3, drafts=st.lists(DRAFTS, min_size=1, max_size=4))
    def put_to_be_placed(self, drafts: list[dict[str, Any]]) -> None:
        runs = [self.drafted(draft, hold=UNPLACED, assignable=True) for draft in drafts]
        self.ids += [run.id for run in runs]
        self._put(runs)

    @step(4, picks=PICKS, node=NODES)
    def assign(self, picks: list[int], node: str) -> None:
        wishes = [Assignment(run_id, node) for run_id in [*self.picked_ids(picks), "0none"]]
        self.twins.same("assign", lambda backend: backend.queue.assign(wishes))

    @step(node=NODES)
    def unassign(self, node: str) -> None:
        self.twins.same("unassign", lambda backend: backend.queue.unassign(node, ALL))

    @step(limit=st.sampled_from([1, 2, ALL]))
    def look_at_the_unplaced(self, limit: int) -> None:
        """From the first to the last, a slice at a time."""
        real, model = self.twins.ask(lambda backend: self._slices(backend, limit))
        self.twins.alike("unplaced", real, model)

    async def _slices(self, backend: Backend, limit: int) -> list[Run]:
        found: list[Run] = []
        while some := await backend.queue.held(UNPLACED, limit, found[-1] if found else None, now=self.now):
            assert len(some) <= limit, f"held({limit}) gave {len(some)}"
            found += some
        return found

    @step(2)
    def look_at_shares(self) -> None:
        agree("assigned", *self.twins.ask(self._shares))

    async def _shares(self, backend: Backend) -> dict[str, Share]:
        shares = await backend.queue.assigned(now=self.now)
        return {node: share for node, share in shares.items() if share != Share()}

    @step(limit=st.sampled_from([1, ALL]))
    def give_placement_up(self, limit: int) -> None:
        self.twins.same("unhold", lambda backend: backend.queue.unhold(UNPLACED, limit))
