"""Parts of a scheduler as objects of the user's own: backend, executors, logger, metrics, config."""

import asyncio
import logging
import threading

import pytest
from tests.conftest import eventually

from duly import ConfigurationError, Context, HandlerCall, MetricsCollector, Retention, Scheduler, SchedulerConfig
from duly.backends import memory, sqlite
from duly.model import State
from duly.model.event import NodeStarted
from duly.ports import Opening
from duly.scheduler import Job

# --- backend


async def test_a_backend_is_opened_by_a_function_with_what_the_scheduler_knows():
    openings = []

    def opener(opening):
        openings.append(opening)
        return memory.open_url("memory://", opening)

    scheduler = Scheduler(backend=opener, config=SchedulerConfig(namespace="shop", lock_ttl=9))

    @scheduler.job
    async def add(a: int) -> int:
        return a + 1

    assert openings == []  # constructing one does no I/O
    async with scheduler:
        assert await (await scheduler.submit(add, {"a": 1})).result(timeout=30) == 2
    assert [(opening.namespace, opening.lease) for opening in openings] == [("shop", 9)]


async def test_a_backend_that_is_given_is_shared_and_stays_the_users(tmp_path):
    backend = sqlite.open_url(f"sqlite:///{tmp_path}/t.db", Opening())
    async with backend:
        first, second = Scheduler(backend=backend), Scheduler(backend=backend)

        @first.job
        async def add(a: int) -> int:
            return a + 1

        async with first, second.client():
            assert await (await second.submit("add", {"a": 1})).result(timeout=30) == 2
        assert await backend.store.time()  # it was not closed with the schedulers


async def test_the_environment_does_not_replace_a_backend(monkeypatch):
    monkeypatch.setenv("DULY_URL", "redis://nowhere:1")
    async with Scheduler(backend=lambda opening: memory.open_url("memory://", opening)).client() as scheduler:
        assert (await scheduler.opened()).backend.url == "memory://"


@pytest.mark.parametrize("part", ["url", "store", "queue", "coordinator"])
def test_a_store_is_named_once(part):
    with pytest.raises(ConfigurationError, match="backend= and the URL of a store were both given"):
        Scheduler(backend=lambda opening: memory.open_url("memory://", opening), **{part: "memory://"})


def test_what_is_no_backend_is_refused():
    with pytest.raises(ConfigurationError, match="backend=5: expected a Backend, or a function that takes an Opening"):
        Scheduler(backend=5)


async def test_configuring_keeps_the_backend_and_another_url_replaces_it(tmp_path):
    scheduler = Scheduler(backend=lambda opening: memory.open_url("memory://", opening))
    scheduler.configure(config={"max_concurrent": 3})
    async with scheduler.client():
        assert (await scheduler.opened()).backend.url == "memory://"
    scheduler.configure(f"sqlite:///{tmp_path}/t.db")
    async with scheduler.client():
        assert (await scheduler.opened()).backend.url.startswith("sqlite:")
        assert scheduler.config.max_concurrent == 3


# --- executors


class Recording:
    """Runs handlers in the loop or a thread of its own, and remembers the calls."""

    def __init__(self):
        self.calls = []
        self.cancelled = 0

    async def execute(self, call: HandlerCall):
        self.calls.append(call)
        try:
            if asyncio.iscoroutinefunction(call.function):
                return await call()
            return await asyncio.to_thread(call)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def test_a_job_chooses_an_executor_by_name():
    executor = Recording()
    scheduler = Scheduler("memory://", executors={"mine": executor})

    @scheduler.job(executor="mine")
    def where(ctx: Context, word: str) -> list[str]:
        return [word, ctx.run_id, threading.current_thread().name]

    @scheduler.job(executor="mine")
    async def twice(number: int) -> int:
        return 2 * number

    async with scheduler:
        run = await scheduler.submit(where, {"word": "here"})
        word, run_id, thread = await run.result(timeout=30)
        assert (word, run_id) == ("here", run.id)
        assert thread != threading.current_thread().name
        assert await (await scheduler.submit(twice, {"number": 4})).result(timeout=30) == 8
    assert [(call.run.job, call.arguments, call.context is not None) for call in executor.calls] == [
        ("where", {"word": "here"}, True),
        ("twice", {"number": 4}, False),
    ]


async def test_a_failure_in_an_executor_is_the_failure_of_the_attempt():
    scheduler = Scheduler("memory://", executors={"mine": Recording()})

    @scheduler.job(executor="mine", retry=None)
    def fail() -> None:
        raise ValueError("boom")

    class Broken:
        def execute(self, call):
            raise RuntimeError("the pool is closed")

    scheduler2 = Scheduler("memory://", executors={"broken": Broken()})

    @scheduler2.job(executor="broken", retry=None)
    def never() -> None: ...

    for each, job, said in ((scheduler, fail, "boom"), (scheduler2, never, "the pool is closed")):
        async with each:
            run = await each.submit(job)
            await eventually(lambda run=run: _has(run, State.FAILED))
            assert (await run.get()).failure.message == said


async def _has(run, state):
    return (await run.get()).state is state


async def test_a_timeout_and_a_cancellation_reach_the_executor():
    executor = Recording()
    scheduler = Scheduler("memory://", executors={"mine": executor})

    @scheduler.job(executor="mine", retry=None, timeout=0.05)
    async def slow() -> None:
        await asyncio.sleep(60)

    @scheduler.job(executor="mine", retry=None)
    async def endless() -> None:
        await asyncio.sleep(60)

    async with scheduler:
        timed_out, cancelled = await scheduler.submit(slow), await scheduler.submit(endless)
        await eventually(lambda: _has(timed_out, State.FAILED))
        await eventually(lambda: _has(cancelled, State.RUNNING))
        await cancelled.cancel()
        await eventually(lambda: _has(cancelled, State.CANCELLED))
    assert executor.cancelled == 2


async def test_an_unknown_executor_is_refused_with_the_known_ones():
    scheduler = Scheduler("memory://", executors={"gpu": Recording()})
    said = r"job 'f': executor='cpu' is unknown; known: async, thread, process, gpu; .*Scheduler\(executors="

    def f() -> None: ...

    with pytest.raises(ConfigurationError, match=said):
        scheduler.job(executor="cpu")(f)
    async with scheduler:
        with pytest.raises(ConfigurationError, match=said):
            await scheduler.register(Job(name="f", handler=f, executor="cpu"))
        await scheduler.register(Job(name="f", handler=f, executor="gpu"))
    with pytest.raises(ConfigurationError, match="executor='command' is unknown"):
        scheduler.job(executor="command", name="g")(f)
    for bad in (5, "", b"x"):
        with pytest.raises(ConfigurationError, match="expected the name of an executor"):
            Job(name="f", handler=f, executor=bad)


@pytest.mark.parametrize(
    ("executors", "said"),
    [
        ({"thread": Recording()}, "executors: 'thread': expected a name .* other than async, thread, process, command"),
        ({"": Recording()}, "executors: '': expected a name"),
        ({5: Recording()}, "executors: 5: expected a name"),
        ({"gpu": object()}, r"executors: 'gpu' is .*: expected an object with execute\(call\)"),
    ],
)
def test_executors_are_checked(executors, said):
    with pytest.raises(ConfigurationError, match=said):
        Scheduler("memory://", executors=executors)


# --- logger and metrics


async def test_a_logger_is_told_instead_of_ours(caplog):
    logger = logging.getLogger("shop.jobs")
    with caplog.at_level(logging.INFO):
        async with Scheduler("memory://", logger=logger):
            pass
    names = {record.name for record in caplog.records if "node" in record.message}
    assert names == {"shop.jobs"}


async def test_an_adapter_keeps_its_fields_and_ours(caplog):
    adapter = logging.LoggerAdapter(logging.getLogger("shop"), {"team": "billing"})
    scheduler = Scheduler("memory://", logger=adapter)
    with caplog.at_level(logging.DEBUG, "shop"):

        @scheduler.job(retry=None)
        async def fail() -> None:
            raise ValueError("boom")

        async with scheduler:
            run = await scheduler.submit(fail)
            await eventually(lambda: _has(run, State.FAILED))
    [record] = [record for record in caplog.records if "boom" in record.message]
    assert (record.team, record.run_id, record.levelname) == ("billing", run.id, "ERROR")


class Counting(MetricsCollector):
    completed = 0

    def job_completed(self, name: str, seconds: float) -> None:
        self.completed += 1


async def test_metrics_are_counted():
    metrics = Counting()
    scheduler = Scheduler("memory://", metrics=metrics)

    @scheduler.job
    async def work() -> None: ...

    async with scheduler:
        await (await scheduler.submit(work)).result(timeout=30)
        await eventually(lambda: _counted(metrics))


async def _counted(metrics):
    return metrics.completed == 1


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"logger": 5}, "logger=5: expected an object with debug, info, warning and error"),
        ({"metrics": object()}, "metrics=.*: expected an object with the methods of duly.MetricsCollector"),
        ({"config": 5}, "config=5: expected a SchedulerConfig or a mapping of its fields"),
        ({"config": {"max_concurent": 5}}, "config: unknown field 'max_concurent'; did you mean max_concurrent"),
        ({"config": {"retention": {"lots": 5}}}, "config: retention: unknown field 'lots'; "),
        ({"config": {"max_concurrent": 0}}, "max_concurrent=0: expected a whole number from 1 to"),
    ],
)
def test_what_does_not_fit_is_refused_in_plain_words(parts, said):
    with pytest.raises(ConfigurationError, match=said):
        Scheduler("memory://", **parts)


# --- config


def test_a_mapping_is_a_configuration():
    scheduler = Scheduler("memory://", {"max_concurrent": 3, "retention": {"completed": 60}})
    assert scheduler.config == SchedulerConfig(max_concurrent=3, retention=Retention(completed=60))
    assert Scheduler("memory://", config={}).config == SchedulerConfig()


async def test_everything_together():
    events = []
    scheduler = Scheduler(
        backend=lambda opening: memory.open_url("memory://", opening),
        executors={"mine": Recording()},
        logger=logging.getLogger("shop"),
        metrics=Counting(),
        config={"node_id": "n1"},
    )
    scheduler.subscribe(events.append, NodeStarted)
    async with scheduler:
        assert [event.node for event in events] == ["n1"]
