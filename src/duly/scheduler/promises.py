"""Promises: what a job asks of the store, refused where the store cannot keep it."""

from __future__ import annotations

from duly.errors import ConfigurationError
from duly.model import Delivery, SchedulerConfig
from duly.ports import Capabilities


def check_delivery(name: str, delivery: Delivery | str, capabilities: Capabilities, config: SchedulerConfig) -> None:
    """Refuse what the store cannot promise."""
    if delivery is Delivery.EXACTLY_ONCE and not capabilities.transactions:
        raise ConfigurationError(
            f"job {name!r} is exactly_once, but this store has no transactions: use sqlite:// or postgresql://"
        )
    outlives_us = capabilities.durable or capabilities.shared  # what ends with this process cannot repeat a run
    may_forget = outlives_us and not capabilities.durable_start and not config.accept_data_loss
    if delivery is Delivery.AT_MOST_ONCE and may_forget:
        raise ConfigurationError(
            f"job {name!r} is at_most_once, but this store may forget acknowledged writes; "
            f"see `duly doctor`, or accept it with SchedulerConfig(accept_data_loss=True)"
        )
