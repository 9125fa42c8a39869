"""Changes: what a deploy, an operator or a missing handler does to a job's record."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from duly.model import EverySpec, JobSpec, JobStatus, Origin, State, Waiting
from duly.rules import job_changes
from duly.rules.schedules import Every, Once

NOW = datetime(2027, 1, 1, tzinfo=UTC)
HOURLY = Every(hours=1)
SPEC = JobSpec(name="report", handler="report", schedule=EverySpec(timedelta(hours=1)))


def at(seconds):
    return NOW + timedelta(seconds=seconds)


def record(**fields):
    born = job_changes.create("0u", SPEC, HOURLY, Origin.CODE, NOW, NOW).record
    return replace(born, **fields)


def test_a_new_job_begins_with_its_next_instant():
    change = job_changes.create("0u", SPEC, HOURLY, Origin.CODE, at(5), at(5))
    assert (change.expect, change.record.revision, change.record.cursor) == (None, 1, at(3600))
    assert change.record.plan_at == at(5)


def test_a_new_job_of_a_past_instant_begins_with_that():
    change = job_changes.create("0u", SPEC, Once(at(-99)), Origin.CODE, NOW, None)
    assert change.record.cursor == at(-99)


def test_a_job_without_schedule_has_no_cursor():
    change = job_changes.create("0u", JobSpec(name="mail", handler="mail"), None, Origin.CODE, NOW, None)
    assert (change.record.cursor, change.record.status) == (None, JobStatus.ACTIVE)


def test_an_unchanged_definition_is_not_written():
    assert job_changes.deploy(record(), SPEC, HOURLY, at(99), at(99)) is None


def test_a_changed_definition_keeps_the_cursor_of_its_schedule():
    spec = replace(SPEC, payload=b'{"region":"eu"}')
    change = job_changes.deploy(record(revision=4), spec, HOURLY, at(99), at(99))
    assert (change.expect, change.record.revision) == (4, 5)
    assert change.waiting is Waiting.REWIND
    assert not change.moves_cursor
    assert change.ledger == ()


def test_a_changed_schedule_starts_anew():
    spec = replace(SPEC, schedule=EverySpec(timedelta(minutes=10)))
    change = job_changes.deploy(record(), spec, Every(minutes=10), at(99), at(99))
    assert change.waiting is Waiting.DROP
    assert change.moves_cursor
    assert (change.record.cursor, change.record.plan_at) == (at(600), at(99))


def test_a_changed_schedule_accounts_for_what_was_not_planned():
    spec = replace(SPEC, schedule=EverySpec(timedelta(minutes=10)))
    change = job_changes.deploy(record(cursor=at(3600)), spec, Every(minutes=10), at(9000), at(9000))
    [skipped] = change.ledger
    assert (skipped.state, skipped.due, skipped.until) == (State.SKIPPED, at(3600), at(9000))


def test_a_deploy_never_unpauses():
    paused = job_changes.pause(record(), at(1), "maintenance").record
    spec = replace(SPEC, queue="other")
    change = job_changes.deploy(paused, spec, HOURLY, at(99), at(99))
    assert change.record.paused == paused.paused
    assert change.record.status is JobStatus.PAUSED


def test_older_code_does_not_overwrite_newer():
    stored = record(code_since=at(100))
    spec = replace(SPEC, queue="other")
    assert job_changes.deploy(stored, spec, HOURLY, at(200), at(50)) is None
    assert job_changes.deploy(stored, spec, HOURLY, at(200), at(150)) is not None


def test_pausing_takes_planned_runs_back():
    change = job_changes.pause(record(), at(5), "why")
    assert change.waiting is Waiting.REWIND
    assert (change.record.paused.at, change.record.paused.note) == (at(5), "why")
    assert not change.record.plannable
    assert job_changes.pause(change.record, at(6), "again") is None


def test_resuming_accounts_for_what_was_missed():
    paused = job_changes.pause(record(), at(5), "").record
    change = job_changes.resume(paused, HOURLY, at(3 * 3600 + 5))
    [skipped] = change.ledger
    assert (skipped.reason, skipped.due, skipped.until) == ("paused", at(3600), at(3 * 3600))
    assert (change.record.cursor, change.record.paused) == (at(4 * 3600), None)
    assert change.moves_cursor
    assert job_changes.resume(record(), HOURLY, NOW) is None


def test_resuming_before_anything_was_missed_skips_nothing():
    paused = job_changes.pause(record(), at(5), "").record
    change = job_changes.resume(paused, HOURLY, at(10))
    assert change.ledger == ()
    assert change.record.cursor == at(3600)
    assert change.record.plan_at == at(10)


def test_resuming_a_retired_job_leaves_it_retired():
    both = job_changes.retire(job_changes.pause(record(), at(5), "").record, at(6)).record
    change = job_changes.resume(both, HOURLY, at(7200))
    assert change.record.status is JobStatus.RETIRED
    assert change.ledger == ()
    back = job_changes.revive(change.record, HOURLY, at(7200))
    assert [run.reason for run in back.ledger] == ["no_handler"]
    assert back.record.status is JobStatus.ACTIVE


def test_a_resumed_job_without_schedule_just_goes_on():
    mail = job_changes.create("0m", JobSpec(name="mail", handler="mail"), None, Origin.CODE, NOW, None).record
    paused = job_changes.pause(mail, at(1), "").record
    assert job_changes.resume(paused, None, at(2)).record.status is JobStatus.ACTIVE


def test_removing_leaves_a_tombstone_and_cancels():
    change = job_changes.remove(record(revision=2), at(5))
    assert change.record.status is JobStatus.REMOVED
    assert change.waiting is Waiting.CANCEL
    assert job_changes.remove(change.record, at(6)) is None


def test_restoring_gives_a_new_identity():
    tombstone = job_changes.remove(record(revision=2), at(5)).record
    change = job_changes.restore("0new", tombstone, SPEC, HOURLY, at(7200), at(7200))
    assert (change.expect, change.record.revision, change.record.uid) == (3, 4, "0new")
    assert change.record.status is JobStatus.ACTIVE
    assert change.moves_cursor
    assert change.record.cursor == at(3 * 3600)


def test_every_change_names_the_revision_it_was_made_from():
    made = record(revision=9)
    for change in (
        job_changes.pause(made, NOW, ""),
        job_changes.retire(made, NOW),
        job_changes.remove(made, NOW),
        job_changes.deploy(made, replace(SPEC, queue="x"), HOURLY, NOW, None),
    ):
        assert (change.expect, change.record.revision) == (9, 10)


def test_a_new_definition_says_where_it_comes_from_and_keeps_the_old_one():
    born = job_changes.create("0u", SPEC, HOURLY, Origin.API, NOW, None, "ada").record
    assert (born.version.revision, born.version.at, born.version.by) == (1, NOW, "ada")
    change = job_changes.deploy(born, replace(SPEC, priority=1), HOURLY, at(9), None, "bob")
    assert (change.record.version.revision, change.record.version.by) == (2, "bob")
    assert b'"ada"' in change.replaces
    moved = job_changes.deploy(born, replace(SPEC, schedule=None), None, at(9), None)
    assert moved.replaces == change.replaces


def test_what_is_not_a_new_definition_replaces_none():
    stored = record()
    for change in (
        job_changes.pause(stored, at(9), ""),
        job_changes.retire(stored, at(9)),
        job_changes.remove(stored, at(9)),
    ):
        assert change.replaces is None
        assert change.record.version == stored.version
