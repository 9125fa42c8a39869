"""The tests of shards find defects: each of these, planted on purpose, makes one of them fail."""

import math

import pytest

from duly.backends.memory.contents import Contents
from duly.backends.memory.store import MemoryStore
from duly.model import Fired
from duly.model.job import MAIN
from duly.runtime import shard_balance
from duly.runtime.planner import Planner
from duly.runtime.shard_balance import ShardBalance
from duly.runtime.shard_layout import ShardLayout
from tests.sim import test_shards
from tests.sim.campaign_scenarios import play

SEEDS = range(6)


def invariants(scenario, seeds=SEEDS):
    """The invariants that a campaign finds broken."""
    return {violation.invariant for seed in seeds for violation in play(scenario, seed).violations}


def test_shards_in_use_that_the_store_does_not_know_are_noticed(monkeypatch):
    async def unrecorded(self):
        return self.wanted

    monkeypatch.setattr(ShardLayout, "_in_use", unrecorded)
    with pytest.raises(AssertionError, match="never came true"):
        test_shards.test_a_node_without_shards_plans_what_others_have_left_in_shards()


def test_free_shards_that_are_left_to_others_are_noticed(monkeypatch):
    def never(rank, lease, *, has_share):
        return math.inf if has_share else 0.0

    monkeypatch.setattr(shard_balance, "turn", never)
    with pytest.raises(AssertionError):
        test_shards.test_the_shards_of_a_killed_node_are_led_again_within_one_and_a_half_leases(0)


def test_shards_that_are_not_handed_over_are_noticed(monkeypatch):
    monkeypatch.setattr(ShardBalance, "_handed_over", lambda *_: None)
    with pytest.raises(AssertionError, match="never came true"):
        test_shards.test_a_new_node_gets_its_share_and_nothing_else_moves(0)


def test_a_hand_over_to_nodes_that_have_died_is_noticed(monkeypatch):
    honest = ShardBalance.__init__
    monkeypatch.setattr(ShardBalance, "__init__", lambda self, me, lease, presence: honest(self, me, lease, 0.0))
    with pytest.raises(AssertionError):
        test_shards.test_the_shards_of_a_killed_node_stay_with_those_who_took_them_over(0)


def test_shards_that_are_not_emptied_are_noticed(monkeypatch):
    async def left(self, shard, epoch):
        return math.inf

    monkeypatch.setattr(Planner, "_empty", left)
    with pytest.raises(AssertionError, match="never came true"):
        test_shards.test_another_number_of_shards_is_taken_over_without_a_stop(8, 1)


def test_a_move_that_loses_its_job_is_noticed(monkeypatch):
    honest = Contents.due

    def forgetful(self, shard, limit, now):
        records, next_at = honest(self, shard, limit, now)
        return [record for record in records if record.shard == MAIN], next_at

    monkeypatch.setattr(Contents, "due", forgetful)
    assert "L1" in invariants("storm-shards")


def test_a_store_that_does_not_check_epochs_is_noticed(monkeypatch):
    honest = MemoryStore.fire

    async def careless(self, firings, shard, epoch, *, now=None):
        return await honest(self, firings, shard, self._contents.epochs[shard], now=now)

    monkeypatch.setattr(MemoryStore, "fire", careless)
    assert "I6" in invariants("storm-shards")


def test_a_store_that_does_not_compare_cursors_is_noticed(monkeypatch):
    honest = MemoryStore._fire

    def careless(self, firing, now):
        if (record := self._contents.jobs.get(firing.name)) is None or record.cursor is None:
            return Fired.STALE_JOB
        again = [run for run in firing.runs if run.id in self._runs.by_id]
        for run in again:
            self._runs.delete(self._runs.by_id[run.id])
        return honest(self, type(firing)(**{**_fields(firing), "expect": record.cursor}), now)

    monkeypatch.setattr(MemoryStore, "_fire", careless)
    assert invariants("storm-shards") | invariants("resharding", range(20))


def _fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}
