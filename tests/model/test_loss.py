"""Reports of lost changes, and the losses that they tell of."""

from datetime import UTC, datetime, timedelta

from duly.model.loss import LossReport, combined, lost_text

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_reports_of_one_incarnation_are_one_loss_with_the_greatest_counts():
    reports = [
        (NOON, LossReport(2, "behind", added=2)),
        (NOON + timedelta(seconds=1), LossReport(2, "other", added=5, settled=1)),
        (NOON + timedelta(hours=1), LossReport(3, "empty")),
    ]
    first, second = combined(reports)
    assert (first.at, first.report) == (NOON, LossReport(2, "behind", added=5, settled=1))
    assert str(first) == "up to 5 submitted or planned runs and the end of up to 1 runs"
    assert str(second) == "changes that it had acknowledged"


def test_nothing_that_is_counted_needs_no_words():
    assert lost_text(0, 0) == ""
