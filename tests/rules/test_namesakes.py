"""Who else may be meant by a node id: a process that lives, one that is gone, or oneself."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from duly.model import Node
from duly.rules.namesakes import describe, is_other, surely_lives

NOW = datetime(2027, 1, 1, tzinfo=UTC)
MINE = Node("worker-1", "alpha", 100, NOW)
OTHER = Node("worker-1", "alpha", 99, NOW - timedelta(seconds=8))


def test_ones_own_announcement_is_no_other():
    assert not is_other(replace(MINE, metrics={"running": 1.0}), MINE)
    assert not is_other(Node("worker-2", "alpha", 99, NOW), MINE)
    assert is_other(OTHER, MINE)


@pytest.mark.parametrize(
    ("announced", "process_began", "lives"),
    [
        (OTHER, OTHER.started_at - timedelta(seconds=1), True),
        (OTHER, OTHER.started_at + timedelta(seconds=1), True),  # as far as clocks can tell
        (OTHER, None, False),  # killed: its presence has not lapsed yet
        (OTHER, OTHER.started_at + timedelta(seconds=7), False),  # killed, and its number is somebody else's by now
        (replace(OTHER, host="beta"), OTHER.started_at, False),  # a number means nothing on another machine
        (replace(OTHER, pid=MINE.pid), OTHER.started_at, False),  # an earlier life of this process or container
    ],
)
def test_only_a_process_that_surely_lives_keeps_another_from_starting(announced, process_began, lives):
    assert surely_lives(announced, MINE, process_began) is lives


def test_it_is_described_by_what_finds_it():
    assert describe(OTHER) == "process 99 on alpha, started at 2026-12-31T23:59:52Z"
