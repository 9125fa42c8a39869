"""The logs of runs, as a user sees them: what handlers log, print and report, while they run and afterwards."""

import asyncio
import logging
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import run_log_handlers as handlers
from tests.conftest import eventually

from duly import Command, Context, Job, RetryPolicy, RunCancelled, RunFailed, Scheduler, SchedulerConfig
from duly.errors import ConfigurationError, RunNotFound
from duly.model import LineSource, Progress

logger = logging.getLogger("shop.orders")


@pytest.fixture(autouse=True)
def levels():
    """Log from INFO on, without a handler of its own."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    yield
    root.setLevel(before)


async def texts(scheduler, run, **options):
    return [line.text for line in await scheduler.logs(run.id, **options)]


# --- where lines come from


async def test_what_an_async_handler_logs_is_kept_with_its_run(url):
    scheduler = Scheduler(url)

    @scheduler.job
    async def pack(ctx: Context, order: int) -> None:
        logger.info("order %d", order)
        await asyncio.sleep(0)
        ctx.log.warning("fragile: %s", order)

    async with scheduler:
        runs = [await pack.submit(order) for order in range(5)]
        for order, run in enumerate(runs):
            await run.result(timeout=30)
            lines = await scheduler.logs(run.id)
            assert [(line.number, line.attempt, line.source) for line in lines] == [
                (1, 1, LineSource.LOG),
                (2, 1, LineSource.LOG),
            ]
            assert [(line.level, line.logger, line.text) for line in lines] == [
                ("INFO", "shop.orders", f"order {order}"),
                ("WARNING", "duly.job.pack", f"fragile: {order}"),
            ]
            stored = await scheduler.get_run(run.id)
            assert abs((lines[0].at - stored.started_at).total_seconds()) < 60


async def test_what_a_thread_logs_is_kept_and_what_others_log_is_not():
    scheduler = Scheduler("memory://")
    elsewhere = threading.Thread(target=lambda: logger.info("not of any run"))

    @scheduler.job
    def pack() -> None:
        elsewhere.start()
        elsewhere.join()
        logger.info("mine")

    async with scheduler:
        run = await pack.submit()
        await run.result(timeout=30)
        logger.info("after it")
        assert await texts(scheduler, run) == ["mine"]


async def test_duly_itself_leaves_no_lines():
    scheduler = Scheduler("memory://")

    @scheduler.job(retry=RetryPolicy.fixed(1, 0.01), on_error=lambda run, job, exc: 1 / 0)
    async def pack() -> None:
        logging.getLogger("duly.node").warning("pretends")
        raise ValueError

    async with scheduler:
        run = await pack.submit()
        with pytest.raises(RunFailed):
            await run.result(timeout=30)
        assert await texts(scheduler, run) == []


async def test_the_context_keeps_info_although_the_level_is_higher(url):
    logging.getLogger().setLevel(logging.WARNING)
    scheduler = Scheduler(url)

    @scheduler.job
    async def pack(ctx: Context) -> None:
        ctx.log.debug("debug")
        ctx.log.info("info of %s", ctx.job)
        logger.info("discarded by its level")
        ctx.log.error("error")

    async with scheduler:
        run = await pack.submit()
        await run.result(timeout=30)
        assert await texts(scheduler, run) == ["info of pack", "error"]


def test_the_logger_of_a_context_names_the_line_that_logs(caplog):
    scheduler = Scheduler("memory://")
    found = []

    class Keep(logging.Handler):
        def emit(self, record):
            found.append((record.funcName, record.pathname))

    handler = Keep()
    logging.getLogger("duly.job.pack").addHandler(handler)

    @scheduler.job
    async def pack(ctx: Context) -> None:
        ctx.log.info("here")

    async def play():
        async with scheduler:
            await (await pack.submit()).result(timeout=30)

    try:
        asyncio.run(play())
    finally:
        logging.getLogger("duly.job.pack").removeHandler(handler)
    assert found == [("pack", __file__)]


def test_nodes_leave_logging_as_it_was():
    handlers, factory = list(logging.getLogger().handlers), logging.getLogRecordFactory()

    async def play():
        async with Scheduler("memory://"):
            assert logging.getLogger().handlers == handlers

    asyncio.run(play())
    assert logging.getLogger().handlers == handlers
    assert logging.getLogRecordFactory() is factory


def test_a_factory_that_comes_later_keeps_calling_ours():
    before = logging.getLogRecordFactory()

    async def play():
        scheduler = Scheduler("memory://")

        @scheduler.job
        async def pack() -> None:
            logger.info("both")

        for _ in range(2):
            async with scheduler:
                logging.setLogRecordFactory(partial(logging.getLogRecordFactory()))
                run = await pack.submit()
                await run.result(timeout=30)
                assert await texts(scheduler, run) == ["both"]

    try:
        asyncio.run(play())
        logging.setLogRecordFactory(before)  # without ours: the next node puts it back
        asyncio.run(play())
    finally:
        logging.setLogRecordFactory(before)


async def test_an_exception_is_logged_with_its_traceback():
    scheduler = Scheduler("memory://")

    @scheduler.job
    async def pack() -> None:
        try:
            {}["shelf 7"]
        except KeyError:
            logger.exception("cannot pack")

    async with scheduler:
        run = await pack.submit()
        await run.result(timeout=30)
        found = await texts(scheduler, run)
        assert found[0] == "cannot pack"
        assert found[1].startswith("Traceback")
        assert found[-1] == "KeyError: 'shelf 7'"
        assert {line.level for line in await scheduler.logs(run.id)} == {"ERROR"}


async def test_the_output_of_a_command_is_kept_with_times_and_streams(url):
    scheduler = with_command(url, "echo one; echo two >&2; sleep 0.3; printf 'three\\nno end'")
    async with scheduler:
        run = await scheduler.submit("talk")
        await run.result(timeout=30)
        lines = await scheduler.logs(run.id)
    assert sorted((line.source.value, line.text) for line in lines) == [
        ("stderr", "two"),
        ("stdout", "no end"),
        ("stdout", "one"),
        ("stdout", "three"),
    ]
    at = {line.text: line.at for line in lines}
    assert (at["three"] - at["one"]).total_seconds() > 0.2


async def test_the_output_of_a_process_is_kept_and_still_appears(capfd):
    logging.getLogger().setLevel(logging.WARNING)
    scheduler = Scheduler("memory://")
    talk = scheduler.job(executor="process")(handlers.talk)
    async with scheduler:
        runs = [await talk.submit(word) for word in ("first", "second", "third")]
        for run, word in zip(runs, ("first", "second", "third"), strict=True):
            await run.result(timeout=60)
            lines = await scheduler.logs(run.id)
            assert sorted((line.source.value, line.level, line.logger, line.text) for line in lines) == sorted(
                [
                    ("stdout", "", "", f"{word} printed"),
                    ("stdout", "", "", f"{word} from a program"),
                    ("stdout", "", "", "no end"),
                    ("stderr", "", "", f"{word} complained"),
                    ("log", "WARNING", "shop.apart", f"{word} logged"),
                    ("log", "INFO", "duly.job.talk", f"{word} by the context"),
                ]
            )
            assert (await scheduler.get_run(run.id)).progress == Progress(1, 2, word)
    out, err = capfd.readouterr()
    assert "second printed" in out
    assert "third from a program" in out
    assert "first complained" in err


# --- how a run may end


def with_command(url, text, **options):
    scheduler = Scheduler(url, SchedulerConfig(allow_commands=True))
    scheduler.add(Job(handler=Command(text, shell=True), name="talk", retry=None, **options))
    return scheduler


async def test_the_log_of_a_run_that_failed_was_cancelled_or_timed_out_is_whole(url):
    scheduler = with_command(url, "echo said; exit 3")
    scheduler.add(Job(handler=Command("echo slow; sleep 1000", shell=True), name="slow", retry=None, timeout=0.5))
    scheduler.add(Job(handler=Command("echo waiting; sleep 1000", shell=True), name="waits", retry=None))

    @scheduler.job(retry=RetryPolicy.fixed(1, 0.01))
    async def breaks(ctx: Context) -> None:
        logger.info("attempt %d", ctx.attempt)
        raise ValueError

    async with scheduler:
        failed = [await scheduler.submit(name) for name in ("talk", "slow", "breaks")]
        cancelled = await scheduler.submit("waits")

        async def says():
            return await texts(scheduler, cancelled) == ["waiting"]

        await eventually(says, "it has said something")
        await cancelled.cancel()
        with pytest.raises(RunCancelled):
            await cancelled.result(timeout=30)
        for run in failed:
            with pytest.raises(RunFailed):
                await run.result(timeout=30)
        assert [await texts(scheduler, run) for run in failed] == [["said"], ["slow"], ["attempt 1", "attempt 2"]]
        assert await texts(scheduler, cancelled) == ["waiting"]
        assert await texts(scheduler, failed[2], attempt=2) == ["attempt 2"]
        assert [line.attempt for line in await scheduler.logs(failed[2].id)] == [1, 2]


async def test_the_log_of_a_handler_that_was_stopped_is_whole():
    scheduler = Scheduler("memory://")
    stopped = threading.Event()

    @scheduler.job(timeout=0.3, retry=None)
    async def slow() -> None:
        logger.info("begins")
        try:
            await asyncio.sleep(1000)
        finally:
            logger.info("cleans up")

    @scheduler.job(timeout=0.3, retry=None)
    def stubborn() -> None:
        logger.info("begins")
        stopped.wait(20)
        logger.info("after its attempt")

    async with scheduler:
        runs = [await slow.submit(), await stubborn.submit()]
        for run in runs:
            with pytest.raises(RunFailed):
                await run.result(timeout=30)
        assert await texts(scheduler, runs[0]) == ["begins", "cleans up"]
        stopped.set()
        await asyncio.sleep(0.05)
        assert await texts(scheduler, runs[1]) == ["begins"]


async def test_the_last_words_of_a_process_are_kept():
    scheduler = Scheduler("memory://")
    die = scheduler.job(executor="process", retry=None)(handlers.die)
    hang = scheduler.job(executor="process", retry=None)(handlers.hang)
    async with scheduler:
        dead, hung = await die.submit(), await hang.submit()
        with pytest.raises(RunFailed):
            await dead.result(timeout=60)
        assert await texts(scheduler, dead) == ["last words"]

        async def says():
            return sorted(await texts(scheduler, hung)) == ["begun", "in the log"]

        await eventually(says, "it has begun", 60)
        await hung.cancel()
        with pytest.raises(RunCancelled):
            await hung.result(timeout=30)
        assert sorted(await texts(scheduler, hung)) == ["begun", "in the log"]


async def test_lines_of_all_attempts_stay_across_a_redrive(url):
    scheduler = Scheduler(url)

    @scheduler.job(retry=None)
    async def breaks(ctx: Context) -> None:
        ctx.log.info("try")
        raise ValueError

    async with scheduler:
        run = await breaks.submit()
        for _ in range(2):
            with pytest.raises(RunFailed):
                await run.result(timeout=30)
            if len(await texts(scheduler, run)) == 1:
                await scheduler.redrive(run.id)
        assert [(line.number, line.attempt, line.text) for line in await scheduler.logs(run.id)] == [
            (1, 1, "try"),
            (2, 1, "try"),
        ]


async def test_a_stop_stores_what_running_handlers_have_logged(shared_url):
    scheduler = Scheduler(shared_url, SchedulerConfig(shutdown_timeout=0))

    @scheduler.job
    async def long() -> None:
        logger.info("on its way")
        await asyncio.sleep(1000)

    async with scheduler.client():
        run = await long.submit()
        await scheduler.start()

        async def running():
            return (await scheduler.get_run(run.id)).state == "running"

        await eventually(running, "it runs")
        await scheduler.stop()
    async with Scheduler(shared_url).client() as reader:
        assert await texts(reader, run) == ["on its way"]


# --- while it runs


async def test_lines_and_progress_are_visible_while_a_run_executes(url):
    scheduler = Scheduler(url, SchedulerConfig(lock_ttl=60))
    go = asyncio.Event()

    @scheduler.job
    async def pack(ctx: Context) -> None:
        ctx.log.info("begun")
        ctx.progress(1, 3, "boxes")
        await go.wait()

    async with scheduler:
        run = await pack.submit()

        async def running():
            return (await scheduler.get_run(run.id)).state == "running"

        await eventually(running, "it runs")
        began = time.monotonic()

        async def visible():
            return await texts(scheduler, run) == ["begun"] and (await scheduler.get_run(run.id)).progress is not None

        await eventually(visible, "line and progress")
        assert time.monotonic() - began < 10  # the next heartbeat comes after 20 s
        assert (await scheduler.get_run(run.id)).progress == Progress(1, 3, "boxes")
        go.set()
        await run.result(timeout=30)
        assert (await scheduler.get_run(run.id)).progress == Progress(1, 3, "boxes")


async def test_the_last_progress_of_a_short_run_is_kept(url):
    scheduler = Scheduler(url)

    @scheduler.job
    async def pack(ctx: Context) -> None:
        for done in range(4):
            ctx.progress(done, 3)

    async with scheduler:
        run = await pack.submit()
        await run.result(timeout=30)
        assert (await scheduler.get_run(run.id)).progress == Progress(3, 3)


# --- how much is kept


async def test_only_the_newest_lines_are_kept():
    scheduler = Scheduler("memory://", SchedulerConfig(keep_logs=10))

    @scheduler.job
    def floods() -> None:
        for number in range(20_000):
            logger.info("%d", number)

    @scheduler.job(keep_logs=3)
    async def quieter() -> None:
        for number in range(10):
            logger.info("%d", number)

    @scheduler.job(keep_logs=0)
    async def silent() -> None:
        logger.info("nothing stays")

    async with scheduler:
        runs = [await floods.submit(), await quieter.submit(), await silent.submit()]
        for run in runs:
            await run.result(timeout=60)
        assert await texts(scheduler, runs[0]) == [str(number) for number in range(19_990, 20_000)]
        assert [line.number for line in await scheduler.logs(runs[0].id)][-1] == 20_000
        assert await texts(scheduler, runs[1]) == ["7", "8", "9"]
        assert await texts(scheduler, runs[2]) == []


async def test_keep_logs_may_be_off_and_a_job_may_want_them():
    scheduler = Scheduler("memory://", SchedulerConfig(keep_logs=0))

    @scheduler.job
    async def silent(ctx: Context) -> None:
        ctx.log.info("no")

    @scheduler.job(keep_logs=2)
    async def wanted(ctx: Context) -> None:
        ctx.log.info("yes")

    async with scheduler:
        runs = [await silent.submit(), await wanted.submit()]
        for run in runs:
            await run.result(timeout=30)
        assert [await texts(scheduler, run) for run in runs] == [[], ["yes"]]


@pytest.mark.parametrize("value", [-1, 10_001, 1.5, "many", True])
def test_a_wrong_keep_logs_is_refused(value):
    with pytest.raises(ConfigurationError, match="keep_logs"):
        SchedulerConfig(keep_logs=value)
    with pytest.raises(ConfigurationError, match="keep_logs"):
        Job(handler="mail", name="mail", keep_logs=value)


def test_a_job_without_keep_logs_has_the_digest_that_it_had():
    plain = Job(handler="mail", name="mail", timeout=5).spec("UTC", b"{}")
    assert plain.digest() == "46d2ae5bb9995242"
    assert Job(handler="mail", name="mail", timeout=5, keep_logs=7).spec("UTC", b"{}").digest() != plain.digest()


# --- hostile handlers


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.fixture
def unheard():
    """Makes loggers whose records reach no handler: pytest cannot report every text."""
    made = []

    def unheard(name):
        made.append(logging.getLogger(name))
        made[-1].propagate = False
        return made[-1]

    yield unheard
    for each in made:
        each.propagate = True


async def test_whatever_a_handler_logs_the_run_goes_on(url, unheard):
    scheduler = Scheduler(url)
    logger = unheard("shop.hostile")
    unheard("duly.job.hostile")

    @scheduler.job
    async def hostile(ctx: Context) -> str:
        logger.info("\udc80 \x00 \x1b[2J")
        logger.info("%d", "not a number")
        logger.info("%s", Hostile())
        logger.info(Hostile())
        logger.info("x" * 3_000_000)
        logger.info("token=abc postgresql://me:secret@host/db")
        unheard("evil\udc80\n" + "x" * 5000).info("name")
        ctx.log.info("%s %s", 1)  # noqa: PLE1206  # that is the point
        return "done"

    async with scheduler:
        run = await hostile.submit()
        assert await run.result(timeout=30) == "done"
        found = await texts(scheduler, run)
    assert found[0] == "\\udc80 \\u0000 \x1b[2J"
    assert found[1] == "%d [its arguments cannot be formatted]"
    assert len(found[4]) <= 8000
    assert found[5] == "token=*** postgresql://***@host/db"
    assert len(found) == 8


async def test_a_flood_of_output_is_bounded():
    scheduler = Scheduler("memory://")
    flood = scheduler.job(executor="process")(handlers.flood)
    async with scheduler:
        run = await flood.submit()
        await run.result(timeout=60)
        lines = await scheduler.logs(run.id)
        assert len(lines) == 200
        assert lines[-1].text == "\ufffd\ufffd\ufffd binary"
        assert lines[-2].text == "49999"
        assert lines[-1].number == 50_001


async def test_the_binary_output_of_a_command_is_kept_as_text(url):
    scheduler = with_command(url, "head -c 200000 /dev/urandom; echo; echo end")
    async with scheduler:
        run = await scheduler.submit("talk")
        await run.result(timeout=30)
        assert (await texts(scheduler, run))[-1] == "end"


# --- reading


async def test_handles_of_runs_read_their_logs(url):
    scheduler = Scheduler(url)

    @scheduler.job
    async def talks(ctx: Context) -> None:
        for number in range(4):
            ctx.log.info("line %d", number)

    async with scheduler:
        for run in (await talks.submit(), await talks.trigger(), await scheduler.submit("talks", {})):
            await run.wait(timeout=30)
            lines = await scheduler.logs(run.id)
            assert [line.number for line in lines] == [1, 2, 3, 4]
            for handle in (run, scheduler.run(run.id), talks.run(run.id)):
                assert await handle.logs() == lines
                assert await handle.logs(after=1, limit=2) == lines[1:3]
                assert await handle.logs(attempt=2) == []
                assert await asyncio.to_thread(handle.sync.logs, after=3) == lines[3:]
        with pytest.raises(RunNotFound):
            await scheduler.run("0" * 26).logs()


async def test_reading_is_checked():
    scheduler = Scheduler("memory://")
    async with scheduler.client():
        with pytest.raises(RunNotFound):
            await scheduler.logs("0nothing")
        with pytest.raises(RunNotFound):
            await scheduler.logs("\udc80")


def test_logs_are_read_without_an_event_loop(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path}/duly.db")

    @scheduler.job
    def pack() -> None:
        logger.info("sync")

    scheduler.sync.start()
    try:
        run = pack.sync.submit()
        run.result(timeout=30)
        assert [line.text for line in scheduler.sync.logs(run.id, limit=1)] == ["sync"]
    finally:
        scheduler.sync.stop()


# --- a node that is killed


async def test_a_killed_node_loses_at_most_its_last_second(shared_url):
    words = [sys.executable, str(Path(__file__).with_name("run_log_node.py")), shared_url]
    reader = Scheduler(shared_url)
    node = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
    try:
        async with reader.client():

            async def defined():
                return await reader.jobs()

            await eventually(defined, "the node is up")
            run = await reader.submit("count")
            for _ in range(60):
                last = int(await asyncio.to_thread(node.stdout.readline))
            node.kill()
            written = [last, *map(int, (await asyncio.to_thread(node.communicate))[0].split())]
            kept = [int(text) for text in await texts(reader, run)]
            assert kept == list(range(len(kept)))
            assert written[-1] - kept[-1] <= 40  # two seconds: the machine may be slow
    finally:
        node.kill()
        node.wait()
