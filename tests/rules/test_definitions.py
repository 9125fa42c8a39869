"""Versions of definitions: what is kept, and what is said about it."""

from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from duly.model import CronSpec, CustomSpec, EverySpec, JobSpec, Origin, Overlap
from duly.model.job import Defined
from duly.rules import job_changes
from duly.rules.definitions import past, revisions, version_at, versions
from duly.rules.schedules import Every

NOW = datetime(2027, 1, 1, tzinfo=UTC)
SPEC = JobSpec(name="report", handler="report", schedule=EverySpec(timedelta(hours=1)))
HOURLY = Every(hours=1)


def at(seconds):
    return NOW + timedelta(seconds=seconds)


def story(*steps):
    """A record and its log after these definitions, each by another person; None pauses and resumes the job."""
    record = job_changes.create("0u", SPEC, HOURLY, Origin.API, NOW, None, "ada").record
    log = []
    for number, spec in enumerate(steps, 1):
        if spec is None:
            record = job_changes.pause(record, at(number), "").record
            record = job_changes.resume(record, HOURLY, at(number)).record
            continue
        change = job_changes.deploy(record, spec, HOURLY, at(number), None, f"user {number}")
        log.append(change.replaces)
        record = change.record
    return record, log


def test_a_new_job_has_one_version():
    record, log = story()
    [only] = revisions(versions(record, log))
    assert (only.revision, only.at, only.by, only.current, only.first) == (1, NOW, "ada", True, True)
    assert only.words() == ("created",)


def test_each_version_says_who_when_and_what():
    record, log = story(replace(SPEC, priority=3), replace(SPEC, priority=3, queue="mail"))
    found = revisions(versions(record, log))
    assert [(each.revision, each.by, each.at) for each in found] == [
        (3, "user 2", at(2)),
        (2, "user 1", at(1)),
        (1, "ada", NOW),
    ]
    assert [each.words() for each in found] == [("queue: default → mail",), ("priority: 0 → 3",), ("created",)]
    assert [each.current for each in found] == [True, False, False]


def test_a_pause_is_not_a_version_and_keeps_who_defined_the_job():
    record, log = story(None, replace(SPEC, priority=3), None)
    found = revisions(versions(record, log))
    assert (record.revision, [each.revision for each in found]) == (6, [4, 1])
    assert [each.by for each in found] == ["user 2", "ada"]


def test_a_record_of_010_says_what_it_knows():
    record, _ = story()
    old = replace(record, defined=None, revision=7, updated_at=at(9))
    change = job_changes.deploy(old, replace(SPEC, priority=3), HOURLY, at(20), None, "bob")
    found = revisions(versions(change.record, [change.replaces]))
    assert [(each.revision, each.by, each.at) for each in found] == [(8, "bob", at(20)), (7, None, at(9))]
    assert found[-1].words() == ("earlier versions are not kept",)


def test_what_cannot_be_read_is_left_out():
    record, log = story(replace(SPEC, priority=3))
    for damaged in (b"", b"{", b'"x"', b"\xff\xfe", msgspec.json.encode({"revision": "one"})):
        assert [each.revision for each in versions(record, [damaged, *log])] == [2, 1]


def test_versions_of_another_life_of_the_name_are_left_out():
    _, log = story(*[replace(SPEC, priority=priority) for priority in (1, 2, 3)])
    record = job_changes.create("0v", SPEC, HOURLY, Origin.API, at(99), None).record
    assert [each.revision for each in versions(record, log)] == [1]
    change = job_changes.deploy(record, replace(SPEC, queue="mail"), HOURLY, at(100), None)
    assert [each.revision for each in versions(change.record, [*log, change.replaces])] == [2, 1]


def test_a_restored_job_continues_its_history():
    record, log = story(replace(SPEC, priority=3))
    tombstone = job_changes.remove(record, at(50)).record
    change = job_changes.restore("0w", tombstone, SPEC, HOURLY, at(60), at(60), "node b")
    newest, *rest = revisions(versions(change.record, [*log, change.replaces]))
    assert (newest.revision, newest.by, newest.restored) == (4, "node b", True)
    assert newest.words() == ("restored after it was removed", "priority: 3 → 0")
    assert [each.revision for each in rest] == [2, 1]


def test_a_damaged_definition_is_not_kept():
    record, _ = story()
    assert past(replace(record, damage="unreadable")) is None


def test_a_revision_means_the_definition_that_was_in_force_then():
    known = versions(*story(None, replace(SPEC, priority=3), replace(SPEC, priority=5)))
    assert [each.revision for each in known] == [5, 4, 1]
    for asked, meant in ((None, 4), (5, 5), (4, 4), (3, 1), (2, 1), (1, 1), (6, None), (99, None)):
        found = version_at(known, asked)
        assert (None if found is None else found.revision) == meant
    assert version_at(known[:1], None) is None
    assert version_at(known[:2], 3) is None


def test_schedules_in_code_and_long_payloads_are_said_in_words():
    code = replace(SPEC, schedule=CustomSpec("shop.Tides"), payload=b'{"text":"' + b"x" * 5000 + b'"}')
    record, log = story(code, replace(SPEC, schedule=CronSpec("30 2 * * *", "Europe/Berlin"), overlap=Overlap.QUEUE))
    newest, middle, _ = revisions(versions(record, log))
    assert newest.words()[0] == "schedule: by shop.Tides, in code → at 02:30 every day, Europe/Berlin"
    assert "overlap: – → queue" in newest.words()
    assert all(len(text) < 500 for each in (newest, middle) for text in each.words())


def test_names_of_people_are_made_storable():
    record, _ = story()
    change = job_changes.deploy(record, replace(SPEC, priority=1), HOURLY, at(1), None, "a\ud800\x00" + "b" * 9999)
    assert isinstance(change.record.defined, Defined)
    assert len(change.record.defined.by) < 300
    msgspec.json.encode(change.record)
