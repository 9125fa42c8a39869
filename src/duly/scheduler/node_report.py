"""What a node tells its supervisor when it has started: enough to give its claims back, should its process die."""

from __future__ import annotations

from msgspec import Struct

from duly.model.node import first_request
from duly.scheduler.running_node import RunningNode
from duly.scheduler.store_address import StoreAddress


class NodeReport(Struct, frozen=True):
    """A node that has started, and its store.

    `first` is the number from which it counts its requests. `store` is None if another process cannot open the store:
    it is in memory, or code has constructed it.
    """

    node: str
    first: int
    store: str | None
    queue: str | None
    coordinator: str | None
    namespace: str
    lock_ttl: float
    max_losses: int
    publish_events: bool
    shutdown_timeout: float | None


def report_of(address: StoreAddress, running: RunningNode, patience: float | None) -> NodeReport:
    """The report of a running node on this store; `patience` is how long its stop waits for handlers."""
    config = running.client.live.config
    openable = address.backend is None and running.client.backend.capabilities.shared
    parts = address.address() if openable else None
    return NodeReport(
        node=running.node.id,
        first=first_request(running.node.card_now().started_at),
        store=None if parts is None else parts.store,
        queue=None if parts is None else parts.queue,
        coordinator=None if parts is None else parts.coordinator,
        namespace=config.namespace,
        lock_ttl=config.lease,
        max_losses=config.max_losses,
        publish_events=bool(config.publish_events),
        shutdown_timeout=patience,
    )
