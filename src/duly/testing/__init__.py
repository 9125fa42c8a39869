"""What Duly offers to tests: a harness for users, the conformance suite for backends, a simulation for the brave."""

from __future__ import annotations

from duly.testing.clock import ManualClock
from duly.testing.harness import Harness

__all__ = ["Harness", "ManualClock"]
