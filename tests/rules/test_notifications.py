"""Notifications: what becomes a message, how many, to whom; and what happens to one that cannot be delivered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from duly.model import Cause, Failure, JobRecord, JobSpec, JobStatistics, Origin, OutcomeKind, Pause, Run, State
from duly.model.notification import CHOOSABLE_KINDS, Delivery, NotificationKind, NotifyState, TargetState
from duly.rules import notifications
from duly.rules.notifications import LISTED, Pace

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
PACE = Pace(wait=10, repeat=3600, late_after=300)
ALL = {"ops": CHOOSABLE_KINDS}


def later(seconds):
    return NOW + timedelta(seconds=seconds)


def run(number=1, job="report", state=State.FAILED, at=NOW, **more):
    failure = Failure("ValueError", f"boom {number}") if state is State.FAILED else None
    begun = at - timedelta(seconds=1)
    return Run(
        **{
            "id": f"{number:026d}",
            "job": job,
            "handler": job,
            "due": begun,
            "ready_at": begun,
            "state": state,
            "finished_at": at,
            "started_at": begun,
            "failure": failure,
            "cause": Cause.SCHEDULE,
        }
        | more
    )


def begun():
    return notifications.fresh(NOW, {"failed": 5, "lost": 0, "skipped": 0})


def noted(state, runs, at=NOW, *, more=False):
    totals = dict(state.totals)
    totals["failed"] = totals.get("failed", 0) + len(runs)
    return notifications.note_ended(state, runs, totals, at, PACE, more=more)


def made(state, at, targets=ALL, routes=None):
    """The state after messages were made, and the messages that are new."""
    after = notifications.make_messages(state, at, PACE, targets, routes or {})
    return after, [each.notification for each in after.outbox[len(state.outbox) :]]


def counted(state, at, **jobs):
    return notifications.note_statistics(state, jobs, at)


def successes(number, at=None):
    outcome = None if at is None else OutcomeKind.SUCCEEDED
    return JobStatistics(completed=number, last_run_at=at, last_outcome=outcome)


# --- what has ended


def test_only_what_ended_since_then_is_looked_for():
    state = begun()
    assert notifications.increase(state, {"failed": 5, "lost": 0}, ("failed", "lost")) == 0
    assert notifications.increase(state, {"failed": 7, "lost": 1}, ("failed", "lost")) == 3
    assert notifications.increase(state, {"failed": 2}, ("failed",)) == 0  # the store was replaced


def test_a_run_is_new_again_if_it_was_redriven_and_failed_again():
    state = noted(begun(), [run(1)])
    assert notifications.unseen(state, [run(1), run(2)]) == [run(2)]
    assert notifications.unseen(state, [run(1, at=later(5))]) == [run(1, at=later(5))]


def test_one_failure_becomes_one_message_after_the_wait():
    state = noted(begun(), [run(1)])
    assert made(state, later(9))[1] == []
    state, [message] = made(state, later(10))
    assert (message.kind, message.job, message.count, message.run_id) == ("failure", "report", 1, run(1).id)
    assert message.text == (f"report failed (2027-03-01T12:00:00Z in run {run(1).id}): ValueError: boom 1")
    assert made(state, later(11))[1] == []


def test_a_storm_becomes_one_message_with_a_count_and_one_more_after_the_silence():
    state = noted(begun(), [run(number, at=later(number / 1000)) for number in range(10_000)])
    state, [message] = made(state, later(20))
    assert message.count == 10_000
    assert "failed 10000 times (2027-03-01T12:00:00Z to 2027-03-01T12:00:09Z, the latest" in message.text
    for minute in range(1, 60):
        state = noted(state, [run(20_000 + minute, at=later(minute * 60))], later(minute * 60))
        state, messages = made(state, later(minute * 60 + 15))
        assert messages == []
    state, [message] = made(state, later(20 + 3600))
    assert message.count == 59


def test_a_count_is_a_lower_bound_if_not_all_were_read():
    _, [message] = made(noted(begun(), [run(1), run(2)], more=True), later(10))
    assert message.at_least
    assert "failed at least 2 times" in message.text


@pytest.mark.parametrize(
    ("ended", "kind"),
    [
        (run(state=State.LOST, failure=None, reason="its worker vanished"), "failure"),
        (run(state=State.SKIPPED, reason="misfire"), "missed"),
        (run(state=State.SKIPPED, reason="overlap"), None),
        (run(state=State.SKIPPED, reason="paused"), None),
        (run(state=State.CANCELLED), None),
    ],
)
def test_which_ends_are_reported(ended, kind):
    _, messages = made(noted(begun(), [ended]), later(10))
    assert [message.kind for message in messages] == ([] if kind is None else [kind])


def test_a_late_run_is_reported_once_per_silence():
    waiting = run(state=State.QUEUED, finished_at=None, started_at=None, failure=None)
    state = notifications.note_late(begun(), [waiting, waiting], NOW, PACE)
    state, [message] = made(state, later(10))
    assert message.text == f"report is late: run {waiting.id} is ready, and has not been started"
    state = notifications.note_late(state, [waiting], later(20), PACE)
    assert made(state, later(600))[1] == []


# --- recovery


def test_the_first_success_after_a_failure_is_reported_once():
    state = noted(begun(), [run(1)])
    state = counted(state, NOW, report=successes(7))
    state, _ = made(state, later(10))
    state = counted(state, later(15), report=successes(7))
    assert made(state, later(15))[1] == []
    state = counted(state, later(20), report=successes(8))
    state, [message] = made(state, later(20))
    assert (message.kind, message.text) == (
        "recovery",
        "report succeeded again; it had not since 2027-03-01T12:00:00Z",
    )
    state = counted(state, later(30), report=successes(9))
    assert made(state, later(30))[1] == []
    assert state.failing == {}


def test_a_success_before_the_failure_was_reported_is_reported_after_it():
    state = noted(begun(), [run(1)])
    state = counted(state, NOW, report=successes(8, at=later(2)))
    state = counted(state, later(5), report=successes(8, at=later(2)))
    state, [failure] = made(state, later(10))
    state = counted(state, later(11), report=successes(8, at=later(2)))
    state, [recovery] = made(state, later(11))
    assert (failure.kind, recovery.kind) == ("failure", "recovery")


def test_a_success_that_was_before_the_failure_is_no_recovery():
    state = noted(begun(), [run(1, at=later(5))])
    state = counted(state, later(5), report=successes(8, at=NOW - timedelta(seconds=60)))
    state, _ = made(state, later(20))
    state = counted(state, later(25), report=successes(8, at=NOW - timedelta(seconds=60)))
    assert made(state, later(25))[1] == []
    assert "report" in state.failing


def test_a_job_that_fails_and_recovers_all_the_time_sends_two_messages_an_hour():
    state, messages = begun(), []
    for minute in range(120):
        at = later(60 * minute)
        state = noted(state, [run(minute, at=at)], at)
        state = counted(state, at, report=successes(minute))
        state, new = made(state, at + timedelta(seconds=20))
        messages += new
        state = counted(state, at + timedelta(seconds=40), report=successes(minute + 1))
        state, new = made(state, at + timedelta(seconds=40))
        messages += new
    assert [message.kind for message in messages].count("failure") == 2
    assert [message.kind for message in messages].count("recovery") <= 2


# --- expectations


def record(name="report", expect_every=3600.0, **more):
    spec = JobSpec(name=name, handler=name, expect_every=expect_every)
    return JobRecord(f"uid-{name}", spec, 1, Origin.CODE, NOW, NOW, **more)


def expecting(*records, state=None, at=NOW, last=True):
    return notifications.note_definitions(state or begun(), records, at, last=last)


def test_a_job_that_does_not_succeed_in_time_is_overdue_once_and_recovers():
    state = counted(expecting(record()), NOW, report=successes(3))
    state = counted(state, later(3599), report=successes(3))
    assert made(state, later(3599))[1] == []
    state = counted(state, later(3600), report=successes(3))
    state, [message] = made(state, later(3600))
    assert (message.kind, message.text) == ("overdue", "report has not succeeded for 1 hour")
    state = counted(state, later(9000), report=successes(3))
    assert made(state, later(9000))[1] == []
    state = counted(state, later(9100), report=successes(4))
    state, [message] = made(state, later(9100))
    assert message.kind == "recovery"
    state = counted(state, later(9100 + 3599), report=successes(4))
    assert made(state, later(9100 + 3599))[1] == []


def test_every_success_starts_the_time_again():
    state = counted(expecting(record()), NOW, report=successes(3))
    for hour in range(1, 10):
        at = later(3000 * hour)
        state = counted(state, at, report=successes(3 + hour))
        assert made(state, at)[1] == []


def test_a_job_that_has_never_run_is_expected_from_when_it_was_found():
    state = counted(expecting(record()), NOW)
    state = counted(state, later(3601))
    assert [message.kind for message in made(state, later(3601))[1]] == ["overdue"]


@pytest.mark.parametrize(
    "idle", [{"paused": Pause(NOW)}, {"removed_at": NOW}, {"spec": JobSpec(name="report", handler="report")}]
)
def test_a_job_that_is_paused_or_removed_is_not_expected(idle):
    state = expecting(record())
    assert expecting(replace(record(), **idle), state=state).expected == {}


def test_a_job_without_a_node_that_has_its_code_is_expected():
    assert "report" in expecting(record(retired_at=NOW)).expected


def test_definitions_are_searched_in_slices_and_deleted_ones_are_forgotten():
    state = expecting(record("a"), record("b"), last=False)
    assert (state.scan, sorted(state.expected)) == ("b", ["a", "b"])
    state = expecting(record("c"), state=state, last=True)
    assert (state.scan, sorted(state.expected)) == ("", ["a", "b", "c"])
    state = expecting(record("b"), state=state, last=False)
    assert sorted(state.expected) == ["b", "c"]
    state = expecting(state=state, last=True)
    assert sorted(state.expected) == ["b"]


def test_a_changed_expectation_keeps_its_time():
    state = counted(expecting(record()), NOW, report=successes(3))
    state = expecting(record(expect_every=60.0), state=state, at=later(100))
    state = counted(state, later(100), report=successes(3))
    assert [message.kind for message in made(state, later(100))[1]] == ["overdue"]


# --- who gets a message


def test_targets_get_the_kinds_and_jobs_that_are_meant_for_them():
    state = noted(begun(), [run(1), run(2, job="backup"), run(3, job="quiet")])
    targets = {"ops": ("failure",), "pager": ("overdue", "failure"), "log": ("missed",)}
    routes = {"backup": ("pager",), "quiet": (), "report": None}
    state, _ = made(state, later(10), targets, routes)
    assert [(each.target, each.notification.job) for each in state.outbox] == [
        ("ops", "report"),
        ("pager", "report"),
        ("pager", "backup"),
    ]
    ids = {each.notification.job: each.notification.id for each in state.outbox}
    assert len(set(ids.values())) == 2


def test_many_jobs_at_once_become_one_digest():
    state = noted(begun(), [run(number, job=f"job{number}") for number in range(200)])
    state, [message] = made(state, later(10))
    assert (message.kind, message.count, len(message.concerns)) == (NotificationKind.DIGEST, 200, LISTED)
    assert message.text.startswith("200 jobs need attention: job0 (failure, 1), ")
    assert message.text.endswith("and 180 more")


# --- delivery


def waiting(number=1):
    state = noted(begun(), [run(n, job=f"job{n}") for n in range(number)])
    return made(state, later(10))[0]


def test_a_target_that_fails_is_tried_again_with_growing_delays():
    state = waiting()
    delays, at = [], later(10)
    for _ in range(10):
        [delivery] = notifications.due(state, "ops", at)
        state = notifications.refused(state, delivery, "away", at, for_good=False)
        retry_at = state.targets["ops"].retry_at
        assert notifications.due(state, "ops", retry_at - timedelta(seconds=1)) == []
        delays.append((retry_at - at).total_seconds())
        at = retry_at
    assert delays == [5, 10, 20, 40, 80, 160, 320, 640, 900, 900]
    state = notifications.delivered(state, delivery, at)
    assert state.outbox == ()
    assert state.targets["ops"].sent == 1
    assert state.targets["ops"].retry_at is None
    assert state.targets["ops"].last_error == "away"


def test_a_message_that_is_rejected_does_not_block_the_others():
    state = waiting(2)
    first, second = notifications.due(state, "ops", later(10))
    state = notifications.refused(state, first, "HTTP 400", later(10), for_good=True)
    assert notifications.due(state, "ops", later(10)) == [second]
    assert state.targets["ops"].given_up == 1


def test_a_message_is_given_up_after_a_day():
    state = waiting()
    [delivery] = notifications.due(state, "ops", later(10))
    state = notifications.refused(state, delivery, "away", later(86_000), for_good=False)
    assert len(state.outbox) == 1
    state = notifications.refused(state, delivery, "away", later(86_500), for_good=False)
    assert state.outbox == ()
    assert state.targets["ops"].given_up == 1


def test_messages_of_a_target_that_this_node_does_not_have_are_kept_for_a_day():
    state = replace(waiting(), targets={"ops": TargetState(sent=3)})
    other = {"pager": TargetState(about="https://pager/…")}
    kept = notifications.present(state, other, later(100))
    assert len(kept.outbox) == 1
    assert kept.targets["ops"].sent == 3
    gone = notifications.present(state, other, later(100_000))
    assert (gone.outbox, list(gone.targets)) == ((), ["pager"])


def test_the_outbox_is_bounded_and_counts_what_it_drops():
    state = begun()
    for number in range(600):
        at = later(number * 30)
        state = noted(state, [run(number, job=f"job{number}", at=at)], at)
        state, _ = made(state, at + timedelta(seconds=15))
    assert len(state.outbox) == 500
    assert state.targets["ops"].dropped == 100
    assert state.outbox[-1].notification.job == "job599"


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from([State.FAILED, State.LOST, State.SKIPPED]),
            st.integers(0, 7200),
        ),
        max_size=60,
    )
)
def test_every_end_is_counted_in_exactly_one_message(ends):
    """Whatever happens in whatever order, the counts of all messages add up, and the state can be stored."""
    runs = [
        run(number, job=job, state=state, at=later(at), reason="misfire" if state is State.SKIPPED else None)
        for number, (job, state, at) in enumerate(sorted(ends, key=lambda end: end[2]))
    ]
    state, messages = begun(), []
    for tick in range(0, 4 * 3600, 5):
        at = later(tick)
        new = [each for each in runs if at - timedelta(seconds=5) < each.finished_at <= at]
        if new:
            state = noted(state, new, at)
        state, some = made(state, at)
        messages += some
        state = msgspec.json.decode(msgspec.json.encode(state), type=NotifyState)
    assert sum(message.count for message in messages) == len(runs)
    assert len({message.id for message in messages}) == len(messages)
    assert len(messages) <= 3 * 2 * 4  # jobs, kinds, hours


def test_hostile_values_can_be_stored():
    bad = run(1, job="x", failure=Failure("E", "\ud800\0" + "y" * 100_000), reason="\udfff")
    state, [message] = made(noted(begun(), [bad]), later(10))
    assert len(msgspec.json.encode(state)) < 5000
    assert isinstance(state.outbox[0], Delivery)
    assert len(message.text) < 1000
