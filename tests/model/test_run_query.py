"""Which runs a query lists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from duly.model import Failure, PathEquals, Run, RunOrder, RunQuery, State

NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)


def run(**fields) -> Run:
    return Run(**{"id": "01a", "job": "mail", "handler": "mail", "due": NOW, "ready_at": NOW} | fields)


@pytest.mark.parametrize(
    ("payload", "path", "value", "matches"),
    [
        (b'{"a":{"b":1}}', ("a", "b"), 1, True),
        (b'{"a":{"b":1}}', ("a", "b"), 1.0, True),
        (b'{"a":{"b":1}}', ("a", "b"), True, False),
        (b'{"a":{"b":true}}', ("a", "b"), 1, False),
        (b'{"a":{"b":"1"}}', ("a", "b"), 1, False),
        (b'{"a":null}', ("a",), None, True),
        (b"{}", ("a",), None, False),
        (b'{"a":[5,6]}', ("a", "1"), 6, True),
        (b'{"a":[5,6]}', ("a", "2"), 6, False),
        (b'{"a":{}}', ("a",), None, False),
        (b"not json", ("a",), None, False),
    ],
)
def test_a_value_inside_the_payload_is_compared_by_kind(payload, path, value, matches):
    query = RunQuery(where=(PathEquals(("payload", *path), value),))
    assert query.matches(run(payload=payload), NOW) is matches


def test_a_run_without_a_result_has_no_value_in_it():
    query = RunQuery(where=(PathEquals(("result", "a"), None),))
    assert not query.matches(run(), NOW)
    assert query.matches(run(result=b'{"a":null}'), NOW)


def test_an_order_lists_only_runs_that_have_its_time():
    ended = run(state=State.COMPLETED, finished_at=NOW)
    for order, wanted in ((RunOrder.CREATED, 2), (RunOrder.ENDED, 1), (RunOrder.READY, 1)):
        assert sum(RunQuery(order=order).matches(each, NOW) for each in (run(), ended)) == wanted


def test_times_of_running_and_waiting_runs_count_until_now():
    later = NOW + timedelta(seconds=30)
    running = run(state=State.RUNNING, started_at=NOW + timedelta(seconds=10))
    assert RunQuery(min_seconds=20).matches(running, later)
    assert not RunQuery(min_seconds=21).matches(running, later)
    assert RunQuery(min_late=10).matches(running, later)
    assert not RunQuery(min_late=11).matches(running, later)
    assert RunQuery(min_late=30).matches(run(), later)
    assert not RunQuery(min_seconds=0).matches(run(), later)


def test_text_is_found_in_any_case_and_place():
    failed = run(state=State.FAILED, failure=Failure("SMTPError", "Mailbox FULL"), payload=b'{"to":"Ada"}')
    for text in ("mailbox full", "smtp", "ada", "01A"):
        assert RunQuery(text=text).matches(failed, NOW)
    assert RunQuery(error="full").matches(failed, NOW)
    assert not RunQuery(error="ada").matches(failed, NOW)


def test_what_is_excluded_is_left_out_one_by_one():
    query = RunQuery(none_of=(RunQuery(job="sms"), RunQuery(queue="slow")))
    assert query.matches(run(), NOW)
    assert not query.matches(run(job="sms"), NOW)
    assert not query.matches(run(queue="slow"), NOW)
