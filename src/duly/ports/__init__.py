"""The ports: what the runtime needs from a store, as contracts. `duly.testing.conformance` tests them.

Obligations of every adapter:

* **Batches.** Hot-path methods take and return sequences; a single item is a sequence of one. Each run is treated
  atomically; what did not apply (duplicate, stale, lost) is returned as a value, in order, never raised.
* **Idempotent.** Repeating a call after a lost answer is harmless. `claim` carries a request number per node: a repeat
  returns the same claims. A settlement repeated with the settling fence is success, not stale.
* **No policy, no logs.** Adapters never decide about retries, and about misfires only by the time that a run carries
  (`Run.start_by`); they never log or measure. They raise `BackendUnavailable` (try again) or `BackendError` (do not),
  and translate foreign exceptions at their edge.
* **The store's clock decides** about due times and leases. Methods take an optional `now` for tests and simulation;
  without it the server's clock counts as long as it agrees with `Backend.clock`, else that: a clock that jumps starts
  nothing early and takes nothing over.
* **Loop-bound.** A port belongs to the event loop it was opened on. `Backend.session()` opens an independent set of
  connections for another thread's loop; after a fork every session refuses until it is opened again.
* **Exact values.** Instants keep their microseconds. Text is any valid UTF-8 without NUL; nothing is trimmed, folded or
  compared without case. Names and keys sort by code point. All records are `msgspec` structs.
* **Unreadable records.** A stored run or job that cannot be decoded is returned with `damage` set; the call does not
  fail, and other records are returned as they are. Fields that a later version has added are ignored.
* **Cancellation.** A cancelled call has either happened whole or not at all; no transaction stays open behind it.
"""

from duly.ports.backend import Backend, Capabilities, Composed, CoordinatorSession, Finding, Opening, Order, Severity
from duly.ports.clock import Clock, StoreClock, SystemClock
from duly.ports.coordinator import Coordinator
from duly.ports.job_store import JobStore
from duly.ports.queue import Queue
from duly.ports.run_store import RunStore
from duly.ports.store import Store
from duly.ports.tracer import Span, Tracer
from duly.ports.transaction_store import Transaction, TransactionStore
from duly.ports.transfer_store import FROZEN, Snapshot, TransferStore
from duly.ports.value_store import ValueStore

__all__ = [
    "FROZEN",
    "Backend",
    "Capabilities",
    "Clock",
    "Composed",
    "Coordinator",
    "CoordinatorSession",
    "Finding",
    "JobStore",
    "Opening",
    "Order",
    "Queue",
    "RunStore",
    "Severity",
    "Snapshot",
    "Span",
    "Store",
    "StoreClock",
    "SystemClock",
    "Tracer",
    "Transaction",
    "TransactionStore",
    "TransferStore",
    "ValueStore",
]
