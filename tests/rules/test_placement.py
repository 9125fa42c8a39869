"""Placement: who is given which run, and why one is given to nobody."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model import Assignment, Node, Role, Run, Share, State
from duly.model.holds import UNPLACED
from duly.rules.placement import (
    is_assigned,
    lacks,
    lapsed,
    place,
    placing_order,
    rooms_of,
    to_place,
    why_unplaced,
)

NOW = datetime(2027, 1, 1, tzinfo=UTC)
UNTIL = NOW + timedelta(seconds=30)
GPU = {"gpu": "yes"}


def node(name, **fields):
    values = {"host": "h", "pid": 1, "started_at": NOW, "handlers": frozenset({"mail", "train"}), "capacity": 2}
    return Node(id=name, **values | fields)


def run(number, job="mail", *, wait=0.0, **fields):
    at = NOW + timedelta(seconds=wait)
    return Run(id=f"0{number:03}", job=job, handler=job, due=at, ready_at=at, **fields)


def placed(runs, nodes, shares=None, *, ahead=2, selectors=None, paused=()):
    return place(runs, rooms_of(nodes, shares or {}), ahead, selectors or {}, paused, NOW, UNTIL)


def pairs(placing):
    return [(assignment.run_id, assignment.node) for assignment in placing.assignments]


# --- who may have it


def test_a_run_goes_to_a_live_worker_with_the_handler_the_queue_and_the_labels():
    nodes = [
        node("a", roles=(Role.SCHEDULER,), labels=GPU),
        node("b", handlers=frozenset({"mail"}), labels=GPU),
        node("c", queues=("slow",), labels=GPU),
        node("d", labels={"gpu": "no"}),
        node("e", labels={**GPU, "zone": "x"}),
    ]
    found = placed([run(1, "train")], nodes, selectors={"train": GPU})
    assert pairs(found) == [("0001", "e")]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"roles": (Role.SCHEDULER,)}, "does not work"),
        ({"handlers": frozenset()}, "has no handler 'train'"),
        ({"queues": ("slow",)}, "does not listen to queue 'default'"),
        ({"labels": {"gpu": "no"}}, "has no label gpu=yes"),
        ({"labels": GPU}, None),
    ],
)
def test_what_a_node_lacks_is_said(fields, reason):
    assert lacks(node("a", **fields), run(1, "train"), GPU) == reason


def test_a_node_that_announces_no_capacity_is_given_nothing():
    assert placed([run(1), run(2, wait=5)], [node("a", capacity=0)]).assignments == []


# --- how much


def test_the_least_loaded_goes_first_relative_to_its_capacity():
    nodes = [node("a", capacity=2), node("b", capacity=8)]
    found = placed([run(number) for number in range(10)], nodes)
    assert [name for _, name in pairs(found)].count("b") == 8
    busy = placed([run(1)], nodes, {"a": Share(due=0), "b": Share(due=1)})
    assert pairs(busy) == [("0001", "a")]


def test_due_runs_take_free_slots_and_no_more():
    found = placed([run(number) for number in range(5)], [node("a")], {"a": Share(due=1, upcoming=2)})
    assert len(found.assignments) == 1
    assert found.crowded
    assert found.full
    assert found.sated


def test_each_node_is_given_so_many_upcoming_runs_however_busy_it_is():
    upcoming = [run(number, wait=5 + number) for number in range(9)]
    found = placed(upcoming, [node("a"), node("b")], {"a": Share(due=2), "b": Share(upcoming=1)}, ahead=3)
    assert sorted(name for _, name in pairs(found)) == ["a", "a", "a", "b", "b"]
    assert not found.crowded


def test_what_is_far_off_is_left_alone():
    assert placed([run(1, wait=31)], [node("a")]).assignments == []
    assert len(placed([run(1, wait=30)], [node("a")]).assignments) == 1


def test_a_run_that_nobody_can_have_does_not_stand_in_the_way():
    found = placed([run(1, "train"), run(2)], [node("a")], selectors={"train": GPU})
    assert pairs(found) == [("0002", "a")]
    assert not found.crowded


def test_those_who_are_gone_are_named():
    assert lapsed([node("a")], {"a": Share(1), "c": Share(1), "b": Share(0, 1)}) == ["b", "c"]


_NODES = st.lists(
    st.builds(
        node,
        st.sampled_from("abcd"),
        capacity=st.integers(0, 4),
        labels=st.sampled_from([{}, GPU]),
        queues=st.sampled_from([None, ("default",), ("slow",)]),
        handlers=st.sampled_from([frozenset({"mail"}), frozenset({"mail", "train"})]),
    ),
    unique_by=lambda each: each.id,
)
_SHARES = st.dictionaries(st.sampled_from("abcd"), st.builds(Share, st.integers(0, 4), st.integers(0, 4)))
_RUNS = st.lists(
    st.tuples(st.sampled_from(["mail", "train"]), st.sampled_from([-5.0, 0.0, 3.0, 29.0, 60.0])), max_size=20
).map(lambda plans: [run(number, job, wait=wait) for number, (job, wait) in enumerate(plans)])


@given(runs=_RUNS, nodes=_NODES, shares=_SHARES, ahead=st.integers(1, 4))
def test_whatever_is_asked_nobody_is_given_more_than_it_may_have(runs, nodes, shares, ahead):
    found = placed(runs, nodes, shares, ahead=ahead, selectors={"train": GPU})
    again = placed(runs, nodes, shares, ahead=ahead, selectors={"train": GPU})
    assert found == again
    by_id, by_name = {each.id: each for each in runs}, {each.id: each for each in nodes}
    given_to = {assignment.run_id: by_name[assignment.node] for assignment in found.assignments}
    assert len(given_to) == len(found.assignments)
    for run_id, whom in given_to.items():
        assert lacks(whom, by_id[run_id], GPU if by_id[run_id].job == "train" else None) is None
    for each in nodes:
        mine = [by_id[run_id] for run_id, whom in given_to.items() if whom.id == each.id]
        before = shares.get(each.id, Share())
        due = sum(one.ready_at <= NOW for one in mine)
        assert due <= max(0, each.capacity - before.due)
        assert len(mine) - due <= max(0, ahead - before.upcoming)


@given(runs=_RUNS, nodes=_NODES, shares=_SHARES)
def test_no_due_run_is_left_while_a_node_that_can_run_it_has_a_free_slot(runs, nodes, shares):
    rooms = rooms_of(nodes, shares)
    found = place(runs, rooms, 2, {"train": GPU}, (), NOW, UNTIL)
    given_ids = {assignment.run_id for assignment in found.assignments}
    left = [each for each in runs if each.id not in given_ids and each.ready_at <= NOW]
    for each in left:
        able = [room for room in rooms if lacks(room.node, each, GPU if each.job == "train" else None) is None]
        assert not any(room.free for room in able)
        assert found.crowded or not able


# --- the rest


def test_runs_are_placed_where_all_are_or_where_a_selector_asks_for_it():
    assert is_assigned("assign", None)
    assert is_assigned("queue", GPU)
    assert not is_assigned("queue", None)
    assert not is_assigned("queue", {})


def test_a_run_to_be_placed_is_held_and_a_skipped_one_stays_as_it_is():
    held = to_place(run(1))
    assert (held.assignable, held.hold, held.assignee) == (True, UNPLACED, None)
    skipped = run(1, state=State.SKIPPED)
    assert to_place(skipped) == skipped


def test_due_runs_come_by_urgency_and_others_by_time():
    runs = [run(1, wait=5, priority=9), run(2, wait=3), run(3, wait=-1), run(4, priority=5)]
    ordered = sorted(runs, key=lambda each: placing_order(each.ready_at, each.priority, each.id, NOW))
    assert [each.id for each in ordered] == ["0004", "0003", "0002", "0001"]


@pytest.mark.parametrize(
    ("nodes", "leader", "reason"),
    [
        ([], "a", "no working node is alive"),
        ([node("a", roles=(Role.SCHEDULER,))], "a", "no working node is alive"),
        ([node("a", labels=GPU)], None, "nobody leads, and the leader places runs"),
        ([node("a"), node("b")], "a", "no live node matches gpu=yes"),
        ([node("a", labels=GPU, handlers=frozenset())], "a", "no live node matches: has no handler 'train'"),
        ([node("a", labels=GPU)], "a", "the nodes that match have no room yet, or its time is far off"),
    ],
)
def test_why_a_run_is_not_placed_is_said_in_plain_words(nodes, leader, reason):
    assert why_unplaced(run(1, "train"), nodes, GPU, leader, {"slow"}) == reason


def test_runs_of_a_paused_queue_take_nobodys_room():
    found = placed([run(1, queue="slow"), run(2)], [node("a", capacity=1)], paused={"slow"})
    assert pairs(found) == [("0002", "a")]
    assert why_unplaced(run(1, queue="slow"), [node("a")], None, "a", {"slow"}) == "its queue 'slow' is paused"


def test_an_assignment_names_run_and_node():
    assert placed([run(1)], [node("a")]).assignments == [Assignment("0001", "a")]
