"""A simulated cluster: the nodes of one simulation by name, each of which can die and be started again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from duly.testing.sim.clock import SimClock
from duly.testing.sim.network import FaultySession, Network
from duly.testing.sim.node import SimNode

Serve = Callable[[str, FaultySession], Coroutine[Any, Any, None]]
"""What a node does, given its id (a new one after each start) and its backend, whose clock it uses."""


class SimCluster:
    """Starts, pauses and kills nodes, and writes it into the history."""

    def __init__(self, network: Network, serve: Serve) -> None:
        self.network = network
        self.nodes: dict[str, SimNode] = {}
        self.clocks: dict[str, SimClock] = {}
        self._serve = serve
        self._lives: dict[str, int] = {}

    def start(self, name: str) -> SimNode:
        """Start that node again. Its clock continues as it was."""
        self._lives[name] = self._lives.get(name, 0) + 1
        clock = self.clocks.setdefault(name, SimClock(self.network.loop))
        node = self.nodes[name] = self.network.loop.node(name)
        node.start(self._serve(f"{name}.{self._lives[name]}", self.network.session(name, clock)))
        self.network.history.note("started", name)
        return node

    def pause(self, name: str) -> None:
        self.nodes[name].pause()
        self.network.history.note("paused", name)

    def resume(self, name: str) -> None:
        self.nodes[name].resume()
        self.network.history.note("resumed", name)

    def kill(self, name: str) -> None:
        self.nodes[name].kill()
        self.network.history.note("killed", name)

    def recover(self) -> None:
        """Start and resume all nodes, and repair the network."""
        for name, node in self.nodes.items():
            if node.paused:
                self.resume(name)
            if node.killed:
                self.start(name)
        if self.network.store.paused:
            self.network.store.resume()
        self.network.heal()
