"""The simulation kit: nodes, a faulty network and a store in virtual time, from one seed, and checks of what happened.

    async def main() -> None:
        clock = SimClock(loop)                                   # the store's
        contents = TapedContents(clock)
        history = History(loop.time, contents.clock.now)
        network = Network(loop, contents, history)
        cluster = SimCluster(network, serve)                            # async def serve(node_id, backend): ...
        for name in ("n1", "n2", "n3"):
            cluster.start(name)
        await FaultPlan().rage(cluster, clock, seconds=120)
        await asyncio.sleep(60)                                  # the quiet time, in which everything must recover
        facts = read(history)
        violations = [*check(facts, schedules), *nothing_left_behind(history, facts, patience=30)]
        assert not violations, violations[0]

    loop = SimLoop(seed=7)
    loop.run(main())

Handlers call `history.begin` and `history.end`. The same seed gives the same history, in one process and in the next.
"""

from duly.deprecation import renamed_names
from duly.testing.sim.clock import EPOCH, SimClock
from duly.testing.sim.cluster import Serve, SimCluster
from duly.testing.sim.contents import TapedContents, TapedRuns
from duly.testing.sim.facts import Fact, history_of, read
from duly.testing.sim.fault_plan import FaultPlan
from duly.testing.sim.history import Begin, Call, Change, End, Event, History, Note
from duly.testing.sim.invariants import JUDGES, NextRun, Schedules, Violation, check, no_invention
from duly.testing.sim.liveness import no_silent_miss, nothing_left_behind
from duly.testing.sim.loop import Deadlock, OutOfBounds, SimLoop, SimulationStopped, Step
from duly.testing.sim.network import FAIR, FOUL, Fault, FaultySession, Network, Weather
from duly.testing.sim.node import SimNode, current_node

__all__ = [
    "EPOCH",
    "FAIR",
    "FOUL",
    "JUDGES",
    "Begin",
    "Call",
    "Change",
    "Deadlock",
    "End",
    "Event",
    "Fact",
    "Fault",
    "FaultPlan",
    "FaultySession",
    "History",
    "Network",
    "NextRun",
    "Note",
    "OutOfBounds",
    "Schedules",
    "Serve",
    "SimClock",
    "SimCluster",
    "SimLoop",
    "SimNode",
    "SimulationStopped",
    "Step",
    "TapedContents",
    "TapedRuns",
    "Violation",
    "Weather",
    "check",
    "current_node",
    "history_of",
    "no_invention",
    "no_silent_miss",
    "nothing_left_behind",
    "read",
]

__getattr__ = renamed_names(__name__, {"Fleet": "duly.testing.sim.cluster.SimCluster"})
