"""Observing: subscribers to what a node tells about itself. Nothing in here can change what happens."""

from duly.observe.bus import Bus
from duly.observe.logs import EventLog, RunFields, configure_logging

__all__ = ["Bus", "EventLog", "RunFields", "configure_logging"]
