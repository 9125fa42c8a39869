"""The peers: where each keeps its jobs, how many it is given, what it cannot do, and with which settings it runs.

Settings follow what each project's own documentation advises for many short jobs. A few were tried against each other
in short runs; `docs/benchmarks.md` says which, and how little that proves. Intervals of polling stay at their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from bench.side_by_side.figures import DULY, DULY_POSTGRES

OUR_SETTINGS = "uvloop, hiredis; max_concurrent 100, everything else as it comes"
_MINUTES = "its schedules have a resolution of one minute"
_NO_SCHEDULES = "has no schedules of its own"
_NO_BULK = "has no call that submits many jobs at once"


class Peer(Struct, frozen=True):
    """One system beside Duly."""

    name: str
    title: str
    settings: str
    server: str = "redis"
    most: int = 10_000
    keeps_time: tuple[str, ...] = ()
    embedded: bool = False
    cannot: Mapping[str, str] = field(default_factory=dict)
    adapter: str = ""
    runtime: str = "python"

    def module(self) -> str:
        """Where its adapter is: a Python module, or a file in `adapters/node`."""
        if self.adapter or self.runtime == "node":
            return self.adapter or self.name
        return f"bench.side_by_side.adapters.{self.name}"

    def own(self) -> str:
        """The row of Duly that it is compared with: the one on the same server."""
        return DULY_POSTGRES if self.server == "postgresql" else DULY


PEERS = (
    Peer(
        "bullmq",
        "BullMQ",
        "Node.js, ioredis; concurrency 100, finished jobs removed; recurring: job schedulers with a cron pattern",
        most=100_000,
        runtime="node",
    ),
    Peer(
        "saq",
        "SAQ",
        "uvloop, hiredis; concurrency 20; results off (ttl -1); scheduling looks once a second, as by default",
        most=10_000,
        cannot={"bulk": _NO_BULK},
    ),
    Peer(
        "arq",
        "arq",
        "uvloop, hiredis; max_jobs 2,000; results off (keep_result 0); looks every 0.5 s (poll_delay), as by default",
        most=10_000,
        cannot={"bulk": _NO_BULK},
    ),
    Peer(
        "taskiq",
        "taskiq",
        "RedisStreamBroker (with acknowledgements), uvloop, hiredis, orjson; 100 async tasks, parameters"
        " not validated, no result backend; scheduler in a process of its own, source read once a second for one-time"
        " jobs; recurring: interval schedules, aligned by the start of the scheduler",
        most=10_000,
        keeps_time=("alarm", "beat"),
        cannot={"bulk": _NO_BULK},
    ),
    Peer(
        "dramatiq",
        "dramatiq",
        "hiredis; 8 threads, dramatiq_queue_prefetch 200, default middleware, no result backend",
        most=20_000,
        cannot={
            "bulk": "a group is submitted message by message",
            "recurring": _NO_SCHEDULES,
            "crowd": _NO_SCHEDULES,
        },
    ),
    Peer(
        "celery",
        "Celery",
        "Redis broker, hiredis; pool solo, prefetch multiplier 128, broker pool 50; results, events, rate limits,"
        " gossip, mingle and heartbeat off; recurring: beat in a process of its own, intervals rounded to seconds,"
        " aligned by its start",
        most=5_000,
        keeps_time=("beat",),
        cannot={"bulk": "a group is submitted message by message"},
    ),
    Peer(
        "rq",
        "RQ",
        "hiredis; SimpleWorker (no fork per job), results off (result_ttl 0); scheduler and cron scheduler in a process"
        " of their own, the scheduler looks once a second, as by default",
        most=2_000,
        keeps_time=("alarm", "beat"),
    ),
    Peer(
        "procrastinate",
        "procrastinate",
        "uvloop; concurrency 100, 10 connections, finished jobs deleted,"
        " LISTEN/NOTIFY on; looks for due jobs every 5 s, as by default",
        server="postgresql",
        most=3_000,
    ),
    Peer(
        "graphile",
        "graphile-worker",
        "Node.js; concurrency 24, 10 connections, a local queue of 500, completions in batches (delay 0); looks for"
        " due jobs every 2 s, as by default",
        server="postgresql",
        most=100_000,
        cannot={"recurring": _MINUTES, "crowd": _MINUTES},
        runtime="node",
    ),
    Peer(
        "pgqueuer",
        "pgqueuer",
        "asyncpg, uvloop; batches of 100, 10 connections, the log of finished jobs and a dequeue timeout of 30 s"
        " as by default",
        server="postgresql",
        most=10_000,
    ),
    Peer(
        "apscheduler",
        "APScheduler",
        "3.x: AsyncIOScheduler on uvloop, RedisJobStore, hiredis; jobs that are added while it runs are added in its"
        " own process, because its schedulers cannot share a job store; the clock of drain starts with the scheduler",
        most=3_000,
        embedded=True,
        cannot={"bulk": _NO_BULK},
    ),
)

NAMES = (DULY, DULY_POSTGRES, *(peer.name for peer in PEERS))


def limits_of(jobs: int, peer: Peer) -> int:
    """How many jobs a peer is given: a slow one fewer, so that nobody waits for minutes."""
    return min(jobs, peer.most)
