"""Who is to blame when a worker vanishes: only a run that was certainly alone there."""

from datetime import UTC, datetime, timedelta

import pytest

from duly.model import Run
from duly.rules.suspects import is_suspect, seconds_alone, was_alone

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
