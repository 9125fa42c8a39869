"""The balance of shards: free ones are taken in turn, and only what exceeds a node's share moves, one at a time."""

import pytest

from duly.rules.shards import shard_names
from duly.runtime.shard_balance import ShardBalance

LEASE, PRESENCE = 10.0, 15.0


@pytest.fixture
def balance():
    return ShardBalance("me", LEASE, PRESENCE)


def others(names, holder=None):
    return dict.fromkeys(names, holder)


def test_a_node_alone_takes_all_free_shards_at_once(balance):
    step = balance.step([], others(shard_names(4)), ["me"], 0.0)
    assert sorted(step.take) == sorted(shard_names(4))
    assert step.hand_over is None


def test_a_node_leaves_more_than_its_share_to_others_for_a_moment(balance):
    nodes = ["me", "other"]
    free = others(shard_names(4))
    balance.step([], free, nodes, 0.0)
    early = balance.step([], free, nodes, 0.2)
    assert len(early.take) == 2
    left = {shard: None for shard in free if shard not in early.take}
    late = balance.step(early.take, left, nodes, 0.3)
    assert late.take == ()
    assert 0 < late.again < LEASE / 4
    assert set(balance.step(early.take, left, nodes, 0.3 + late.again + 0.2).take) == set(left)


def test_what_others_hold_is_not_taken(balance):
    step = balance.step(["main"], others(shard_names(4)[1:], "other"), ["me", "other"], 0.0)
    assert (step.take, step.hand_over) == ((), None)


def test_too_many_shards_are_handed_over_one_at_a_time_after_the_dead_are_gone(balance):
    nodes, held = ["me", "new"], list(shard_names(4))
    assert balance.step(held, {}, nodes, 0.0).hand_over is None
    assert balance.step(held, {}, nodes, PRESENCE - 1).hand_over is None
    first = balance.step(held, {}, nodes, PRESENCE).hand_over
    assert first is not None
    held.remove(first)
    assert balance.step(held, {first: None}, nodes, PRESENCE + 0.1).hand_over is None
    second = balance.step(held, {first: "new"}, nodes, PRESENCE + 0.2).hand_over
    assert second not in (None, first)
    held.remove(second)
    assert balance.step(held, {first: "new", second: "new"}, nodes, PRESENCE + 1).hand_over is None


def test_a_shard_that_nobody_wants_is_taken_back_and_not_offered_again_soon(balance):
    nodes, held = ["me", "broken"], list(shard_names(2))
    balance.step(held, {}, nodes, 0.0)
    offered = balance.step(held, {}, nodes, PRESENCE).hand_over
    held.remove(offered)
    assert balance.step(held, {offered: None}, nodes, PRESENCE + 1).take == ()
    back = PRESENCE + LEASE / 2
    assert balance.step(held, {offered: None}, nodes, back).take == (offered,)
    held.append(offered)
    assert balance.step(held, {}, nodes, back + PRESENCE - 1).hand_over is None


def test_nothing_is_handed_over_while_a_shard_is_free(balance):
    nodes, held = ["me", "dead"], list(shard_names(3))
    balance.step(held, {"main/3": None}, nodes, 0.0)
    assert balance.step(held, {"main/3": "dead"}, nodes, 1.0).hand_over is None
    assert balance.step(held, {"main/3": None}, nodes, 1 + PRESENCE).hand_over is None


def test_shards_without_a_leader_are_known_with_their_age(balance):
    balance.step(["main"], {"main/1": None, "main/2": "other"}, ["me", "other"], 5.0)
    assert balance.free_for(8.0) == {"main/1": 3.0}
    balance.step(["main"], {"main/1": "other", "main/2": "other"}, ["me", "other"], 9.0)
    assert balance.free_for(10.0) == {}
