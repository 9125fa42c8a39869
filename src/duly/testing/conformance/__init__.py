"""The conformance suite: what a backend must do, as tests that anybody can run against their own.

    from duly.testing.conformance import BackendSuite

    class TestMyBackend(BackendSuite):
        def backend(self):
            return MyBackend("mine://…")   # each time a new one on an empty store, not yet opened

The methods are ordinary tests; pytest finds them. Facts that differ between stores are read from `Capabilities`.
Besides pytest it needs Hypothesis.
"""

from duly.testing.conformance.admission import AdmissionSuite
from duly.testing.conformance.bulk import BulkSuite
from duly.testing.conformance.coordinator import CoordinatorSuite
from duly.testing.conformance.corners import CornerSuite
from duly.testing.conformance.fuzz import FuzzSuite
from duly.testing.conformance.machine import MachineSuite
from duly.testing.conformance.misfires import MisfireSuite
from duly.testing.conformance.placement import PlacementSuite
from duly.testing.conformance.queue import QueueSuite
from duly.testing.conformance.sharing import SharingSuite
from duly.testing.conformance.store import StoreSuite
from duly.testing.conformance.suspects import SuspectSuite
from duly.testing.conformance.transactions import TransactionSuite
from duly.testing.conformance.unique import UniqueSuite
from duly.testing.conformance.world import LEASE, World, scenario


class BackendSuite(
    QueueSuite,
    AdmissionSuite,
    PlacementSuite,
    SuspectSuite,
    MisfireSuite,
    SharingSuite,
    StoreSuite,
    CoordinatorSuite,
    TransactionSuite,
    UniqueSuite,
    BulkSuite,
    CornerSuite,
    FuzzSuite,
    MachineSuite,
):
    """Everything a backend must do."""


__all__ = [
    "LEASE",
    "AdmissionSuite",
    "BackendSuite",
    "BulkSuite",
    "CoordinatorSuite",
    "CornerSuite",
    "FuzzSuite",
    "MachineSuite",
    "MisfireSuite",
    "PlacementSuite",
    "QueueSuite",
    "SharingSuite",
    "StoreSuite",
    "SuspectSuite",
    "TransactionSuite",
    "UniqueSuite",
    "World",
    "scenario",
]
