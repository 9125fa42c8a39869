"""The story of the demo: one of its two nodes is killed while it works, and the other one takes over its runs."""

from __future__ import annotations

from collections.abc import Sequence

from duly.cli.demo.happenings import Happening
from duly.cli.demo.nodes import DemoNodes
from duly.cli.output import BAD, GOOD
from duly.cli.text import span
from duly.model import Run, short_id
from duly.model.published_event import PublishedEvent
from duly.model.published_event import PublishedEventKind as Kind

FIRST, SECOND, THIRD = "shop-1", "shop-2", "shop-3"

_KILL_AFTER = 6.0
_LONG = frozenset({"drive_a_van", "pack_the_parcels", "count_the_stock"})


class Story:
    """Decides when to kill a node, and notices when its runs have started again."""

    def __init__(self, nodes: DemoNodes) -> None:
        self._nodes = nodes
        self._killed_at: float | None = None
        self._lost: dict[str, str] = {}

    def go_on(self, seconds: float, running: Sequence[Run]) -> list[Happening]:
        """Kill a node if it is time, and it works on something that takes a while."""
        if self._killed_at is not None or seconds < _KILL_AFTER or len(self._nodes.living()) < 2:
            return []
        victim = _busiest(running)
        if victim is None:
            return []
        self._killed_at = seconds
        self._lost = {run.id: run.job for run in running if run.node == victim}
        self._nodes.kill(victim)
        count = len(self._lost)
        what = f"{count} run{'s'[: count != 1]}" if count else "no run"
        return [Happening("kill -9", BAD, "", f"{victim} is killed while it executes {what}: another node takes over")]

    def handle(self, event: PublishedEvent, seconds: float) -> Happening | None:
        """What an event means for the runs of the node that was killed."""
        if event.kind is not Kind.RUN_STARTED or event.run_id not in self._lost or self._killed_at is None:
            return None
        if not (event.attempt or 0) > 1:
            return None  # this event is older than the kill
        job = self._lost.pop(event.run_id)
        after = span(seconds - self._killed_at)
        if not self._lost:
            self._nodes.start(THIRD)
        text = f"{short_id(event.run_id)} runs again on {event.node}, {after} later"
        return Happening("recovered", GOOD, job, text)


def _busiest(running: Sequence[Run]) -> str | None:
    """The node that executes the most runs which take a while; of equals, the one that started last."""
    counts: dict[str, int] = {}
    for run in running:
        if run.job in _LONG and run.node is not None:
            counts[run.node] = counts.get(run.node, 0) + 1
    return max(counts, key=lambda node: (counts[node], node), default=None)
