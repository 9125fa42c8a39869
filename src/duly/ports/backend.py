"""A backend: a store, a queue and a coordinator opened together, their capabilities, and what `duly doctor` reports."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol, Self, runtime_checkable

from msgspec import Struct

from duly.ports.clock import Clock, StoreClock, SystemClock
from duly.ports.coordinator import Coordinator
from duly.ports.queue import Queue
from duly.ports.store import Store


class Order(StrEnum):
    """How strictly `claim` keeps the order of runs. BANDED: neighbouring priorities may be mixed."""

    EXACT = "exact"
    BANDED = "banded"


class Capabilities(Struct, frozen=True):
    """What a backend promises. The conformance suite expects what is promised of `transactions`, `push` and `order`.

    No test of the suite checks the others. `durable`: what was acknowledged survives kill -9 of
    every process. `durable_start`: also power loss, for the start record of an at-most-once run. `shared`: several
    processes may use it at once. `transactions`: `transaction` and `within` work. `push`: `wait` returns promptly on
    work from other processes. `threads`: sessions may be used from other threads' loops. `pipelined`: a call does not
    wait for the answer to the one before, so two calls at a time are faster. `reads_ahead`: `Queue.begin` costs less
    at the due time than a claim, so nodes read scheduled runs shortly before; else they only claim.
    """

    durable: bool
    durable_start: bool
    shared: bool
    transactions: bool
    push: bool
    threads: bool
    pipelined: bool = False
    reads_ahead: bool = False
    order: Order = Order.EXACT


class Opening(Struct, frozen=True):
    """What a backend is opened with in addition to its URL. A factory registered for a scheme takes (url, opening).

    Backends of one URL and different `namespace`s share nothing. `clock` is the machine's: see `StoreClock`.

    Without `migrates`, opening leaves the schema as it is and does not check it: for callers that run `Store.migrate`
    next and report what it did.

    `lease` is the `lock_ttl` of the nodes, in seconds, if it is known. A call timeout in the URL that is too long for
    it is refused with a `ConfigurationError`.
    """

    namespace: str = "duly"
    clock: Clock = SystemClock()
    migrates: bool = True
    lease: float | None = None


class Severity(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(Struct, frozen=True):
    """One line of `duly doctor`: what was checked, the result, and what it means for the guarantees."""

    severity: Severity
    subject: str
    message: str


class CoordinatorSession(Protocol):
    """A coordinator with separate connections, for a backend that keeps its runs elsewhere.

    Opened and closed like a backend, and every backend is one. A factory registered for a scheme in the entry points
    `duly.coordinators` takes (url, opening) and returns one.
    """

    url: str
    coordinator: Coordinator

    async def open(self) -> None:
        """Connect and check, as `Backend.open` does."""
        ...

    async def close(self) -> None:
        """Let go of everything. Closing a closed one does nothing."""
        ...

    def session(self, timeout: float | None = None) -> Self:
        """An independent, not yet opened set of connections to the same coordinator; for `timeout` see `Backend`."""
        ...

    async def examine(self) -> list[Finding]:
        """What an operator should know about it as it is configured."""
        ...


@runtime_checkable
class Composed(Protocol):
    """A backend of several servers, each of which may be unreachable on its own."""

    async def parts(self) -> dict[str, str]:
        """The state of each part, by name ("store", "queue", "coordinator"): "reachable", or "away: " and why."""
        ...


class Backend(Protocol):
    """Opened by `async with`, or by `open` and `close`. Constructing one does no I/O.

    `url` is for people and logs: it carries no credentials. `clock` is the store's: all sessions of one backend share
    it. A store in this process or on this machine can use `StoreClock(opening.clock, direct=True)`. That of a server is
    `StoreClock(opening.clock)`: `open` reads it (`StoreClock.read`), and nodes read it again from `Store.time`.
    """

    url: str
    clock: StoreClock
    capabilities: Capabilities
    store: Store
    queue: Queue
    coordinator: Coordinator

    async def open(self) -> None:
        """Connect and check. Raises `BackendError`, which says what to do; opening an open one does nothing."""
        ...

    async def close(self) -> None:
        """Let go of everything. Closing a closed one does nothing."""
        ...

    def session(self, timeout: float | None = None) -> Self:
        """An independent, not yet opened set of connections to the same store.

        It has the same namespace and the same `clock`.
        A call over a network gives up after `timeout` seconds at the latest, if that is less than the URL says.
        """
        ...

    async def refresh(self) -> Capabilities:
        """Ask the store again what it can promise: the settings of a server may change while it runs.

        Sets `capabilities` and returns them. Cheap enough to call once a minute, but not on a hot path.
        """
        ...

    async def examine(self) -> list[Finding]:
        """What an operator should know about this store as it is configured."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...
