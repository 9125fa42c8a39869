"""Processes with one node id are told apart by the numbers of their requests."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from duly.model import Node
from duly.model.node import first_request
from duly.rules.namesakes import is_distinct, is_replacement, is_sibling, requests_of

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIRST = first_request(START)


def node(*, supervisor: str = "7.a", host: str = "a", seconds: float = 0.0, name: str = "web-1") -> Node:
    return Node(name, host, 1, START + timedelta(seconds=seconds), supervisor=supervisor)


@given(st.floats(0.05, 1e6), st.floats(0, 60), st.floats(0, 30))
def test_a_process_and_the_one_that_replaces_it_have_different_numbers(lived, overlap, age):
    """As long as it does not drain for many times as long as it had lived."""
    overlap = min(overlap, lived)
    old = requests_of("web-1", FIRST, lived + overlap)
    new = requests_of("web-1", FIRST + int(lived * 1e6), overlap + age)
    assert is_distinct(old, [new])
    assert is_distinct(new, [old])


def test_after_a_clock_that_went_back_they_cannot_be_told_apart():
    old = requests_of("web-1", FIRST, 3600)
    new = requests_of("web-1", FIRST - 1_000_000, 60)
    assert not is_distinct(old, [new])
    assert not is_distinct(new, [old])


def test_other_nodes_and_no_others_do_not_matter():
    mine = requests_of("web-1", FIRST, 10, "killed by SIGKILL")
    assert is_distinct(mine, [])
    assert is_distinct(mine, [requests_of("web-2", FIRST, 10)])
    assert mine.why == "killed by SIGKILL"


def test_every_request_of_a_process_is_within_its_numbers():
    """A round trip takes more than ten microseconds."""
    ended = requests_of("web-1", FIRST, 2.0)
    assert ended.first <= FIRST + 1
    assert ended.last >= FIRST + 2 * 100_000


def test_processes_of_one_supervisor_are_siblings():
    mine = node()
    assert is_sibling(node(seconds=5), mine)
    assert not is_sibling(node(), mine), "that is this process"
    assert not is_sibling(node(seconds=5, supervisor="8.a"), mine)
    assert not is_sibling(node(seconds=5, host="b"), mine)
    assert not is_sibling(node(seconds=5, name="web-2"), mine)
    assert not is_sibling(node(seconds=5, supervisor=""), node(supervisor="")), "neither has a supervisor"


def test_the_later_one_replaces_the_earlier_one():
    assert is_replacement(node(seconds=5), node())
    assert not is_replacement(node(), node(seconds=5))
