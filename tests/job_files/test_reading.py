"""Files of jobs: what they may say, and that all that is wrong is told at once with its place."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from duly import ConfigurationError, Confinement
from duly.job_files import JobFileError, read_file, read_text
from duly.model import CommandSpec, CronSpec, Delivery, EverySpec, Misfire, OnceSpec, Overlap
from duly.model.job import COMMAND_HANDLER
from duly.rules.schedules import Cron, Every, Once, from_spec

EXAMPLE = Path(__file__).parents[2] / "examples" / "jobs.toml"


def only(text, head='name = "ops"\n'):
    [spec] = read_text(f"{head}{text}").jobs
    return spec


def problems(text):
    with pytest.raises(JobFileError) as caught:
        read_text(text)
    return [str(problem) for problem in caught.value.problems]


def problem(text):
    [found] = problems(f'name = "ops"\n{text}')
    return found


def test_a_job_says_everything():
    spec = only("""
[jobs."shop.report"]
description = "Build it."
cron = "30 2 * * *"
timezone = "Europe/Berlin"
dst = "both"
jitter = "1m30s"
start_at = 2027-01-01T00:00:00
end_at = "2028-01-01T00:00:00Z"
max_runs = 7
command = ["report", "--all"]
cwd = "/srv"
environment = { B = "2", A = "1" }
pass_environment = ["HOME"]
timeout = "1h30m"
retry = { max_retries = 4, strategy = "linear", initial_interval = "10s", max_interval = 60, jitter = 0.1 }
delivery = "at_least_once"
overlap = "queue"
misfire = "all"
on_store_loss = "stop"
queue = "night"
priority = 3
tags = ["a", "b"]
selector = { gpu = "yes" }
""")
    assert spec.name == "shop.report"
    assert spec.handler == COMMAND_HANDLER
    assert spec.schedule == CronSpec(
        "30 2 * * *",
        "Europe/Berlin",
        spec.schedule.dst,
        datetime(2026, 12, 31, 23, tzinfo=UTC),
        datetime(2028, 1, 1, tzinfo=UTC),
        timedelta(seconds=90),
    )
    assert spec.schedule.dst.value == "both"
    assert spec.command == CommandSpec(
        ("report", "--all"), cwd="/srv", environment={"A": "1", "B": "2"}, pass_environment=("HOME",)
    )
    assert spec.policy.timeout == 5400
    assert (spec.policy.retry.max_retries, spec.policy.retry.strategy, spec.policy.retry.max_interval) == (
        4,
        "linear",
        60,
    )
    assert (spec.overlap, spec.misfire, spec.queue, spec.priority) == (Overlap.QUEUE, Misfire.ALL, "night", 3)
    assert (spec.max_runs, spec.tags, spec.description) == (7, ("a", "b"), "Build it.")
    assert spec.selector == {"gpu": "yes"}


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ('every = "10m"', EverySpec(timedelta(minutes=10))),
        ("every = 2.5", EverySpec(timedelta(seconds=2.5))),
        ("at = 2027-01-01T00:00:00+01:00", OnceSpec(datetime(2026, 12, 31, 23, tzinfo=UTC))),
        ("at = 2027-03-28 02:30:00", OnceSpec(datetime(2027, 3, 28, 1, tzinfo=UTC))),  # clocks skip it: the gap's end
        ("", None),
    ],
)
def test_schedules_are_written_in_three_ways_or_not_at_all(text, schedule):
    head = 'name = "ops"\ntimezone = "Europe/Berlin"\n'
    assert only(f'[jobs.x]\ncommand = ["true"]\n{text}\n', head).schedule == schedule


def test_the_zone_of_the_file_is_that_of_its_jobs():
    spec = only('[jobs.x]\ncommand = ["true"]\ncron = "0 3 * * *"\n', 'name = "ops"\ntimezone = "Asia/Tokyo"\n')
    assert spec.schedule.timezone == "Asia/Tokyo"


def test_defaults_are_for_those_who_do_not_say_otherwise():
    spec = only("""
[defaults]
timeout = "1m"
queue = "night"
delivery = "at_most_once"
environment = { A = "1", B = "1" }
[jobs.x]
command = ["true"]
queue = "day"
environment = { B = "2" }
""")
    assert (spec.policy.timeout, spec.queue, spec.policy.delivery) == (60, "day", Delivery.AT_MOST_ONCE)
    assert spec.command.environment == {"A": "1", "B": "2"}


def test_a_text_for_a_shell_stays_one_text():
    spec = only('[jobs.x]\ncommand = "a | b > c"\nshell = true\n')
    assert spec.command == CommandSpec(("a | b > c",), shell=True)


def test_settings_of_the_node_and_the_store_are_read():
    file = read_text(
        'name = "ops"\nurl = "redis://cache"\nnamespace = "ops"\nmax_concurrent = 3\nqueues = ["a"]\n'
        'shutdown_timeout = "1m"\nmisfire_grace = 5\n'
    )
    assert file.url == "redis://cache"
    assert file.settings == {
        "namespace": "ops",
        "max_concurrent": 3,
        "queues": ["a"],
        "shutdown_timeout": 60,
        "misfire_grace": 5,
    }
    assert file.jobs == ()


def test_comments_and_order_do_not_make_another_version():
    one = read_text('name = "a"\n[jobs.x]\ncommand = ["x"]\n[jobs.y]\ncommand = ["y"]\n')
    two = read_text('# hi\nname = "a"\n[jobs.y]\ncommand = ["y"]\n[jobs.x]\ncommand = ["x"]\n')
    other = read_text('name = "a"\n[jobs.x]\ncommand = ["x"]\n')
    assert one.digest() == two.digest() != other.digest()


def test_a_mark_of_byte_order_and_carriage_returns_are_fine(tmp_path):
    path = tmp_path / "jobs.toml"
    path.write_bytes(b'\xef\xbb\xbfname = "ops"\r\n[jobs.x]\r\ncommand = ["true"]\r\n')
    assert [spec.name for spec in read_file(str(path)).jobs] == ["x"]
    path.write_bytes(b'\xef\xbb\xbfname = "ops"\r\n[jobs.x]\r\ncommand = 3\r\n')
    with pytest.raises(JobFileError, match=r"jobs\.toml:3:11: job x, command:"):
        read_file(str(path))


def test_the_example_is_in_order():
    file = read_file(str(EXAMPLE))
    assert file.name == "house"
    assert {"disk-usage", "heartbeat", "reindex"} <= {spec.name for spec in file.jobs}


JOB = '[jobs.x]\ncommand = ["true"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_concurent = 3", ":2:1: max_concurent: unknown key 'max_concurent'; did you mean max_concurrent?"),
        ("max_concurrent = 0", ":2:18: max_concurrent: max_concurrent=0: expected a whole number from 1"),
        ('namespace = "Ops"', ":2:13: namespace: namespace='Ops'"),
        ('timezone = "Europe/Berlni"', ":2:12: timezone:"),
        ('shutdown_timeout = "soon"', ":2:20: shutdown_timeout: invalid duration 'soon'"),
        ("jobs = 3", ":2:1: jobs: must be a table: [jobs.NAME]"),
        ("[job.x]\na = 1", ":2:2: job: unknown table 'job'; jobs are written as [jobs.job]"),
        ("[jobs]\nx = 3", ":3:1: job x: a job is a table: [jobs.x]"),
        ('[jobs."9x"]\ncommand = ["true"]', ":2:7: job 9x: invalid name '9x'"),
        ("[jobs.x]\ncron = '* * * * *'", ":2:7: job x: the command is missing"),
        (f"{JOB}cron = '* 25 * * *'", ":4:8: job x, cron: cron expression '* 25 * * *': 25 is outside 0-23"),
        (f"{JOB}cron = '0 0 30 2 *'", ":4:8: job x, cron:"),
        (f"{JOB}corn = '* * * * *'", ":4:1: job x, corn: unknown key 'corn'; did you mean cron?"),
        (f"{JOB}schedule = '* * * * *'", ":4:1: job x, schedule: unknown key 'schedule'; did you mean cron?"),
        (f"{JOB}env = {{}}", "did you mean environment?"),
        (f"{JOB}every = '10x'", ":4:9: job x, every: invalid duration '10x'"),
        (f"{JOB}every = true", ":4:9: job x, every: every = true must be a duration"),
        (f"{JOB}every = 0", ":4:9: job x, every:"),
        (f"{JOB}at = 2027-01-01", ":4:6: job x, at: at = 2027-01-01 must be a date and time"),
        (f"{JOB}at = 'soon'", ":4:6: job x, at: invalid at 'soon'"),
        (f"{JOB}cron = '* * * * *'\nevery = 3", ":5:1: job x, every: cron and every: a job has one schedule"),
        (f"{JOB}end_at = 2027-01-01T00:00:00Z", ":4:1: job x, end_at: end_at without cron, every or at"),
        ('[jobs.x]\ncommand = "a b"', ':3:1: job x, command: it is a string: write a list, ["a", "b"], or add'),
        (f"{JOB}shell = true", ":3:1: job x, command: it is a list: with shell = true"),
        ("[jobs.x]\ncommand = []", ":3:11: job x, command: command is empty"),
        ("[jobs.x]\ncommand = ['a',\n  3]", ":4:3: job x, command[1]: command contains 3"),
        ("[jobs.x]\ncommand = ['a', \"\\u0000\"]", ":3:17: job x, command[1]:"),
        (f"{JOB}environment = {{ A = 1 }}", ":4:21: job x, environment.A: A must be a string, in quotes"),
        (
            f'{JOB}environment = {{ "A=B" = "1" }}',
            "job x, environment.A=B: 'A=B' cannot be the name of an environment variable",
        ),
        (f"{JOB}environment = 'A=1'", "job x, environment: environment must be a table of strings"),
        (f"{JOB}timeout = -1", ":4:11: job x, timeout: timeout=-1.0: expected a positive number of seconds"),
        (f"{JOB}retry = -1", ":4:9: job x, retry:"),
        (f"{JOB}retry = {{ max_retrys = 1 }}", ":4:24: job x, retry.max_retrys: unknown key 'max_retrys'; did"),
        (f"{JOB}retry = {{ strategy = 'wild' }}", "job x, retry.strategy: strategy='wild': one of"),
        (f"{JOB}priority = 10", ":4:12: job x, priority: priority=10: expected a whole number from 0 to 9"),
        (f"{JOB}queue = 'no way'", ":4:9: job x, queue: queue='no way': expected"),
        (f"{JOB}overlap = 'maybe'", ":4:11: job x, overlap: overlap='maybe' is not one of skip, queue, replace, allow"),
        (f"{JOB}delivery = 'exactly_once'", ":4:12: job x, delivery: exactly_once needs a transaction"),
        (f"{JOB}tags = ['a', 1]", ":4:14: job x, tags[1]:"),
        (f"{JOB}description = 3", ":4:15: job x, description: description = 3 must be a string"),
        (f"{JOB}delivery = 'at_most_once'\nretry = 2", ":2:7: job x: is at_most_once and has retry=2"),
        ("[jobs.a.b]\ncommand = ['x']\n[jobs.a]\ncommand = ['y']", ":2:9: job a, b: unknown table; quote a job's name"),
        ("[defaults]\ncron = '* * * * *'", ":3:1: defaults.cron: unknown key 'cron'"),
        ("[defaults]\ntimeout = 'x'\n" + JOB, ":3:11: defaults.timeout: invalid duration 'x'"),
        ("a = [1,\n", "not TOML"),
        ("a = 1\na = 2", ":3:"),
        (f"{JOB}{JOB}", "not TOML"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_the_way_out(text, said):
    assert said in problem(text)


def test_all_that_is_wrong_is_told_at_once_in_the_order_of_the_file():
    found = problems("""
[jobs.b]
comand = ["x"]
cron = "61 * * * *"
every = 5
[jobs.a]
command = "one two"
priority = 11
[defaults]
queue = 3
""")
    places = [tuple(map(int, text.split(":")[1:3])) for text in found]
    assert places == sorted(places)
    assert len(found) == 8, found
    assert "the file has no name" in found[0]


def test_a_command_may_be_confined():
    spec = only("""
[jobs.x]
command = ["true"]
confine = { memory = "64M", cpu_seconds = 5, open_files = 32, user = "nobody", umask = 0o077, private_tmp = true }
""")
    assert spec.command.confine == Confinement(
        memory=64 << 20, cpu_seconds=5, open_files=32, user="nobody", umask=0o077, private_tmp=True
    )
    plain = only('[jobs.x]\ncommand = ["true"]')
    assert plain.command.confine is None
    assert plain.digest() != spec.digest()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('{ memory = "much" }', "memory='much': expected a number of bytes"),
        ("{ cpu_seconds = 0 }", "cpu_seconds=0: expected a number of seconds"),
        ("{ memmory = 1 }", "memmory"),
        ('"64M"', "confine must be a table"),
    ],
)
def test_an_invalid_confinement_is_named_with_its_place(value, words):
    found = problem(f'[jobs.x]\ncommand = ["true"]\nconfine = {value}\n')
    assert words in found
    assert "4:" in found


def test_values_of_the_environment_are_never_told():
    text = 'name = "ops"\n[jobs.x]\ncommand = ["true"]\nenvironment = { TOKEN = "s3cret", OTHER = 3 }\ntimeout = "x"\n'
    assert "s3cret" not in "".join(problems(text))
    spec = only('[jobs.x]\ncommand = ["true"]\nenvironment = { TOKEN = "s3cret" }\n')
    assert "s3cret" not in repr(spec)
    assert "TOKEN" in repr(spec)


def test_what_is_not_utf8_is_told_with_its_line(tmp_path):
    path = tmp_path / "jobs.toml"
    path.write_bytes(b'name = "ops"\ntimezone = "\xff"\n')
    with pytest.raises(JobFileError, match=r"jobs\.toml:2:13: this is not valid UTF-8"):
        read_file(str(path))


@pytest.mark.parametrize("depth", [330, 490, 100_000])
def test_what_lies_too_deep_is_told(depth):
    assert problems(f'name = "ops"\nx = {"[" * depth}{"]" * depth}\n')


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_file(str(tmp_path / "jobs.toml"))


@pytest.mark.parametrize(
    ("line", "schedule"),
    [
        ('cron = "at 02:30 on Monday to Friday"', Cron("30 2 * * 1-5", timezone="Asia/Tokyo")),
        ('every = "every 15 minutes"', Every(minutes=15)),
        ('every = "every hour"', Every(hours=1)),
        ('at = "2090-01-01 00:00 Europe/Berlin"', Once(datetime(2089, 12, 31, 23, tzinfo=UTC))),
        ('at = "Sun 2090-01-01 09:00:00"', Once(datetime(2090, 1, 1, tzinfo=UTC))),
    ],
)
def test_schedules_and_times_may_be_words(tmp_path, line, schedule):
    path = tmp_path / "jobs.toml"
    path.write_text(f'name = "ops"\ntimezone = "Asia/Tokyo"\n{JOB}{line}\n')
    [spec] = read_file(str(path)).jobs
    assert from_spec(spec.schedule) == schedule


@pytest.mark.parametrize("words", ["tomorrow 02:30", "in 5 minutes", "now", "03:00", "12-24 18:00 UTC"])
def test_a_time_that_depends_on_when_the_file_is_read_is_refused(tmp_path, words):
    path = tmp_path / "jobs.toml"
    path.write_text(f'name = "ops"\n{JOB}at = "{words}"\n')
    with pytest.raises(JobFileError, match="means another time whenever the file is read"):
        read_file(str(path))
