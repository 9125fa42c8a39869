"""What Duly offers to tests: a harness for users, the conformance suite for backends, and a simulation kit."""

from __future__ import annotations

from duly.testing.clock import ManualClock
from duly.testing.harness import Harness

__all__ = ["Harness", "ManualClock"]
