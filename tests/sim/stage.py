"""The stage that the tests of the simulation kit share: a loop, a store, a network, a history."""

from __future__ import annotations

import random

from duly.backends.memory import MemoryBackend
from duly.model import Ids, Run
from duly.testing.sim import FAIR, History, Network, SimClock, SimLoop, TapedContents


class Stage:
    def __init__(self, seed=0, weather=FAIR, backend=MemoryBackend, **options):
        self.loop = SimLoop(seed, **options)
        self.clock = SimClock(self.loop)
        self.contents = TapedContents(self.clock)
        self.history = History(self.loop.time, self.contents.clock.now)
        self.network = Network(self.loop, self.contents, self.history, weather, backend)
        self.rng = random.Random(f"stage/{seed}")
        self.ids = Ids(self.clock.now, self.rng)

    def play(self, main):
        return self.loop.run(main)

    def run(self, job="mail", **fields):
        now = self.clock.now()
        values = {"id": self.ids.new(), "job": job, "handler": job, "due": now, "ready_at": now}
        return Run(**values | fields)

    def calls(self, method):
        return [event for event in self.history.events if getattr(event, "method", None) == method]
