"""What the services of a node share: its identity, configuration, clock, random numbers, and where events go."""

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
from duly.model.event import Emit
from duly.model.node import PROTOCOL
from duly.ports import Clock, StoreClock, Tracer
from duly.runtime.live_config import LiveConfig
from duly.runtime.service import Signal

SUPERVISOR = "DULY_SUPERVISOR"  # for the processes of a supervisor: its pid, a dot, and a random part


class Environment(Struct, frozen=True):
    """Given to each service as a whole: clocks and random numbers always come from here."""

    card: NodeCard
    live: LiveConfig
    clock: StoreClock
    emit: Emit
    rng: random.Random
    tracer: Tracer | None = None

    @property
    def config(self) -> SchedulerConfig:
        """The configuration in force now. What cannot change while a node runs may be read once."""
        return self.live.config


class NodeService:
    """What the services of a node have in common. Each has a `name` and a `tick` (`runtime.service`)."""

    def __init__(self, env: Environment, signal: Signal | None = None) -> None:
        self.signal = Signal() if signal is None else signal
        self._clock = env.clock
        self._emit = env.emit
        self._live = env.live


def process_began(pid: int, now: datetime) -> datetime | None:
    """When the process with that pid on this machine started, by the clock whose current time is `now`.

    None if there is no such process, or the system does not provide its start time.
    """
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return shift(now, -age)
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def supervisor_name() -> str:
    """The name of the supervisor that started this process (`duly run --supervise`), empty if there is none.

    Containers may have the same host name and the same pids: the random part distinguishes their supervisors.
    """
    name = os.environ.get(SUPERVISOR, "")
    return name if name.partition(".")[0] == str(os.getppid()) else ""


def new_node_id(rng: random.Random) -> str:
    """An id for a process whose configuration has none."""
    return f"{socket.gethostname()}-{os.getpid()}-{rng.getrandbits(32):08x}"


def make_card(node_id: str, config: SchedulerConfig, clock: Clock, version: str) -> NodeCard:
    """How this process announces itself."""
    return NodeCard(
        id=node_id,
        host=socket.gethostname(),
        pid=os.getpid(),
        started_at=clock.now(),
        roles=tuple(Role(role) for role in config.roles),
        queues=config.queue_names,
        labels=dict(config.labels),
        capacity=config.max_concurrent,
        version=version,
        protocol=PROTOCOL,
        supervisor=supervisor_name(),
    )
