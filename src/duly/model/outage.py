"""Outages: periods in which no node reached the store, because the nodes or the store were down."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

OUTAGES = "outages"  # the name of their log in the store
KEPT_OUTAGES = 1000


class Outage(Struct, frozen=True):
    """The last heartbeat before it, and the first after it."""

    since: datetime
    until: datetime
