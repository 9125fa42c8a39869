"""The conformance suite: what a backend must do, as tests that can be run against any backend.

    from duly.testing.conformance import BackendSuite

    class TestMyBackend(BackendSuite):
        def backend(self):
            return MyBackend("mine://…")   # each time a new one on an empty store, not yet opened

The methods are ordinary tests; pytest finds them. Facts that differ between stores are read from `Capabilities`.
It needs pytest and Hypothesis.

The suite has parts. Each needs only what the parts before it need, and a little more: `docs/backends.md` lists them in
this order with the methods that each adds. pytest runs them in this order, so `pytest -x` stops at the first thing that
is missing, and `pytest -k GroupSuite` runs one part alone.
"""

from duly.testing.conformance.admission import AdmissionSuite
from duly.testing.conformance.backfill import BackfillSuite
from duly.testing.conformance.beginning import BeginningSuite
from duly.testing.conformance.bulk import BulkSuite
from duly.testing.conformance.coordinator import CoordinatorSuite
from duly.testing.conformance.fuzz import FuzzSuite
from duly.testing.conformance.groups import GroupSuite
from duly.testing.conformance.holds import HoldSuite
from duly.testing.conformance.jobs import JobSuite
from duly.testing.conformance.leases import LeaseSuite
from duly.testing.conformance.listing import ListingSuite
from duly.testing.conformance.machine import MachineSuite
from duly.testing.conformance.misfires import MisfireSuite
from duly.testing.conformance.moving import MovingSuite
from duly.testing.conformance.notifications import NotificationSuite
from duly.testing.conformance.operating import OperatingSuite
from duly.testing.conformance.placement import PlacementSuite
from duly.testing.conformance.planning import PlanningSuite
from duly.testing.conformance.queue import QueueSuite
from duly.testing.conformance.run_logs import RunLogSuite
from duly.testing.conformance.sharing import SharingSuite
from duly.testing.conformance.suspects import SuspectSuite
from duly.testing.conformance.taking_over import TakingOverSuite
from duly.testing.conformance.transactions import TransactionSuite
from duly.testing.conformance.unique import UniqueSuite
from duly.testing.conformance.values import ValueSuite
from duly.testing.conformance.world import LEASE, World, scenario


# The first part comes last: pytest runs inherited tests in the reverse of this order.
class BackendSuite(
    MachineSuite,
    FuzzSuite,
    MovingSuite,
    TransactionSuite,
    NotificationSuite,
    CoordinatorSuite,
    BulkSuite,
    BackfillSuite,
    MisfireSuite,
    BeginningSuite,
    PlanningSuite,
    SharingSuite,
    AdmissionSuite,
    PlacementSuite,
    TakingOverSuite,
    SuspectSuite,
    ListingSuite,
    HoldSuite,
    GroupSuite,
    UniqueSuite,
    RunLogSuite,
    OperatingSuite,
    LeaseSuite,
    QueueSuite,
    JobSuite,
    ValueSuite,
):
    """Everything a backend must do."""


__all__ = [
    "LEASE",
    "AdmissionSuite",
    "BackendSuite",
    "BackfillSuite",
    "BeginningSuite",
    "BulkSuite",
    "CoordinatorSuite",
    "FuzzSuite",
    "GroupSuite",
    "HoldSuite",
    "JobSuite",
    "LeaseSuite",
    "ListingSuite",
    "MachineSuite",
    "MisfireSuite",
    "MovingSuite",
    "NotificationSuite",
    "OperatingSuite",
    "PlacementSuite",
    "PlanningSuite",
    "QueueSuite",
    "RunLogSuite",
    "SharingSuite",
    "SuspectSuite",
    "TakingOverSuite",
    "TransactionSuite",
    "UniqueSuite",
    "ValueSuite",
    "World",
    "scenario",
]
