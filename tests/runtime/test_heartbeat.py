"""The heartbeat: what becomes of a claim that could not be renewed because somebody else is changing it."""

import random
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from duly import SchedulerConfig
from duly.model import BeatReply, Claim, Node, Renewal, Run
from duly.ports import StoreClock
from duly.runtime.active_runs import ActiveRun, ActiveRuns
from duly.runtime.environment import Environment
from duly.runtime.heartbeat import Heartbeat, at_once
from duly.runtime.live_config import LiveConfig
from duly.runtime.outages import OutageLog
from duly.testing.clock import ManualClock

START = datetime(2030, 1, 1, tzinfo=UTC)
TRUSTED = 1.0


class Replying:
    """A queue that replies to renewals as it was told."""

    def __init__(self, *replies):
        self._replies = replies

    async def renew(self, beats, lease, silence=None):
        return Renewal(self._replies)


def live(number):
    run = Run(f"r{number}", "mail", "mail", START, START, fence=number, node="n", started_at=START)
    return ActiveRun(Claim(run, number, START), None, 0.0, TRUSTED)


async def beaten(*replies, lost):
    """The attempts after one renewal that was replied to so, and when the next one is due."""
    clock, active_runs = ManualClock(START), ActiveRuns()
    attempts = [live(number) for number, _ in enumerate(replies, 1)]
    for attempt in attempts:
        active_runs.add(attempt)
    env = Environment(
        Node("n", "h", 1, START),
        LiveConfig(SchedulerConfig(lock_ttl=15.0)),
        StoreClock(clock, direct=True),
        lambda event: None,
        random.Random(0),
    )
    worker = SimpleNamespace(lose=lost.extend, cancel=lost.extend)
    heartbeat = Heartbeat(env, Replying(*replies), active_runs, worker, OutageLog(env, None), at_once)
    pause = await heartbeat.tick()
    return attempts, pause, env.config.refresh


async def test_a_claim_that_is_busy_is_neither_lost_nor_trusted_longer_and_asked_about_soon():
    lost = []
    (busy, kept), pause, refresh = await beaten(BeatReply.BUSY, BeatReply.KEPT, lost=lost)
    assert lost == []
    assert busy.trusted_until == TRUSTED
    assert kept.trusted_until > TRUSTED
    assert pause == pytest.approx(0.2)
    assert pause < refresh


async def test_claims_that_are_kept_are_renewed_at_their_period():
    (kept,), pause, refresh = await beaten(BeatReply.KEPT, lost=[])
    assert kept.trusted_until > TRUSTED
    assert pause == refresh
