from duly.testing.sim.clock import EPOCH, SimClock
from duly.testing.sim.loop import Deadlock, OutOfBounds, SimLoop
from duly.testing.sim.node import SimNode, current_node
