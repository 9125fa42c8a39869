"""What a run becomes when it is loaded into another store."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from duly.model import Delivery, Run, RunPolicy, State
from duly.model.holds import UNPLACED
from duly.rules.restoring import RESTORED, restored

NOW = datetime(2026, 11, 18, tzinfo=UTC)
RUNNING = Run(
    id="1",
    job="mail",
    handler="mail",
    due=NOW,
    ready_at=NOW,
    state=State.RUNNING,
    fence=7,
    node="n",
    started_at=NOW,
    expires_at=NOW + timedelta(seconds=15),
    group="mail",
    member=True,
)
ONCE = RunPolicy(delivery=Delivery.AT_MOST_ONCE)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (RUNNING, replace(RUNNING, state=State.PENDING, expires_at=None)),
        (
            replace(RUNNING, policy=ONCE),
            replace(
                RUNNING,
                policy=ONCE,
                state=State.LOST,
                reason=RESTORED,
                finished_at=NOW,
                expires_at=None,
                member=False,
            ),
        ),
        (
            replace(RUNNING, cancelling=True, reason="no"),
            replace(RUNNING, state=State.CANCELLED, reason="no", finished_at=NOW, expires_at=None, member=False),
        ),
        (
            replace(RUNNING, assignable=True, assignee="n"),
            replace(RUNNING, state=State.PENDING, expires_at=None, assignable=True, hold=UNPLACED),
        ),
        (
            replace(RUNNING, state=State.PENDING, assignable=True, assignee="n", hold="job:mail", expires_at=None),
            replace(RUNNING, state=State.PENDING, assignable=True, hold="job:mail", expires_at=None),
        ),
        *((replace(RUNNING, state=state), replace(RUNNING, state=state)) for state in (State.COMPLETED, State.LOST)),
    ],
)
def test_what_a_run_becomes(run, expected):
    assert restored(run, NOW) == expected
