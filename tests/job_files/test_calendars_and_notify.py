"""Calendars, unions and targets of notifications in job files."""

from datetime import UTC, date, datetime

import pytest

from duly.job_files import JobFileError, read_file, read_text
from duly.model.job import ExcludingSpec, UnionSpec
from duly.rules.schedules import from_spec

HEAD = 'name = "ops"\ntimezone = "Europe/Berlin"\n'
JOB = '[jobs.x]\ncommand = ["true"]\n'
NOW = datetime(2026, 12, 22, tzinfo=UTC)


def only(text):
    [spec] = read_text(HEAD + text).jobs
    return spec


def problems(text):
    with pytest.raises(JobFileError) as caught:
        read_text(HEAD + text)
    return [str(each) for each in caught.value.problems]


def test_calendars_by_name_and_inline():
    spec = only(
        '[calendars.shop]\ndates = [2026-12-24, "2026-12-31/2027-01-01"]\n'
        f'{JOB}cron = "0 9 * * *"\n'
        'exclude = ["shop", { weekends = true }, { hours = ["22:00-06:00"], on = ["fri"] }]\n'
    )
    rule = spec.schedule.rule
    assert isinstance(rule, ExcludingSpec)
    assert [each.name for each in rule.calendars] == ["shop", "weekends", "hours"]
    assert {each.timezone for each in rule.calendars} == {"Europe/Berlin"}
    assert rule.calendars[0].days[1].last == date(2027, 1, 1)
    found = [f"{due:%a %d}" for due in from_spec(spec.schedule).preview(5, after=NOW)]
    assert found == ["Tue 22", "Wed 23", "Fri 25", "Mon 28", "Tue 29"]


def test_several_expressions_are_a_union():
    spec = only(f'{JOB}cron = ["0 9 * * 1-5", "0 12 * * 6"]\n')
    assert isinstance(spec.schedule.rule, UnionSpec)
    assert spec.schedule.kind == ("at 09:00 on Monday to Friday, Europe/Berlin; or at 12:00 on Saturday, Europe/Berlin")


def test_a_default_calendar_is_for_all_jobs_with_a_schedule():
    text = f'[defaults]\nexclude = [{{ weekends = true }}]\n{JOB}every = "1h"\n[jobs.y]\ncommand = ["true"]\n'
    x, y = read_text(HEAD + text).jobs
    assert isinstance(x.schedule.rule, ExcludingSpec)
    assert y.schedule is None


def test_an_ical_file_is_beside_the_job_file(tmp_path):
    (tmp_path / "closed.ics").write_text(
        "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\nBEGIN:VEVENT\nUID:1\nDTSTAMP:20260101T000000Z\n"
        "DTSTART;VALUE=DATE:20361224\nSUMMARY:Eve\nEND:VEVENT\nEND:VCALENDAR\n"
    )
    path = tmp_path / "jobs.toml"
    path.write_text(f'{HEAD}[calendars.closed]\nical = "closed.ics"\n{JOB}every = "1h"\nexclude = ["closed"]\n')
    [spec] = read_file(str(path)).jobs
    [calendar] = spec.schedule.rule.calendars
    assert [(span.first, span.label) for span in calendar.days] == [(date(2036, 12, 24), "Eve")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f'{JOB}every = "1h"\nexclude = ["shop"]\n',
            "6:1: job x, exclude: unknown calendar 'shop'; add a table [calendars.shop]",
        ),
        (f'{JOB}every = "1h"\nexclude = "shop"\n', "exclude = 'shop' must be a list"),
        (f'{JOB}every = "1h"\nexclude = [7]\n', "must be a table such as { weekends = true }"),
        (f'{JOB}every = "1h"\nexclude = [{{ ical = "x.ics" }}]\n', "needs a table of its own: [calendars.NAME]"),
        (f'{JOB}every = "1h"\nexclude = [{{ weekend = true }}]\n', "give exactly one of weekends"),
        ('[calendars.a]\ndates = ["x"]\n', "3:12: calendars.a: 'x' is not a date"),
        ("[calendars]\na = 7\n", "must be a table"),
        ('[calendars.a]\nical = "missing.ics"\n', "cannot be read: No such file"),
        (f'{JOB}cron = "0 9 * * 6"\nexclude = [{{ weekends = true }}]\n', "never runs"),
        (f"{JOB}cron = []\n", "cron is an empty list"),
        (f'{JOB}cron = ["0 9 * * *", "0 25 * * *"]\n', "25 is outside 0-23"),
        (f'{JOB}notify = "ops"\n', "expected a list of names of targets"),
        (f'{JOB}expect_every = "1s"\n', "from a minute to a year"),
        ('[notify.ops]\nwebhook = "ftp://x"\n', "notify.ops: url: expected an http or https address"),
        ('[notify.ops]\nsecret = "x"\n', "expected a table with one of webhook, mail and command"),
        ("notify = 3\n", "must be a table: [notify.NAME]"),
    ],
)
def test_problems_have_their_line(text, message):
    found = problems(text)
    assert any(message in each for each in found), found


def test_targets_and_jobs_that_use_them():
    file = read_text(
        f'{HEAD}notify_wait = "30s"\nlate_after = "2m"\n'
        '[notify.ops]\nwebhook_env = "NOT_SET"\nsecret_file = "not/there"\n'
        f'{JOB}every = "1h"\nnotify = ["ops"]\nexpect_every = "25h"\n[jobs.y]\ncommand = ["true"]\nnotify = false\n'
    )
    assert file.settings == {"timezone": "Europe/Berlin", "notify_wait": 30.0, "late_after": 120.0}
    assert list(file.notify) == ["ops"]
    assert [(spec.notify, spec.expect_every) for spec in file.jobs] == [(("ops",), 90_000.0), ((), None)]
