"""Log lines about runs, outages and repeated warnings: what they say, and that they are not too many."""

import asyncio
import io
import json
import logging
import re
from datetime import UTC, datetime

import pytest

from duly import RetryPolicy, RunFailed, Scheduler
from duly.model import Failure, Lease, OutcomeKind, RetrySpec, Run, RunPolicy, State, short_id
from duly.model import event as events
from duly.observe import EventLog, JsonFormatter, RunFields
from duly.observe.logs import TextFormatter
from duly.observe.run_lines import MOST_LINES

DUE = datetime(2027, 1, 1, 12, 0, tzinfo=UTC)
STARTED = datetime(2027, 1, 1, 12, 0, 0, 2000, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(record.levelname, record.getMessage()) for record in self.records]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def kept():
    return Kept()


def logger_of(kept: Kept, level: int = logging.INFO) -> logging.Logger:
    logger = logging.Logger("shop", level)  # noqa: LOG001  # not shared with other tests
    logger.addHandler(kept)
    return logger


@pytest.fixture
def log(kept, clock):
    return EventLog(logger_of(kept), clock)


def run_of(number: int = 0, job: str = "mail", **fields) -> Run:
    policy = RunPolicy(retry=RetrySpec(max_retries=3))
    base = {"id": f"{number:026x}", "job": job, "handler": job, "due": DUE, "ready_at": DUE, "started_at": STARTED}
    return Run(**base | {"policy": policy, "node": "n1"} | fields)


def completed(number: int = 0) -> events.RunEnded:
    return events.RunEnded(run_of(number), OutcomeKind.SUCCEEDED, State.COMPLETED, 0.031)


def failed(number: int = 0, job: str = "mail", **fields) -> events.RunEnded:
    failure = Failure("OSError", "refused", TRACE)
    return events.RunEnded(run_of(number, job), OutcomeKind.FAILED, State.PENDING, 0.5, failure, DUE)


TRACE = (
    "Traceback (most recent call last):\n"
    '  File "/srv/shop/jobs.py", line 3, in work\n    call()\n'
    '  File "/srv/venv/lib/python3.13/site-packages/httpx/_client.py", line 9, in send\n    raise exc\n'
    "OSError: refused"
)


@pytest.mark.parametrize(
    ("run_id", "short"),
    [
        ("06604e5b8c0bc237082cb29da6", "082cb29da6"[-8:]),
        ("06604e5ab99206348e41062615-20261116T104520.000000", "2615-1116T104520"),
        ("06604e5ab99206348e41062615-20261116T104520.250000", "2615-1116T104520.25"),
        ("0-x", "0-x"),
        ("", ""),
    ],
)
def test_short_ids(run_id, short):
    assert short_id(run_id) == short


def test_a_completed_run_is_one_line_with_duration_and_lateness(log, kept):
    log(completed(0xABCDEF12))
    assert kept.told == [("INFO", "mail 0abcdef12: completed in 31 ms, 2 ms late")]
    record = kept.records[0]
    assert (record.run_id, record.outcome, record.state) == (f"{0xABCDEF12:026x}", "succeeded", "completed")
    assert (record.seconds, record.late, record.queue) == (0.031, 0.002, "default")


def test_a_failed_attempt_says_which_of_how_many_and_shows_the_users_frames(log, kept):
    log(failed(1))
    [(level, text)] = kept.told
    assert level == "WARNING"
    first, *trace = text.splitlines()
    assert first.startswith("mail 00000001: attempt 1 of 4 failed after 500 ms: OSError: refused; next attempt at ")
    assert '      File "/srv/shop/jobs.py", line 3, in work' in trace
    assert "      … 1 frame in httpx" in trace
    assert "_client.py" not in text
    assert kept.records[0].traceback == TRACE


def test_at_debug_the_traceback_is_complete(kept, clock):
    EventLog(logger_of(kept, logging.DEBUG), clock)(failed(1))
    assert "_client.py" in kept.told[0][1]


def test_the_last_attempt_is_an_error(log, kept):
    run = run_of(1, failures=3)
    log(events.RunEnded(run, OutcomeKind.TIMED_OUT, State.FAILED, 0.5, Failure("TimeoutError", "too long")))
    assert kept.told == [
        ("ERROR", "mail 00000001: failed, attempt 4 of 4 timed out after 500 ms: TimeoutError: too long")
    ]


# --- many runs


def settle(log: EventLog, count: int, start: int = 0) -> int:
    """A batch, as the settler reports it; how many events it had to create."""
    log(events.RunsSettled(count, 0.001))
    if not log.wants(events.RunEnded):
        return 0
    for number in range(count):
        log(completed(start + number))
    return count


def test_above_a_rate_completed_runs_are_counted_without_being_reported(log, kept, clock):
    assert settle(log, 500) == 500
    assert [settle(log, 500) for _ in range(20)] == [0] * 20
    assert len(kept.told) == MOST_LINES
    clock.now += 1.0
    settle(log, 1)
    summary, last = kept.told[MOST_LINES:]
    assert summary[1].startswith(f"{21 * 500 - MOST_LINES} more runs completed within 1 s")
    assert last[1] == "mail 00000000: completed in 31 ms, 2 ms late"


def test_below_that_rate_nothing_is_left_out(log, kept, clock):
    for number in range(10):
        settle(log, MOST_LINES, number)
        clock.now += 1.0
    assert len(kept.told) == 10 * MOST_LINES
    assert not [text for _, text in kept.told if "more runs" in text]


def test_failures_have_a_limit_of_their_own_and_the_summary_names_the_jobs(log, kept, clock):
    log(events.RunsSettled(150, 0.001))
    for number in range(150):
        log(failed(number, "mail" if number % 2 else "bill"))
    settle(log, 50)
    clock.now += 1.0
    log(events.RunsSettled(0, 0.0))
    levels = [level for level, _ in kept.told]
    assert levels.count("WARNING") == MOST_LINES + 1
    [summary] = [text for _, text in kept.told if "more attempts" in text]
    assert summary.startswith("100 more attempts did not complete within 1 s: ")
    assert "mail (50)" in summary
    assert "bill (50)" in summary
    assert not [text for _, text in kept.told if "more runs completed" in text]


async def test_what_was_left_out_is_told_even_if_nothing_follows(log, kept, clock):
    settle(log, MOST_LINES + 5)
    assert log._lines._timer is not None
    log._lines._timer._callback()
    assert kept.told[-1][1].startswith("5 more runs completed")
    assert log._lines._timer is None


def test_a_stop_tells_what_was_left_out(log, kept):
    settle(log, MOST_LINES + 5)
    log(events.NodeStopped("n1", 0, 0))
    assert kept.told[-2][1].startswith("5 more runs completed")


def test_nobody_pays_for_lines_that_nobody_reads(kept, clock):
    quiet = EventLog(logger_of(kept, logging.WARNING), clock)
    assert not any(quiet.wants(kind) for kind in (events.RunEnded, events.RunStarted, events.RunsSettled))
    quiet(completed())
    assert kept.told == []


def test_at_debug_every_run_has_its_line(kept, clock):
    log = EventLog(logger_of(kept, logging.DEBUG), clock)
    for number in range(3):
        settle(log, 500, number)
    assert len(kept.told) == 1500


# --- outages


def away(service: str, part: str = "store") -> events.StoreAway:
    return events.StoreAway(service, "connection refused", 0.1, part)


def test_an_outage_is_told_once_counted_and_its_end_told(log, kept, clock):
    for _ in range(5):
        for service in ("worker", "settler", "reaper"):
            log(away(service))
        clock.now += 1.0
    for service in ("worker", "settler", "reaper"):
        log(events.StoreBack(service, 5.0))
    assert kept.told == [
        ("WARNING", "the store cannot be reached: connection refused; the node keeps trying"),
        ("INFO", "the store can be reached again after 5 s and 15 failed calls"),
    ]
    assert kept.records[-1].failures == 15


def test_a_long_outage_is_remembered_now_and_then(log, kept, clock):
    for _ in range(3600):
        log(away("worker"))
        clock.now += 1.0
    log(events.StoreBack("worker", 3600.0))
    assert 5 < len(kept.told) < 20
    assert "still cannot be reached after 10 s and 11 failed calls" in kept.told[1][1]


def test_a_store_that_comes_and_goes_does_not_flood_the_log(log, kept, clock):
    for _ in range(600):
        log(away("worker"))
        clock.now += 0.5
        log(events.StoreBack("worker", 0.5))
        clock.now += 0.5
    assert len(kept.told) < 30


def test_parts_of_a_store_are_told_apart(log, kept):
    log(away("elector", "coordinator"))
    log(away("worker"))
    log(events.StoreBack("worker", 1.0))
    assert [text.split(":")[0].split(" after")[0] for _, text in kept.told] == [
        "the coordinator cannot be reached",
        "the store cannot be reached",
        "the store can be reached again",
    ]


def test_at_debug_each_failed_call_is_written(kept, clock):
    log = EventLog(logger_of(kept, logging.DEBUG), clock)
    for _ in range(3):
        log(away("worker"))
    assert [level for level, _ in kept.told] == ["WARNING", "DEBUG", "DEBUG"]


def test_a_service_that_keeps_failing_is_counted_too(log, kept, clock):
    failure = Failure("KeyError", "'x'", TRACE)
    for _ in range(100):
        log(events.ServiceFailed("planner", failure, 5.0))
        log(events.PlanFailed("nightly", failure))
        clock.now += 1.0
    assert len(kept.told) < 15
    assert any("more like this were not logged" in text for _, text in kept.told)


def test_what_changes_is_always_told(log, kept):
    for epoch in range(50):
        log(events.LeaderElected(Lease("main", "n1", epoch, DUE), epoch))
        log(events.LeaderLost("main", resigned=False))
    assert len(kept.told) == 100


EVERY_EVENT = [
    events.NodeStarted("n1", "memory://"),
    events.NodeStopped("n1", 1, 2, 3, 4),
    events.LeaderElected(Lease("main", "n1", 1, DUE), 1),
    events.LeaderLost("main", resigned=False),
    events.JobSaved("a", 1, "paused", "default", "a"),
    events.JobConflict("a", "no"),
    events.JobFileApplied("f", ("a added",)),
    events.JobFileOutdated("f", DUE),
    events.SettingsApplied(1, ("a",), ("b",)),
    events.RunsReaped(("1", "2"), ("n2",), (run_of(),)),
    events.RunsPlaced(1, 2),
    events.RunsTakenBack("n2", 1),
    events.DataLost("worker", "restored"),
    events.ServiceFailed("planner", Failure("KeyError", "x", "Traceback (most recent call last):\n"), 1.0),
    events.PlanFailed("a", Failure("KeyError", "x")),
    events.HookFailed("on_error", "a", "0", Failure("KeyError", "x")),
    events.AfterCommitFailed("0", "a", Failure("KeyError", "x")),
    events.RecordUnreadable("run", "0", "bad"),
    events.SettlementAbandoned(run_of(), Failure("KeyError", "x")),
    events.SettlementRefused("0", 1),
    events.ClaimsLost(("0",)),
    events.ClaimUntrusted("0", stopped=True),
    events.NodeIdShared("n1", "host", 5, DUE),
    events.HandlersAbandoned((run_of(),)),
    events.StopHindered("close", Failure("KeyError", "x")),
    events.SlotLeaked("0", "a", 1),
    events.PromisesChanged(durable_start=False),
    events.OutageNoted(DUE, DUE),
    events.ClockDoubted(5.0),
    events.ClockTrusted(5.0, followed=True),
    events.LoopStalled(5.0, "  File x"),
    events.RunMissed(run_of(), 5.0),
    events.RunReleased(run_of()),
]


@pytest.mark.parametrize("event", EVERY_EVENT, ids=lambda event: type(event).__name__)
def test_every_event_can_be_logged_with_its_fields(event, kept, clock):
    EventLog(logger_of(kept, logging.DEBUG), clock)(event)
    [record] = kept.records
    line = json.loads(JsonFormatter().format(record))
    assert line["logger"] == "shop"
    assert line["message"]


# --- the two formats


@pytest.fixture
def text(monkeypatch):
    return formatted(TextFormatter())


def formatted(formatter: logging.Formatter):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    handler.addFilter(RunFields())
    logger = logging.Logger("duly.run", logging.INFO)  # noqa: LOG001  # as above
    logger.addHandler(handler)
    return logger, stream


def test_times_are_local_and_have_an_offset(text, clock):
    logger, stream = text
    EventLog(logger, clock)(completed())
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d INFO    duly.run: mail ", stream.getvalue())


def test_a_record_names_only_what_is_known_of_its_run(text):
    logger, stream = text
    logger.info("mine", extra={"run_id": "0" * 18 + "abcdef12"})
    assert stream.getvalue().endswith("duly.run: 0abcdef12: mine\n")


def test_a_record_from_inside_a_handler_begins_with_its_run(text):
    logger, stream = text
    logger.info("mine", extra={"run_id": "0" * 18 + "abcdef12", "job": "mail", "attempt": 2})
    assert stream.getvalue().endswith("duly.run: mail 0abcdef12 attempt 2: mine\n")


def test_json_has_every_field_and_the_traceback_only_once(clock):
    logger, stream = formatted(JsonFormatter())
    log = EventLog(logger, clock)
    log(failed(1))
    log(away("worker"))
    log(events.PlanFailed("nightly", Failure("KeyError", "'x'", "")))
    first, second, third = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert first["message"].count("\n") == 0
    assert first["traceback"] == TRACE
    assert (first["run_id"], first["attempt"], first["max_attempts"]) == (f"{1:026x}", 1, 4)
    assert (first["error_type"], first["error"], first["retry_at"]) == (
        "OSError",
        "refused",
        "2027-01-01T12:00:00.000000Z",
    )
    assert (second["kind"], second["part"], second["failures"]) == ("StoreAway", "store", 1)
    assert (third["kind"], third["job"], third["error_type"]) == ("PlanFailed", "nightly", "KeyError")


async def test_a_real_failure_shows_where_the_user_failed(caplog):
    scheduler = Scheduler("memory://")

    @scheduler.job(retry=RetryPolicy.fixed(1, 0.01))
    async def fail() -> None:
        json.loads("{")

    async with scheduler:
        with pytest.raises(RunFailed):
            await (await fail.submit()).result(timeout=30)
    warning, error = [record for record in caplog.records if record.name == "duly.run"]
    for record in (warning, error):
        assert 'json.loads("{")' in record.getMessage()
        assert "decoder.py" not in record.getMessage()
        assert "decoder.py" in record.traceback
    assert "attempt 1 of 2 failed" in warning.getMessage()
    assert "failed, attempt 2 of 2 failed" in error.getMessage()


async def test_a_timeout_shows_where_the_handler_was():
    scheduler = Scheduler("memory://")

    @scheduler.job(retry=None, timeout=0.05)
    async def hang() -> None:
        await asyncio.sleep(60)

    async with scheduler:
        with pytest.raises(RunFailed) as caught:
            await (await hang.submit()).result(timeout=30)
    assert "await asyncio.sleep(60)" in caught.value.traceback
