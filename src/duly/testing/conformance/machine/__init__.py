"""The machine: random histories, played on a backend and on the memory model, whose answers must never differ.

Hypothesis chooses the steps and, when the two disagree, finds a shortest history that shows it. Time is the machine's
own. After every step everything visible from outside is compared. `twins` says what counts as equal.
"""

from __future__ import annotations

from typing import ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from duly.ports import Backend
from duly.testing.conformance.machine.base import Machine
from duly.testing.conformance.machine.placing import PlacementMachine
from duly.testing.conformance.machine.planning import PlanningMachine
from duly.testing.conformance.machine.runs import QueueMachine
from duly.testing.conformance.machine.small import SmallMachine
from duly.testing.conformance.world import part


@part
class MachineSuite:
    """A backend always answers as the model does.

    Subclasses may ask for more `examples`, longer ones (`steps`), others each time (`derandomize = False`), or, when
    one fails, for the shortest history that shows it (`shrink = True`, which can take minutes on a slow store).
    """

    examples: ClassVar[int] = 60
    steps: ClassVar[int] = 50
    derandomize: ClassVar[bool] = True
    shrink: ClassVar[bool] = False

    def backend(self) -> Backend:
        raise NotImplementedError

    def _play(self, machine: type[Machine]) -> None:
        chosen = settings(
            max_examples=self.examples,
            stateful_step_count=self.steps,
            derandomize=self.derandomize,
            phases=[Phase.generate, Phase.shrink] if self.shrink else [Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(machine.on(self.backend), settings=chosen)

    def test_runs_go_the_same_way_as_in_the_model(self) -> None:
        self._play(QueueMachine)

    def test_placed_runs_go_the_same_way_as_in_the_model(self) -> None:
        self._play(PlacementMachine)

    def test_jobs_are_planned_as_in_the_model(self) -> None:
        self._play(PlanningMachine)

    def test_small_things_are_kept_as_in_the_model(self) -> None:
        self._play(SmallMachine)
