"""Observability: subscribers to the events of a node. Nothing in this package affects how runs are executed."""

from duly.observe.bus import Bus
from duly.observe.collector import Collecting, MetricsCollector
from duly.observe.logger import Logger
from duly.observe.logs import EventLog, JsonFormatter, RunFields, add_run_fields, configure_logging

__all__ = [
    "Bus",
    "Collecting",
    "EventLog",
    "JsonFormatter",
    "Logger",
    "MetricsCollector",
    "RunFields",
    "add_run_fields",
    "configure_logging",
]
