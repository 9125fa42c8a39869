"""Who is to blame when a worker vanishes: only a run that was certainly alone there."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from duly.model import Node, Role, Run, State
from duly.model.holds import ALONE
from duly.rules.suspects import is_suspect, seconds_alone, vanished, was_alone
from duly.rules.waiting import CLOSED, Situation, why_waiting

START = datetime(2027, 1, 1, tzinfo=UTC)
LEASE = 15.0


def lost(losses, last_renewal):
    """A run that was taken over; its last renewal was so many seconds after its start."""
    expired = START + timedelta(seconds=last_renewal + LEASE)
    return Run("0a", "job", "job", START, START, losses=losses, started_at=START, expires_at=expired)


def test_the_last_chance_makes_a_suspect():
    assert [is_suspect(losses, 3) for losses in range(5)] == [False, False, True, True, True]
    assert [is_suspect(losses, 2) for losses in range(3)] == [False, True, True]


def test_the_time_alone_doubles_with_every_loss_that_nobody_can_be_blamed_for():
    assert [seconds_alone(losses, 3, LEASE) for losses in (2, 3, 4, 5)] == [15, 30, 60, 120]
    assert seconds_alone(10_000, 3, LEASE) == 86_400


@pytest.mark.parametrize(
    ("losses", "last_renewal", "alone"),
    [
        (0, 0.0, False),  # it had company, or may have had
        (1, 0.0, False),
        (2, 0.0, True),  # never renewed: it vanished at once
        (2, 14.9, True),
        (2, 15.0, False),  # renewed at the end of its time alone: others may have joined it
        (3, 15.0, True),
        (3, 30.0, False),
    ],
)
def test_a_loss_is_blamed_on_a_run_only_if_nobody_can_have_joined_it(losses, last_renewal, alone):
    assert was_alone(lost(losses, last_renewal), 3, LEASE) is alone


def test_a_worker_that_takes_its_own_run_over_has_not_vanished():
    run = replace(lost(2, 0.0), node="a")
    assert not vanished(run, node("a"))
    assert vanished(run, node("b"))
    assert vanished(run, replace(node("a"), started_at=START + timedelta(seconds=1)))  # its next life


# --- what a suspect waits for, in words


def waiting(**fields):
    return Run("0a", "job", "job", START, START, losses=2, hold=ALONE, **fields)


def node(name, **fields):
    return Node(name, "host", 1, START, roles=(Role.WORKER,), handlers=("job",), capacity=4, **fields)


def why(run, **fields):
    reason = why_waiting(run, Situation(START + timedelta(seconds=1), **fields))
    return reason.text, reason.setting


def test_a_suspect_says_that_it_is_tried_alone():
    lost = "Its worker vanished 2 times, so it may be the cause and is tried alone"
    assert why(waiting(), nodes=[node("a")]) == (f"{lost}: it waits until a has no other run.", "max_losses")
    two = why(waiting(), nodes=[node("a"), node("b")])
    assert two == (f"{lost}: it waits until one of a, b has no other run.", "max_losses")
    text, setting = why(waiting(), nodes=[])
    assert text.startswith(f"{lost}. It has been ready since")
    assert setting == "nodes"
    text, setting = why(waiting(), nodes=[node("a")], paused_queues={"default"})
    assert text == f"{lost}. It is ready and waits because the queue 'default' is paused."
    later = replace(waiting(), ready_at=START + timedelta(minutes=1))
    text, setting = why(later, nodes=[node("a")])
    assert (text, setting) == (f"{lost}, at 2027-01-01T00:01:00Z or later.", "max_losses")


def test_others_say_that_a_suspect_is_tried_where_they_could_run():
    ready = Run("0a", "job", "job", START, START, state=State.QUEUED)
    text, setting = why(ready, nodes=[node("a", metrics={CLOSED: 1.0})])
    assert text.endswith(", but a starts nothing else while trying runs alone whose workers vanished.")
    assert setting == "max_losses"
    text, _ = why(ready, nodes=[node("a", metrics={CLOSED: 1.0}), node("b")])
    assert text.endswith("b has room: it should start in a moment.")
