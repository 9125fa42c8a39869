"""What every service of a node has around it: who the node is, its settings, clock, chance, and where events go."""

from __future__ import annotations

import os
import random
import socket
import time
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from duly.model import Node as NodeCard
from duly.model import Role, SchedulerConfig, shift
from duly.model.node import PROTOCOL
from duly.ports import Clock, StoreClock, Tracer
from duly.runtime.service import Emit


class Environment(Struct, frozen=True):
    """Handed to each service as a whole, so that clocks and randomness are never read behind anybody's back."""

    card: NodeCard
    config: SchedulerConfig
    clock: StoreClock
    emit: Emit
    rng: random.Random
    tracer: Tracer | None = None


def process_began(pid: int, now: datetime) -> datetime | None:
    """When the process of that number on this machine began, by the clock that says it is `now`.

    None if there is none, or nobody tells.
    """
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return shift(now, -age)
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def make_card(config: SchedulerConfig, clock: Clock, rng: random.Random, version: str) -> NodeCard:
    """Who this process is."""
    host = socket.gethostname()
    return NodeCard(
        id=config.node_id or f"{host}-{os.getpid()}-{rng.getrandbits(32):08x}",
        host=host,
        pid=os.getpid(),
        started_at=clock.now(),
        roles=tuple(Role(role) for role in config.roles),
        queues=config.queue_names,
        labels=dict(config.labels),
        capacity=config.max_concurrent,
        version=version,
        protocol=PROTOCOL,
    )
