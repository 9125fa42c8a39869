"""Capability checks: refuse jobs that need guarantees which the store or the cluster cannot give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from duly.errors import ConfigurationError
from duly.model import Delivery, JobSpec, SchedulerConfig
from duly.model.job import is_combined
from duly.model.node import PROTOCOL
from duly.ports import Backend, Capabilities, Coordinator


async def check_deliveries(wanted: Mapping[str, Delivery | str], backend: Backend, config: SchedulerConfig) -> None:
    """Refuse guarantees that the store cannot give now; `wanted` is by job. A server's settings may have changed."""
    can = await backend.refresh() if Delivery.AT_MOST_ONCE in wanted.values() else backend.capabilities
    for name, delivery in wanted.items():
        _check_delivery(name, delivery, can, config)


def _check_delivery(name: str, delivery: Delivery | str, capabilities: Capabilities, config: SchedulerConfig) -> None:
    if delivery is Delivery.EXACTLY_ONCE and not capabilities.transactions:
        raise ConfigurationError(
            f"job {name!r} is exactly_once, but this store has no transactions: use sqlite:// or postgresql://"
        )
    outlives_us = capabilities.durable or capabilities.shared  # a store that ends with this process cannot repeat a run
    may_forget = outlives_us and not capabilities.durable_start and not config.accept_data_loss
    if delivery is Delivery.AT_MOST_ONCE and may_forget:
        raise ConfigurationError(
            f"job {name!r} is at_most_once, but this store may forget acknowledged writes; "
            f"see `duly doctor`, or accept it with SchedulerConfig(accept_data_loss=True)"
        )


def check_placement(name: str, selector: Mapping[str, str] | None, config: SchedulerConfig) -> None:
    """Refuse selectors unless the leader assigns runs."""
    if selector and config.placement != "assign":
        labels = ", ".join(f"{label}={value}" for label, value in selector.items())
        raise ConfigurationError(
            f"job {name!r} asks for nodes with {labels}, but with placement={config.placement!r} any node takes any"
            ' run: set SchedulerConfig(placement="assign")'
        )


async def too_new(specs: Iterable[JobSpec], coordinator: Coordinator) -> dict[str, str]:
    """The jobs whose schedules live nodes of an earlier version would plan without their calendars, and the reason.

    Such a node takes the schedule of the same name in its own code instead. Asks the coordinator only if there is a
    schedule with a calendar, or a union.
    """
    combined = [spec.name for spec in specs if is_combined(spec.schedule)]
    if not combined:
        return {}
    old = [node.id for node in await coordinator.nodes() if node.protocol < PROTOCOL]
    why = f"nodes of an earlier version cannot compute calendars and unions, and are alive: {', '.join(old)}"
    return dict.fromkeys(combined, why) if old else {}


async def check_schedules(specs: Iterable[JobSpec], coordinator: Coordinator) -> None:
    """Refuse schedules that live nodes of an earlier version would plan wrongly."""
    for name, why in (await too_new(specs, coordinator)).items():
        raise ConfigurationError(f"job {name!r}: {why}; stop them first")
