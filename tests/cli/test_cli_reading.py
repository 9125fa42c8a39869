"""Reading what people write: durations, moments, payloads, settings; and what is never written down."""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import click
import pytest

from duly import ConfigurationError, SchedulerConfig
from duly.cli.client import address_of
from duly.cli.programs import configured
from duly.cli.settings import Settings, Sourced, read_settings
from duly.cli.submit import read_payload
from duly.cli.text import full, line, lines, relative, short, span
from duly.model import iso
from duly.rules.durations import seconds_of
from duly.rules.redaction import redacted
from duly.rules.time_words import read_time

NOW = datetime(2027, 3, 15, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10m", 600),
        ("1h30m", 5400),
        ("90s", 90),
        ("500ms", 0.5),
        ("90", 90),
        ("0", 0),
        ("1.5h", 5400),
        (" 2D ", 172800),
        ("1w", 604800),
        ("1h 30m", 5400),
        ("2m500ms", 120.5),
        ("10 minutes", 600),
        ("1 hour 30 minutes", 5400),
        ("2 h 5 min", 7500),
        ("4.2 s", 4.2),
        ("320 ms", 0.32),
        ("3 Days", 259200),
        ("an hour", 3600),
        ("a minute", 60),
        ("1week", 604800),
    ],
)
def test_durations(text, seconds):
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "10x",
        "-5m",
        "1h-2m",
        "ten",
        "1e3",
        "10m!",
        "٣s",
        "nan",
        "inf",
        "9" * 400,
        "200000w",
        "5month",
        "1hr",
        "3 minute s",
    ],
)
def test_what_is_no_duration(text):
    with pytest.raises(ConfigurationError, match="invalid duration"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("now", "UTC", NOW),
        ("2027-03-15T02:30", "UTC", datetime(2027, 3, 15, 2, 30, tzinfo=UTC)),
        ("2027-03-15 02:30:05", "UTC", datetime(2027, 3, 15, 2, 30, 5, tzinfo=UTC)),
        ("2027-03-15", "UTC", datetime(2027, 3, 15, tzinfo=UTC)),
        ("2027-03-15T02:30Z", "America/New_York", datetime(2027, 3, 15, 2, 30, tzinfo=UTC)),
        ("2027-03-15T02:30+02:00", "America/New_York", datetime(2027, 3, 15, 0, 30, tzinfo=UTC)),
        ("2027-03-15T02:30", "America/New_York", datetime(2027, 3, 15, 6, 30, tzinfo=UTC)),
        ("03:00", "UTC", datetime(2027, 3, 15, 3, tzinfo=UTC)),
        ("3:00", "UTC", datetime(2027, 3, 15, 3, tzinfo=UTC)),
        ("03:00:09", "UTC", datetime(2027, 3, 15, 3, 0, 9, tzinfo=UTC)),
        ("today 14:30", "UTC", datetime(2027, 3, 15, 14, 30, tzinfo=UTC)),
        ("Yesterday 03:00", "UTC", datetime(2027, 3, 14, 3, tzinfo=UTC)),
        ("tomorrow 03:00", "UTC", datetime(2027, 3, 16, 3, tzinfo=UTC)),
        ("yesterday", "UTC", datetime(2027, 3, 14, tzinfo=UTC)),
        ("yesterday 03:00", "Asia/Tokyo", datetime(2027, 3, 13, 18, tzinfo=UTC)),
        # At 02:30 clocks went from 02:00 to 03:00, which was 07:00 UTC.
        ("2027-03-14T02:30", "America/New_York", datetime(2027, 3, 14, 7, tzinfo=UTC)),
        # 01:30 came twice; the first is meant.
        ("2027-11-07T01:30", "America/New_York", datetime(2027, 11, 7, 5, 30, tzinfo=UTC)),
        # Distances from now.
        ("10 minutes ago", "UTC", NOW - timedelta(minutes=10)),
        ("an hour ago", "UTC", NOW - timedelta(hours=1)),
        ("10 min ago", "Asia/Tokyo", NOW - timedelta(minutes=10)),
        ("90s ago", "UTC", NOW - timedelta(seconds=90)),
        ("2 h 5 min ago", "UTC", NOW - timedelta(hours=2, minutes=5)),
        ("3 days ago", "America/New_York", NOW - timedelta(days=3)),
        ("In 5 minutes", "UTC", NOW + timedelta(minutes=5)),
        ("in 14 h 45 min", "UTC", NOW + timedelta(hours=14, minutes=45)),
        ("in 1h30m", "UTC", NOW + timedelta(minutes=90)),
        ("in 2 weeks", "UTC", NOW + timedelta(days=14)),
        # The name of a zone behind a time is its zone, whichever is meant otherwise.
        ("today 14:30 UTC", "Asia/Tokyo", datetime(2027, 3, 15, 14, 30, tzinfo=UTC)),
        ("tomorrow 02:30 Europe/Berlin", "UTC", datetime(2027, 3, 16, 1, 30, tzinfo=UTC)),
        ("yesterday 02:30 Europe/Berlin", "Asia/Tokyo", datetime(2027, 3, 14, 1, 30, tzinfo=UTC)),
        ("yesterday Europe/Berlin", "UTC", datetime(2027, 3, 13, 23, tzinfo=UTC)),
        ("02:30 Asia/Tokyo", "UTC", datetime(2027, 3, 14, 17, 30, tzinfo=UTC)),
        ("2027-03-14T02:30 Asia/Tokyo", "UTC", datetime(2027, 3, 13, 17, 30, tzinfo=UTC)),
        ("2027-03-14 02:30 UTC", "Asia/Tokyo", datetime(2027, 3, 14, 2, 30, tzinfo=UTC)),
        ("2027-03-15 02:30:00 -03", "UTC", datetime(2027, 3, 15, 5, 30, tzinfo=UTC)),
        ("2027-03-15 02:30 +05:45", "UTC", datetime(2027, 3, 14, 20, 45, tzinfo=UTC)),
        # As lists print them: the day without its year, the weekday before the date, the abbreviation of the zone.
        ("11-16 01:30:00", "UTC", datetime(2027, 11, 16, 1, 30, tzinfo=UTC)),
        ("03-14 02:30 America/New_York", "UTC", datetime(2027, 3, 14, 7, tzinfo=UTC)),
        ("Sun 2027-03-14 03:00:00 EDT", "America/New_York", datetime(2027, 3, 14, 7, tzinfo=UTC)),
        ("Sun 2027-11-07 01:30:00 EDT", "America/New_York", datetime(2027, 11, 7, 5, 30, tzinfo=UTC)),
        ("Sun 2027-11-07 01:30:00 EST", "America/New_York", datetime(2027, 11, 7, 6, 30, tzinfo=UTC)),
        ("Mon 2027-03-15 02:30:00 -03", "America/Sao_Paulo", datetime(2027, 3, 15, 5, 30, tzinfo=UTC)),
        ("2027-03-15 02:30:00 CET", "UTC", datetime(2027, 3, 15, 1, 30, tzinfo=UTC)),
    ],
)
def test_moments(text, zone, expected):
    assert read_time(text).resolve(NOW, zone) == expected


@pytest.mark.parametrize("seconds", [0, 0.32, 4.2, 59, 60, 599, 3599, 3600, 7500, 86399, 90000, 172800, 9e6])
@pytest.mark.parametrize("sign", [1, -1])
def test_what_is_printed_as_a_time_is_read_as_that_time(seconds, sign):
    at = NOW + timedelta(seconds=sign * seconds)
    near = timedelta(seconds=max(1, 0.05 * seconds, 30 if seconds > 59 else 0, 43200 if seconds >= 172800 else 0))
    assert abs(read_time(relative(at, NOW)).resolve(NOW, "Asia/Tokyo") - at) <= near
    assert read_time(full(at)).resolve(NOW, "Asia/Tokyo") == at
    assert read_time(iso(at)).resolve(NOW, "Asia/Tokyo") == at
    assert read_time(short(at, NOW)).resolve(NOW, "UTC") == at.replace(microsecond=0)


@pytest.mark.parametrize("name", ["America/New_York", "Europe/Berlin", "America/Sao_Paulo", "Asia/Kathmandu", "UTC"])
def test_what_next_prints_as_a_local_time_is_read_as_that_time(name):
    """Every half hour through a year with two changes of clocks."""
    for at in (NOW + timedelta(minutes=30 * number) for number in range(2 * 24 * 365)):
        local = f"{at.astimezone(ZoneInfo(name)):%a %Y-%m-%d %H:%M:%S %Z}"
        assert read_time(local).resolve(NOW, name) == at


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected e.g."),
        ("soon", "expected e.g."),
        ("12", "expected e.g."),
        ("yesterday 3", "expected e.g."),
        ("2027-13-01", "expected e.g."),
        ("in", "expected e.g."),
        ("ago", "expected e.g."),
        ("25:00", "a time of day is 00:00 to 23:59:59"),
        ("yesterday 25:00", "a time of day is 00:00 to 23:59:59"),
        ("in 5", "write the unit too"),
        ("5 ago", "write the unit too"),
        ("5 fortnights ago", "invalid duration '5 fortnights'"),
        ("in 200000 weeks", "100 years at most"),
        ("tomorrow 02:30 Europe/Berln", "did you mean Europe/Berlin"),
        ("2027-03-14T02:30Z Europe/Berlin", "an offset and a time zone"),
        ("Mon 2027-03-14 03:00", "that day is a Sun"),
    ],
)
def test_what_is_no_moment(text, why):
    with pytest.raises(ConfigurationError, match=f"invalid time .*{re.escape(why)}"):
        read_time(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [("02-29 10:00", "the calendar has no such day"), ("2027-03-14 10:00 XYZ", "XYZ is not used in UTC at that time")],
)
def test_what_is_no_moment_in_a_year_or_a_zone(text, why):
    with pytest.raises(ConfigurationError, match=why):
        read_time(text).resolve(NOW, "UTC")


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31T23:59"])
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/New_York"])
def test_the_ends_of_the_calendar_do_no_harm(text, zone):
    try:
        assert read_time(text).resolve(NOW, zone).tzinfo is UTC
    except ConfigurationError as exc:
        assert "calendar" in str(exc)  # noqa: PT017


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), None),
        (("a=1", "b=true", "c=null"), {"a": 1, "b": True, "c": None}),
        (("a=text", "b=two words", "c="), {"a": "text", "b": "two words", "c": ""}),
        (("a=[1, 2]", 'b={"x": 1.5}', 'c="007"'), {"a": [1, 2], "b": {"x": 1.5}, "c": "007"}),
        (("url=https://x/?a=b",), {"url": "https://x/?a=b"}),
        (("a=NaN", "b=Infinity"), {"a": "NaN", "b": "Infinity"}),
        (("a=1", "a=2"), {"a": 2}),
    ],
)
def test_payload_words(words, expected):
    assert read_payload(words, None, "--payload") == expected


def test_payload_documents():
    assert read_payload((), '{"a": [1]}', "--payload") == {"a": [1]}
    assert read_payload((), "{}", "--payload") == {}


@pytest.mark.parametrize(
    ("words", "document", "message"),
    [
        (("a",), None, "expected key=value"),
        (("=1",), None, "expected key=value"),
        ((), "{", "not valid JSON"),
        ((), "[1]", "JSON object"),
        ((), '{"a": NaN}', "not valid JSON"),
        (("a=1",), "{}", "both given"),
    ],
)
def test_what_is_no_payload(words, document, message):
    with pytest.raises(click.UsageError, match=message):
        read_payload(words, document, "--payload")


def test_settings_come_from_the_file_and_the_environment_is_stronger(tmp_path):
    (tmp_path / "duly.toml").write_text(
        'url = "sqlite:///file.db"\napp = "shop:jobs"\nconcurrency = 7\nqueues = ["a", "b"]\nlog_level = "DEBUG"\n'
    )
    found = read_settings({}, tmp_path)
    assert (found.url, found.app, found.log_level) == ("sqlite:///file.db", "shop:jobs", "DEBUG")
    assert (found.field("max_concurrent"), found.field("queues")) == (7, ("a", "b"))
    environment = {
        "DULY_URL": "memory://",
        "DULY_APP": "",
        "LOG_LEVEL": "ERROR",
        "DULY_LOG_LEVEL": "WARNING",
        "LOG_FORMAT": "JSON",
        "WORKER_ID": "w1",
    }
    found = read_settings(environment, tmp_path)
    assert (found.url, found.app, found.log_level) == ("memory://", "shop:jobs", "WARNING")
    assert (found.log_format, found.field("node_id")) == ("JSON", "w1")


@pytest.mark.parametrize(
    ("environment", "store", "queue", "coordinator"),
    [
        ({"POSTGRES_DSN": "postgresql://h/db"}, "postgresql://h/db", None, None),
        ({"REDIS_URL": "localhost:6379"}, "redis://localhost:6379", None, None),
        ({"REDIS_URL": "rediss://h/1"}, "rediss://h/1", None, None),
        ({"REDIS_URL": "h:1", "REDIS_STREAM_NAME": "jobs"}, "redis://h:1", None, None),
        (
            {"POSTGRES_DSN": "postgresql://h/db", "REDIS_URL": "h:1", "ETCD_ENDPOINTS": "e1:2379, e2:2379"},
            "postgresql://h/db",
            "redis://h:1",
            "etcd://e1:2379,e2:2379",
        ),
        (
            {"POSTGRES_DSN": "postgresql://h/db", "ETCD_ENDPOINTS": "https://e1:2379/,https://e2:2379"},
            "postgresql://h/db",
            None,
            "etcds://e1:2379,e2:2379",
        ),
        (
            {"POSTGRES_DSN": "postgresql://h/db", "ETCD_ENDPOINTS": "etcds://u:p@e1,e2?ssl_ca=/ca"},
            "postgresql://h/db",
            None,
            "etcds://u:p@e1,e2?ssl_ca=/ca",
        ),
        (
            {
                "POSTGRES_DSN": "postgresql://h/db",
                "REDIS_URL": "redis://h/1?timeout=2",
                "REDIS_STREAM_NAME": "jobs",
                "REDIS_GROUP_NAME": "my workers",
            },
            "postgresql://h/db",
            "redis://h/1?timeout=2&stream=jobs&group=my%20workers",
            None,
        ),
        (
            {"POSTGRES_DSN": "postgresql://h/db", "REDIS_URL": "h:1", "DULY_COORDINATOR": "etcd://e"},
            "postgresql://h/db",
            "redis://h:1",
            "etcd://e",
        ),
        ({"POSTGRES_DSN": "postgresql://h/db", "REDIS_URL": "h:1", "DULY_URL": "memory://"}, "memory://", None, None),
        ({"DULY_STORE": "a://", "DULY_QUEUE": "b://", "DULY_COORDINATOR": "c://"}, "a://", "b://", "c://"),
    ],
)
def test_plain_variables_name_a_store_and_its_parts(tmp_path, environment, store, queue, coordinator):
    (tmp_path / "duly.toml").write_text('url = "sqlite:///file.db"')
    found = read_settings(environment, tmp_path)
    assert (found.store or found.url, found.queue, found.coordinator) == (store, queue, coordinator)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"ETCD_ENDPOINTS": "e1:2379"}, "set POSTGRES_DSN"),
        ({"POSTGRES_DSN": "host=h dbname=db"}, "POSTGRES_DSN is not a URL"),
        ({"POSTGRES_DSN": "postgresql://h", "ETCD_ENDPOINTS": "https://a,b"}, "https:// for some"),
    ],
)
def test_plain_variables_that_cannot_be_meant_are_refused(tmp_path, environment, message):
    with pytest.raises(ConfigurationError, match=message):
        read_settings(environment, tmp_path)


def test_labels_come_from_the_environment(tmp_path):
    assert read_settings({"DULY_LABELS": "gpu=yes, zone=a"}, tmp_path).field("labels") == {"gpu": "yes", "zone": "a"}
    for wrong in ("gpu", "=yes", "gpu="):
        with pytest.raises(ConfigurationError, match=r"DULY_LABELS: invalid label .*: expected NAME=VALUE"):
            read_settings({"DULY_LABELS": wrong}, tmp_path)


def test_no_file_no_settings(tmp_path):
    assert read_settings({}, tmp_path) == Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("concurency = 5", "unknown key 'concurency'; did you mean concurrency"),
        ("zzz = 5", "known keys are url, app, log_level"),
        ('concurrency = "many"', "concurrency='many': expected a whole number"),
        ("url = [", "duly.toml cannot be read"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, message):
    (tmp_path / "duly.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_settings({}, tmp_path)
    assert message in str(caught.value)


def test_flags_come_before_code_and_code_before_the_surroundings():
    given = {"max_concurrent": 7, "queues": ("file",), "node_id": "n1"}
    env = Settings(node={name: Sourced(value, "duly.toml") for name, value in given.items()})
    silent = configured(SchedulerConfig(), {}, env)
    assert (silent.max_concurrent, silent.queues, silent.node_id) == (7, ("file",), "n1")
    spoken = configured(SchedulerConfig(max_concurrent=3, queues=("code",), node_id="n2"), {}, env)
    assert (spoken.max_concurrent, spoken.queues, spoken.node_id) == (3, ("code",), "n2")
    flagged = configured(spoken, {"max_concurrent": 5, "queues": ("flag",), "node_id": None}, env)
    assert (flagged.max_concurrent, flagged.queues, flagged.node_id) == (5, ("flag",), "n2")
    with pytest.raises(ConfigurationError, match="node_id"):
        configured(SchedulerConfig(), {"node_id": "no good"}, Settings())


def test_which_store_is_meant(monkeypatch, tmp_path):
    assert address_of(None).store == "sqlite:///duly.db"
    (tmp_path / "duly.toml").write_text('url = "sqlite:///file.db"')
    assert address_of(None).store == "sqlite:///file.db"
    monkeypatch.setenv("DULY_URL", "sqlite:///variable.db")
    assert address_of(None).store == "sqlite:///variable.db"
    assert address_of("sqlite:///flag.db").store == "sqlite:///flag.db"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://me:secret@host:6379/0", "redis://***@host:6379/0"),
        ("postgresql://me:p@ss@host/db", "postgresql://***@host/db"),
        ("cannot reach redis://:s@h/1 now", "cannot reach redis://***@h/1 now"),
        ("postgresql://h/db?user=a&password=b", "postgresql://h/db?user=a&password=***"),
        ("sqlite:////home/me@work/duly.db", "sqlite:////home/me@work/duly.db"),
        ("mail ada@example.org", "mail ada@example.org"),
    ],
)
def test_credentials_are_never_shown(text, shown):
    assert redacted(text) == shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.00032, "0.32 ms"),
        (0.32, "320 ms"),
        (1, "1 s"),
        (4.2, "4.2 s"),
        (9.97, "10 s"),
        (59, "59 s"),
        (60, "1 min"),
        (185, "3 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (3 * 86400, "3 days"),
        (-1, "0 ms"),
    ],
)
def test_spans(seconds, text):
    assert span(seconds) == text


def test_instants_in_words():
    later = datetime(2027, 3, 15, 12, 3, tzinfo=UTC)
    assert relative(later, NOW) == "in 3 min"
    assert relative(NOW, later) == "3 min ago"
    assert relative(NOW, NOW) == "now"
    assert short(later, NOW) == "12:03:00"
    assert short(datetime(2027, 4, 1, tzinfo=UTC), NOW) == "04-01 00:00:00"
    assert short(datetime(2028, 4, 1, tzinfo=UTC), NOW) == "2028-04-01 00:00:00"
    assert full(datetime(2027, 3, 15, 12, 0, 0, 500_000, tzinfo=UTC)) == "2027-03-15 12:00:00.5Z"


def test_foreign_texts_are_harmless():
    assert line("a\nb\t c\x1b[31m") == "a b c�[31m"
    assert line("abcdef", 4) == "abc…"
    assert lines("x\ty\n\x07z") == ["x   y", "�z"]
