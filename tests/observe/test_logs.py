"""What is logged, how, and to whom: the standard library's loggers, structlog's, and anything alike."""

import asyncio
import io
import json
import logging

import pytest
import structlog

from duly import Context, Logger, RetryPolicy, RunFailed, Scheduler, SchedulerRunning
from duly.observe import JsonFormatter, RunFields, add_run_fields
from duly.observe.logs import TextFormatter

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = TRACEPARENT.split("-")[1]


class Carrying:
    """A tracer that only hands on what it was given."""

    def headers(self):
        return {"traceparent": TRACEPARENT}

    def attempt(self, run):
        return Carried(run.headers)


class Carried:
    def __init__(self, headers):
        self.headers = headers

    def end(self, outcome): ...


def failing(**options) -> Scheduler:
    """Fails twice, then for good."""
    scheduler = Scheduler("memory://", **options)

    @scheduler.job(retry=RetryPolicy.fixed(1, 0.01))
    async def fail() -> None:
        raise ValueError("100% wrong {really}")

    return scheduler


async def to_the_end(scheduler) -> str:
    async with scheduler:
        handle = await scheduler.submit("fail")
        with pytest.raises(Exception, match="wrong"):
            await handle.result(timeout=30)
        return handle.id


@pytest.fixture
def lines():
    """Everything under `duly.*`, as lines of JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(RunFields())
    root = logging.getLogger()
    root.addHandler(handler)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.removeHandler(handler)


async def test_a_retryable_failure_is_a_warning_and_the_final_one_an_error_with_the_run_beside_them(lines):
    scheduler = failing()
    scheduler.observe(tracer=Carrying())
    run_id = await to_the_end(scheduler)
    told = [line for line in lines() if line["logger"] == "duly.run"]
    assert [(line["level"], line["attempt"], line["outcome"]) for line in told] == [
        ("WARNING", 1, "failed"),
        ("ERROR", 2, "failed"),
    ]
    for line in told:
        assert (line["run_id"], line["job"], line["trace_id"]) == (run_id, "fail", TRACE)
        assert line["node"]
        assert "100% wrong {really}" in line["message"]


async def test_lines_of_the_node_name_it(lines):
    logging.getLogger("duly.node").setLevel(logging.INFO)
    async with Scheduler("memory://"):
        pass
    logging.getLogger("duly.node").setLevel(logging.NOTSET)
    told = [line for line in lines() if line["logger"] == "duly.node"]
    assert "stopped" in told[-1]["message"]
    assert len({line["node"] for line in told}) == 1


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_records_of_a_handlers_own_loggers_carry_its_run(kind, lines):
    scheduler = Scheduler("memory://")
    own = logging.getLogger("shop.own")

    def work(ctx: Context) -> None:
        own.warning("mine")
        ctx.log.warning("its")

    async def work_async(ctx: Context) -> None:
        work(ctx)

    scheduler.job(name="work")(work_async if kind == "async" else work)
    scheduler.observe(tracer=Carrying())
    async with scheduler:
        handle = await scheduler.submit("work")
        await handle.result(timeout=30)
    told = {line["logger"]: line for line in lines()}
    for name in ("shop.own", "duly.job.work"):
        line = told[name]
        assert (line["run_id"], line["job"], line["attempt"], line["trace_id"]) == (handle.id, "work", 1, TRACE)
        assert line["node"]


# --- loggers of others


def test_loggers_are_loggers_as_they_are():
    assert isinstance(logging.getLogger("shop"), Logger)
    assert isinstance(logging.LoggerAdapter(logging.getLogger("shop")), Logger)
    assert isinstance(structlog.get_logger(), Logger)
    assert isinstance(structlog.stdlib.get_logger(), Logger)


async def test_a_logger_of_the_standard_library_is_told_instead_of_duly(caplog):
    scheduler = failing()
    scheduler.observe(logger=logging.getLogger("shop.jobs"))
    run_id = await to_the_end(scheduler)
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert {record.name for record in caplog.records if record.name != "asyncio"} == {"shop.jobs"}
    assert [(record.levelname, record.run_id, record.attempt) for record in told] == [
        ("WARNING", run_id, 1),
        ("ERROR", run_id, 2),
    ]


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
async def test_a_logger_of_structlog_gets_fields_it_can_work_with(level):
    kept = structlog.testing.LogCapture()
    wrapper = structlog.make_filtering_bound_logger(level)
    logger = structlog.wrap_logger(None, processors=[kept], wrapper_class=wrapper, shop="north")
    scheduler = failing()
    scheduler.observe(logger=logger)
    run_id = await to_the_end(scheduler)
    of_run = [entry for entry in kept.entries if entry.get("run_id") == run_id]
    expected = ["debug", "warning", "debug", "error"] if level == logging.DEBUG else ["warning", "error"]
    assert [entry["log_level"] for entry in of_run] == expected
    assert of_run[-1]["job"] == "fail"
    assert of_run[-1]["attempt"] == 2
    assert of_run[-1]["shop"] == "north"
    assert "100% wrong {really}" in of_run[-1]["event"]


async def test_structlog_inside_a_handler_gets_the_run_by_a_processor():
    kept = structlog.testing.LogCapture()
    logger = structlog.wrap_logger(None, processors=[add_run_fields, kept])
    scheduler = Scheduler("memory://")

    @scheduler.job
    async def work() -> None:
        logger.info("inside", job="my own word")

    async with scheduler:
        handle = await work.submit()
        await handle.result(timeout=30)
    logger.info("outside")
    inside, outside = kept.entries
    assert (inside["run_id"], inside["attempt"], inside["job"]) == (handle.id, 1, "my own word")
    assert "run_id" not in outside


async def test_a_plain_object_with_four_methods_will_do():
    class Notes:
        def __init__(self):
            self.told = []

        def debug(self, message, *, extra=None):
            self.told.append(("debug", extra))

        def info(self, message, *, extra=None):
            self.told.append(("info", extra))

        def warning(self, message, *, extra=None):
            self.told.append(("warning", extra))

        def error(self, message, *, extra=None):
            self.told.append(("error", extra))

    notes, scheduler = Notes(), failing()
    scheduler.observe(logger=notes)
    await to_the_end(scheduler)
    assert [level for level, extra in notes.told if "run_id" in extra] == ["debug", "warning", "debug", "error"]


async def test_a_running_scheduler_is_not_given_other_observers():
    async with Scheduler("memory://") as scheduler:
        with pytest.raises(SchedulerRunning):
            scheduler.observe(logger=logging.getLogger("late"))


async def test_a_tracer_that_fails_is_told_and_the_run_goes_on(caplog):
    class Broken(Carrying):
        def attempt(self, run):
            raise RuntimeError("no collector")

    scheduler = Scheduler("memory://")
    scheduler.observe(tracer=Broken())

    @scheduler.job
    async def work() -> int:
        await asyncio.sleep(0)
        return 1

    async with scheduler:
        assert await (await work.submit()).result(timeout=30) == 1
    assert "tracer of work failed" in caplog.text


# --- foreign text in records

FORGED = "2027-01-01 00:00:00,000 INFO    duly.run: nightly: completed"


def record_of(message: str, **fields) -> logging.LogRecord:
    record = logging.makeLogRecord({"name": "duly.run", "levelname": "ERROR", "msg": "%s", "args": (message,)})
    vars(record).update(fields)
    return record


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\n\n"])
def test_a_text_in_a_record_cannot_pass_for_a_record(end):
    first, *others = TextFormatter().format(record_of(f"failed: ValueError: oops{end}{FORGED}")).splitlines()
    assert "oops" in first
    assert all(line.startswith("    ") for line in others)


def test_an_exception_in_a_record_cannot_either():
    raised = ValueError(f"oops\n{FORGED}\x1b[2K")
    text = TextFormatter().format(record_of("bad", exc_info=(ValueError, raised, None)))
    assert "\x1b" not in text
    assert not any(line.startswith("2027") for line in text.splitlines())


def test_a_text_record_holds_nothing_that_a_terminal_acts_on():
    text = TextFormatter().format(record_of("\x1b]0;title\x07 \x9b31m \u202e \x08\x7f \udcff größer"))
    assert text.isprintable()
    assert "größer" in text
    text.encode()


async def test_the_text_of_a_handlers_exception_forges_no_line():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter())
    logging.getLogger().addHandler(handler)
    scheduler = Scheduler("memory://")

    @scheduler.job(retry=None)
    async def explode() -> None:
        raise ValueError(f"oops\n{FORGED}\r{FORGED}\x1b[1A")

    async with scheduler:
        with pytest.raises(RunFailed):
            await (await scheduler.submit("explode")).result(timeout=30)
    logging.getLogger().removeHandler(handler)
    written = stream.getvalue()
    assert "oops" in written
    assert "\x1b" not in written
    assert not any(line.startswith("2027") for line in written.splitlines())


@pytest.mark.parametrize("layout", [TextFormatter(), JsonFormatter()])
def test_a_record_shows_no_password(layout):
    record = record_of("cannot reach postgresql://me:x/s3cr3t@host/db", url="host=h password=s3cr3t")
    assert "s3cr3t" not in layout.format(record)


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_a_json_record_is_one_line_of_json_whatever_it_carries():
    loop: list = []
    loop.append(loop)
    odd = {"nan": float("nan"), "object": Unprintable(), "loop": loop, "level": "forged", "time": "forged"}
    for fields in (odd, {"object": Unprintable()}, {"mapping": {(1, 2): 3}}, {"text": "\udcff\u2028"}):
        text = JsonFormatter().format(record_of("a\nb\x1b", **fields))
        assert text.isascii()
        assert len(text.splitlines()) == 1
        line = json.loads(text, parse_constant=pytest.fail)
        assert (line["message"], line["level"]) == ("a\nb\x1b", "ERROR")
        assert line["time"] != "forged"
        assert fields.keys() <= line.keys()
