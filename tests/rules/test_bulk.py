"""What a filter must say, and which runs it meant when it was counted."""

from datetime import UTC, datetime, timedelta

import pytest

from duly.model import PathEquals, Run, RunOrder, RunQuery, State
from duly.rules.bulk import may_cancel, may_redrive, says_something, stood

AS_OF = datetime(2027, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def run(**fields) -> Run:
    return Run(id="0a", job="mail", handler="mail", due=AS_OF, ready_at=AS_OF, **fields)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (RunQuery(), False),
        (RunQuery(order=RunOrder.ENDED), False),
        (RunQuery(job="mail"), True),
        (RunQuery(states=(State.FAILED,)), True),
        (RunQuery(min_late=0.0), True),
        (RunQuery(where=(PathEquals(("payload", "a"), None),)), True),
        (RunQuery(none_of=(RunQuery(job="mail"),)), True),
    ],
)
def test_an_order_alone_says_nothing(query, says):
    assert says_something(query) is says


@pytest.mark.parametrize(
    ("fields", "there"),
    [
        ({"created_at": AS_OF}, True),
        ({"created_at": AS_OF + SECOND}, False),
        ({"created_at": None}, True),
        ({"created_at": AS_OF - SECOND, "state": State.FAILED, "finished_at": AS_OF}, True),
        ({"created_at": AS_OF - SECOND, "state": State.FAILED, "finished_at": AS_OF + SECOND}, False),
        ({"created_at": AS_OF - SECOND, "state": State.RUNNING, "finished_at": None}, True),
    ],
)
def test_what_was_created_or_ended_later_is_left_alone(fields, there):
    assert stood(run(**fields), AS_OF) is there


def test_every_state_is_for_one_of_both_or_for_none():
    cancellable = {state for state in State if may_cancel(run(state=state))}
    redrivable = {state for state in State if may_redrive(run(state=state))}
    assert cancellable == {State.PENDING, State.QUEUED, State.RUNNING}
    assert redrivable == {State.FAILED, State.CANCELLED, State.LOST}
