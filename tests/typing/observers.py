"""Pinned: loggers of the standard library and of structlog, and a collector of one's own, fit as they are."""

import logging

import structlog

from duly import Logger, MetricsCollector, Scheduler
from duly.observe.otel import OpenTelemetry


class Counting(MetricsCollector):
    """Only what matters to it."""

    def job_completed(self, name: str, seconds: float) -> None: ...


def takes(logger: Logger) -> Logger:
    return logger


filtering: structlog.typing.FilteringBoundLogger = structlog.get_logger()
bound: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger()

takes(logging.getLogger("shop"))
takes(logging.LoggerAdapter(logging.getLogger("shop"), {}))
takes(filtering)
takes(bound)

scheduler = Scheduler("memory://")
scheduler.observe(logger=filtering, metrics=Counting(), tracer=OpenTelemetry())
