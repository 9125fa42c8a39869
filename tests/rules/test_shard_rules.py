"""Shards: where jobs belong, how many shards there are, and in which order nodes take them."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from duly.model import CustomSpec, EverySpec, Item, JobRecord, JobSpec, Node, Origin, Role
from duly.model.config import MOST_SHARDS
from duly.model.node import PROTOCOL
from duly.rules.planning import postpone
from duly.rules.shards import (
    agreed_count,
    homeward,
    is_shared,
    known_count,
    rank,
    relocation,
    shard_names,
    shard_of,
    share,
    sharers,
    to_hand_over,
    turn,
)

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
EVERY = EverySpec(timedelta(seconds=10))


def record(name="report", shard="main", schedule=EVERY):
    spec = JobSpec(name=name, handler=name, schedule=schedule)
    return JobRecord("uid", spec, 1, Origin.CODE, NOON, NOON, cursor=NOON, plan_at=NOON, planned_in=shard)


def node(name, shards=1, known=1, *, roles=(Role.SCHEDULER,), protocol=PROTOCOL, **metrics):
    metrics |= {"shards": float(shards)} if shards > 1 else {}
    metrics |= {"known_shards": float(known)} if known > 1 else {}
    return Node(name, "host", 1, NOON, roles=roles, metrics=metrics, protocol=protocol)


@given(st.text(max_size=50), st.integers(1, MOST_SHARDS))
def test_every_job_belongs_to_one_of_the_shards(name, count):
    assert shard_of(name, count) in shard_names(count)


def test_the_shard_of_a_job_never_changes_between_versions():
    assert shard_of("123456789", 8) == "main/6"  # the check value of CRC-32 is cbf43926
    assert [shard_of(name, 8) for name in ("report", "nightly_report", "überweisung")] == ["main/4", "main/2", "main/3"]


def test_jobs_are_spread_evenly():
    spread = Counter(shard_of(f"beat-{number}", 8) for number in range(10_000))
    assert len(spread) == 8
    assert max(spread.values()) < 1.1 * 10_000 / 8


def test_with_one_shard_all_jobs_are_where_they_always_were():
    assert shard_names(1) == ("main",)
    assert shard_of("anything", 1) == "main"
    firing = postpone(record(), NOON)
    assert homeward(firing, record(), 1) is firing


@pytest.mark.parametrize(
    ("shard", "count", "moved"), [("main/4", 8, None), ("main", 8, "main/4"), ("main/4", 1, "main")]
)
def test_a_job_is_moved_home_when_it_is_planned(shard, count, moved):
    job = record("report", shard)
    assert homeward(postpone(job, NOON), job, count).move_to == moved


def test_a_job_whose_schedule_is_code_stays_where_it_is():
    job = record(schedule=CustomSpec("tides.Moon"))
    assert not is_shared(job.shard)
    assert homeward(postpone(job, NOON), job, 8).move_to is None


def test_a_relocation_changes_nothing_but_the_shard():
    job = record("nightly_report", "main/7")
    moved = relocation(job, 8)
    assert (moved.expect, moved.cursor, moved.plan_at, moved.runs) == (job.cursor, job.cursor, job.plan_at, ())
    assert moved.move_to == "main/2"


@pytest.mark.parametrize(
    ("value", "count"), [(None, 1), (b"1", 1), (b"8", 8), (b"0", 1), (b"9999", MOST_SHARDS), (b"\xff", MOST_SHARDS)]
)
def test_a_value_that_nobody_can_read_leaves_no_shard_out(value, count):
    assert known_count(None if value is None else Item("shards", value, 1)) == count


def test_nodes_agree_on_the_highest_number_of_a_live_scheduler_node():
    nodes = [node("a"), node("b", 8), node("c", 4), node("w", 16, roles=(Role.WORKER,))]
    assert {agreed_count(own, nodes) for own in (1, 4, 8)} == {8}
    assert agreed_count(4, []) == 4


def test_beside_a_node_of_0_1_0_there_is_one_shard():
    assert agreed_count(8, [node("a", 8), node("old", protocol=1)]) == 1


def test_shards_are_shared_by_scheduler_nodes_that_know_of_all_of_them():
    nodes = [node("a", 8, 8), node("b", 1, 8), node("new", 8), node("w", 8, 8, roles=(Role.WORKER,))]
    assert sharers([*nodes, node("s", 8, 8, stopping=1.0)], "me", 8) == ["a", "b", "me"]


@pytest.mark.parametrize(("shards", "nodes", "most"), [(8, 4, 2), (8, 3, 3), (1, 4, 1), (8, 0, 8), (64, 1, 64)])
def test_a_share_is_rounded_up(shards, nodes, most):
    assert share(shards, nodes) == most


def test_each_shard_has_its_own_order_of_nodes_and_losing_one_changes_no_other():
    nodes = ["a", "b", "c", "d"]
    orders = {shard: sorted(nodes, key=lambda each, shard=shard: rank(shard, each, nodes)) for shard in shard_names(32)}
    firsts = Counter(order[0] for order in orders.values())
    assert set(firsts) == set(nodes)
    left = ["a", "b", "c"]
    for shard, order in orders.items():
        after = sorted(left, key=lambda each, shard=shard: rank(shard, each, left))
        assert after == [each for each in order if each != "d"]


def test_a_node_that_has_its_share_waits_longer_but_much_less_than_half_a_lease():
    for lease in (1.0, 10.0):
        turns = [turn(place, lease, has_share=has) for has in (False, True) for place in range(20)]
        assert turns == sorted(turns[:20]) + sorted(turns[20:])
        assert turns[0] == 0
        assert max(turns) <= 0.2 + 0.1 * lease


def test_the_leadership_of_the_cluster_is_handed_over_last():
    held = ["main", "main/1", "main/2"]
    assert to_hand_over(held, "me") != "main"
    assert to_hand_over(["main"], "me") == "main"
    assert replace(record(), planned_in="main/2").shard == "main/2"
