"""What a file changes in the store, decided without one."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from duly.model import (
    CommandSpec,
    Delivery,
    EverySpec,
    JobFile,
    JobRecord,
    JobSpec,
    Misfire,
    Origin,
    Overlap,
    Pause,
    RunPolicy,
    StoreLoss,
    Waiting,
)
from duly.model.job import COMMAND_HANDLER
from duly.model.job_file import InForce
from duly.rules.definition_words import field_changes
from duly.rules.job_files import AlterationKind, change_of, difference, outdated, put_in_force

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)


def spec(name="backup", *, every=60.0, argv=("true",), **fields):
    command = CommandSpec(argv, **{key: fields.pop(key) for key in ("environment", "cwd", "shell") if key in fields})
    schedule = EverySpec(timedelta(seconds=every)) if every else None
    return JobSpec(name=name, handler=COMMAND_HANDLER, schedule=schedule, command=command, **fields)


def record(of, *, origin=Origin.FILE, job_file="ops", **fields):
    values = {"uid": f"0{of.name}", "revision": 3, "created_at": NOW, "updated_at": NOW, "cursor": NOW}
    return JobRecord(spec=of, origin=origin, job_file=job_file, **values | fields)


def file_of(*specs, name="ops"):
    return JobFile(name, specs)


def kinds(found):
    return {each.name: each.kind.value for each in found.alterations}


def test_jobs_are_added_changed_and_removed():
    found = difference(
        file_of(spec("new"), spec("same"), spec("other", every=30.0)),
        [record(spec("same")), record(spec("other")), record(spec("gone"))],
    )
    assert kinds(found) == {"new": "added", "other": "changed", "gone": "removed"}
    assert [each.name for each in found.unchanged] == ["same"]
    assert found.clashes == ()


def test_jobs_of_others_are_never_touched():
    others = [record(spec("theirs"), job_file="shop"), record(spec("code"), origin=Origin.CODE, job_file=None)]
    assert difference(file_of(), others).alterations == ()


@pytest.mark.parametrize(
    ("of", "owner"),
    [
        ({"origin": Origin.CODE, "job_file": None}, "code"),
        ({"origin": Origin.CODE, "job_file": None, "removed_at": NOW}, "code, and was removed by an operator"),
        ({"origin": Origin.API, "job_file": None}, "the API"),
        ({"job_file": "shop"}, "job file 'shop'"),
    ],
)
def test_a_name_that_somebody_else_has_is_a_clash_that_names_both(of, owner):
    found = difference(file_of(spec()), [record(spec(every=1.0), **of)])
    [said] = found.clash_words()
    assert said == f"job 'backup' of job file 'ops' is defined by {owner} already: give one of them another name"


def test_a_change_keeps_identity_pause_and_cursor():
    before = record(spec(), paused=Pause(NOW, "why"))
    [altered] = difference(file_of(spec(argv=("false",))), [before]).alterations
    change = change_of(altered, "ops", lambda: "1", NOW)
    assert (change.expect, change.waiting, change.moves_cursor) == (3, Waiting.REWIND, False)
    after = change.record
    assert (after.uid, after.paused, after.cursor, after.job_file) == (before.uid, before.paused, before.cursor, "ops")
    assert after.spec.command.argv == ("false",)


def test_a_new_job_belongs_to_the_job_file():
    [altered] = difference(file_of(spec()), []).alterations
    change = change_of(altered, "ops", lambda: "1", NOW)
    assert (change.expect, change.record.origin, change.record.job_file, change.record.uid) == (
        None,
        "file",
        "ops",
        "1",
    )
    assert change.record.cursor == NOW + timedelta(minutes=1)


def told(old, new):
    return {each.field: (each.old, each.new) for each in field_changes(old, new)}


def test_what_changed_is_told_field_by_field():
    assert told(spec(), spec(every=30.0)) == {"schedule": ("every minute", "every 30 seconds")}
    assert told(spec(), spec(argv=("a", "b c"))) == {"command": ("true", "a 'b c'")}
    assert told(spec(), spec(cwd="/srv", queue="night", tags=("a",))) == {
        "cwd": ("–", "/srv"),
        "queue": ("default", "night"),
        "tags": ("–", "a"),
    }
    assert told(spec(), spec(policy=RunPolicy(timeout=5.0))) == {"timeout": ("–", "5 s")}


def test_a_schedule_that_reads_the_same_is_told_as_it_is_written():
    start = replace(spec(), schedule=EverySpec(timedelta(seconds=60), jitter=timedelta(microseconds=1)))
    [(old, new)] = told(spec(), start).values()
    assert old != new


def test_of_the_environment_only_names_are_told():
    changes = told(
        spec(environment={"A": "s1", "B": "s2", "C": "s3"}), spec(environment={"B": "t2", "C": "s3", "D": "t4"})
    )
    assert changes == {
        "environment.A": ("set", "–"),
        "environment.B": ("set", "set anew"),
        "environment.D": ("–", "set"),
    }


@pytest.mark.parametrize(
    "other",
    [
        spec(every=None),
        spec(argv=("x",)),
        spec(shell=True),
        spec(cwd="/"),
        spec(environment={"A": ""}),
        spec(description="x"),
        spec(queue="x"),
        spec(priority=1),
        spec(overlap=Overlap.QUEUE),
        spec(misfire=Misfire.SKIP),
        spec(max_runs=1),
        spec(tags=("x",)),
        spec(selector={"gpu": "yes"}),
        spec(policy=RunPolicy(timeout=1.0)),
        spec(policy=RunPolicy(delivery=Delivery.AT_MOST_ONCE)),
        spec(policy=RunPolicy(on_store_loss=StoreLoss.STOP)),
    ],
    ids=range(16),
)
def test_no_change_goes_untold(other):
    assert kinds(difference(file_of(other), [record(spec())])) == {"backup": AlterationKind.CHANGED.value}
    assert told(spec(), other)


# --- versions

OLD, NEW = file_of(spec("a"), spec("b")), file_of(spec("a"))
LATER = NOW + timedelta(hours=1)


def test_a_file_that_was_replaced_does_not_come_back_by_itself():
    stands = put_in_force(put_in_force(None, OLD, NOW), NEW, NOW)
    assert outdated(stands, OLD, LATER)
    assert not outdated(stands, NEW, LATER)
    assert not outdated(stands, file_of(), LATER)
    assert stands.jobs == ("a",)


def test_a_file_that_was_read_before_the_one_in_force_is_outdated():
    stands = put_in_force(None, NEW, LATER)
    assert outdated(stands, OLD, NOW)
    assert not outdated(stands, NEW, NOW)


def test_nothing_is_outdated_where_nothing_stands():
    assert not outdated(None, OLD, NOW)


def test_a_file_that_is_put_back_replaces_the_one_that_replaced_it():
    stands = put_in_force(put_in_force(put_in_force(None, OLD, NOW), NEW, NOW), OLD, LATER)
    assert not outdated(stands, OLD, LATER)
    assert outdated(stands, NEW, LATER)


def test_only_so_many_versions_are_remembered():
    stands = InForce("start", NOW)
    for number in range(300):
        stands = put_in_force(stands, file_of(spec(f"j{number}")), NOW)
    assert len(stands.replaced) == 100
