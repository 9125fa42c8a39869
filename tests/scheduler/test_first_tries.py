"""What people try in the first hour: it works, or the error says what to write."""

import asyncio
import functools
import inspect
import traceback
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import attrs
import pydantic
import pytest

from duly import (
    Command,
    ConfigurationError,
    Context,
    DulyError,
    Every,
    InvalidSchedule,
    Job,
    Once,
    PayloadError,
    RunNotFound,
    Scheduler,
    SchedulerConfig,
    State,
)

# --- handlers of every kind


async def total(ctx: Context, a: int, b: int = 1, *, c: int = 0) -> int:
    """Add numbers."""
    return a + b + c


def plain(a: int, b: int = 1) -> int:
    return a * b


class Shop:
    name = "a shop"  # not the name of the job

    def __init__(self) -> None:
        self.job = "mine"  # not the handle's
        self.function = None

    async def sell(self, what: str) -> str:
        return f"sold {what}"

    def count(self, what: str) -> int:
        return len(what)

    @classmethod
    def kind(cls, text: str) -> str:
        return f"{cls.__name__} {text}"

    @staticmethod
    def twice(text: str) -> str:
        return text * 2


class Doubling:
    """Doubles."""

    def __init__(self) -> None:
        self.job = self.function = "not the handle's"

    def __call__(self, number: int) -> int:
        return 2 * number


class Tripling:
    async def __call__(self, ctx: Context, number: int) -> int:
        assert ctx.attempt == 1
        return 3 * number


@pytest.mark.parametrize(
    ("handler", "name", "arguments", "result"),
    [
        (functools.partial(total, b=2), "add", {"a": 1}, 3),
        (functools.partial(total, c=5), "add", {"a": 1, "b": 3, "c": 7}, 11),
        (functools.partial(plain, 4), "times", {"b": 3}, 12),
        (functools.partial(functools.partial(plain, 4), b=5), "times", {}, 20),
        (functools.partial(Shop().sell, "tea"), "tea", {}, "sold tea"),
        (Shop().sell, None, {"what": "tea"}, "sold tea"),
        (Shop().count, None, {"what": "tea"}, 3),
        (Shop.kind, None, {"text": "x"}, "Shop x"),
        (Shop.twice, None, {"text": "x"}, "xx"),
        (Doubling(), "double", {"number": 4}, 8),
        (Tripling(), "triple", {"number": 4}, 12),
        (functools.cache(plain), None, {"a": 4, "b": 2}, 8),
    ],
)
async def test_a_handler_may_be_any_callable(handler, name, arguments, result):
    scheduler = Scheduler("memory://")
    handle = scheduler.job(**{} if name is None else {"name": name})(handler)
    assert handle.name == (name or handler.__name__)
    async with scheduler:
        assert await (await handle.submit(**arguments)).result(timeout=30) == result
        with pytest.raises(PayloadError, match=f"payload of {handle.name}"):
            await handle.submit(**arguments, surprise=1)


@pytest.mark.parametrize("handler", [functools.partial(plain, 1), Doubling()])
def test_what_has_no_name_needs_one_and_the_error_says_so(handler):
    with pytest.raises(ConfigurationError, match=r'has none; write @scheduler.job\(name="…"\)'):
        Scheduler("memory://").job(handler)
    with pytest.raises(ConfigurationError, match="has no name"):
        Job(handler=handler)


def test_what_a_callable_says_about_itself_describes_the_job():
    assert Job(name="add", handler=functools.partial(total, b=2)).description == "Add numbers."
    assert Job(name="double", handler=Doubling()).description == "Doubles."


def test_a_handle_keeps_its_own_attributes():
    scheduler = Scheduler("memory://")
    handle = scheduler.job(name="double")(Doubling())
    assert (handle.job.name, handle(4)) == ("double", 8)


async def test_a_callable_that_a_process_cannot_import_says_why():
    for handler in (functools.partial(plain, 1), Doubling(), Shop().count):
        scheduler = Scheduler("memory://")
        scheduler.job(name="x", executor="process")(handler)
        with pytest.raises(ConfigurationError, match=r"'x' cannot run with executor='process': .*use a plain function"):
            await scheduler.start()


def test_a_generator_would_never_run():
    def lines():
        yield 1

    async def alines():
        yield 1

    for handler in (lines, alines, functools.partial(lines)):
        with pytest.raises(ConfigurationError, match="'lines': its handler has a `yield`"):
            Job(handler=handler, name="lines")


async def test_a_method_that_is_not_bound_says_how_to_bind_it():
    scheduler = Scheduler("memory://")
    scheduler.job(name="sell")(Shop.sell)
    with pytest.raises(ConfigurationError, match=r"scheduler.job\(…\)\(the_object.sell\)"):
        await scheduler.start()


# --- values of every kind


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


@dataclass
class Point:
    x: int
    at: datetime
    file: Path | None = None


@attrs.define
class Box:
    weight: Decimal
    colour: Colour


class Order(pydantic.BaseModel):
    id: UUID
    when: datetime
    files: list[Path] = []


NOW = datetime(2027, 3, 28, 1, 30, 0, 123456, tzinfo=UTC)
VALUES = [
    (Path, Path("/tmp/größe.txt")),
    (Path, Path()),
    (PurePosixPath, PurePosixPath("a/b")),
    (list[Path], [Path("a"), Path("b")]),
    (dict[str, Path], {"a": Path("b")}),
    (Path | None, None),
    (Path | None, Path("x")),
    (datetime, NOW),
    (datetime, datetime(2027, 1, 1, 9, 0)),
    (date, date(2027, 1, 1)),
    (timedelta, timedelta(days=1, microseconds=5)),
    (UUID, UUID(int=5)),
    (Decimal, Decimal("1.10")),
    (Colour, Colour.RED),
    (Size, Size.LARGE),
    (Point, Point(1, NOW, Path("p"))),
    (Box, Box(Decimal("0.1"), Colour.RED)),
    (Order, Order(id=UUID(int=1), when=NOW, files=[Path("a")])),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (bytes, b"\x00\xff"),
]


@pytest.mark.parametrize("executor", ["async", "thread"])
@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[f"{kind}-{value}" for kind, value in VALUES])
async def test_a_value_comes_back_as_it_went(kind, value, executor):
    scheduler = Scheduler("memory://")
    seen = []

    async def echo(value):
        seen.append(value)
        return value

    def echo_in_thread(value):
        seen.append(value)
        return value

    handler = echo if executor == "async" else echo_in_thread
    handler.__annotations__ = {"value": kind, "return": kind}
    handle = scheduler.job(name="echo")(handler)
    async with scheduler:
        result = await (await handle.submit(value)).result(timeout=30)
    for found in (*seen, result):
        assert found == value
        assert type(found) is type(value)


def local_path(folder: Path, names: list[Path]) -> dict[str, Path]:
    assert isinstance(folder, Path)
    return {str(name): folder / name for name in names}


async def test_paths_reach_a_handler_in_another_process(tmp_path):
    scheduler = Scheduler("memory://")
    handle = scheduler.job(executor="process")(local_path)
    async with scheduler:
        found = await (await handle.submit(tmp_path, [Path("a")])).result(timeout=60)
    assert found == {"a": tmp_path / "a"}


@pytest.mark.parametrize(("kind", "value"), [(Path, 5), (Path, None), (list[Path], [5]), (Path, "\ud800")])
async def test_what_is_no_path_is_refused(kind, value):
    scheduler = Scheduler("memory://")

    async def read(file) -> None: ...

    read.__annotations__ = {"file": kind}
    handle = scheduler.job(read)
    with pytest.raises(PayloadError, match="payload of read"):
        handle.check(value)


async def test_without_an_annotation_the_error_asks_for_one():
    scheduler = Scheduler("memory://")

    @scheduler.job
    async def read(file) -> None: ...

    with pytest.raises(PayloadError, match=r"file holds a PosixPath.*annotate the parameter"):
        read.check(Path("a"))


# --- wrong keywords


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"cron": "0 3 * * *"},
            r"job 'nightly': unknown keyword cron=.* write @scheduler.job\(Cron\('0 3 \* \* \*'\)\)",
        ),
        ({"rate_limit": "10/m"}, "job 'nightly': unknown keyword rate_limit"),
        ({"retries": 3}, "write retry=3"),
        ({"interval": 60}, r"write @scheduler.job\(Every\(60\)\)"),
        ({"timout": 60, "name": "mine"}, "job 'mine': unknown keyword timout=60: write timeout=60"),
        ({"retry": "3"}, "job 'nightly': retry='3': expected a number of retries.*; write retry=3"),
        ({"retry": "often"}, "write retry=3, retry=None or retry=RetryPolicy"),
        ({"retry": True}, "job 'nightly': retry=True"),
        ({"retry": 2.0}, "job 'nightly': retry=2.0"),
        ({"retry": -1}, "job 'nightly': retry=-1"),
    ],
)
def test_a_wrong_keyword_is_answered_with_the_right_line(options, told):
    scheduler = Scheduler("memory://")
    with pytest.raises(ConfigurationError, match=told):

        @scheduler.job(**options)
        async def nightly() -> None: ...


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"delay": 10}, r"unknown field `delay`; options come first: write send.options\(delay=…\).submit\(…\)"),
        ({"countdown": 10}, r"write send.options\(delay=…\).submit"),
        ({"cc": "x"}, r"it takes \(to: str\)"),
    ],
)
async def test_an_option_among_the_arguments_is_answered_with_the_right_line(options, told):
    scheduler = Scheduler("memory://")

    @scheduler.job
    async def send(to: str) -> None: ...

    with pytest.raises(PayloadError, match=told):
        await send.submit("ada", **options)


async def test_an_argument_of_that_name_is_an_argument():
    scheduler = Scheduler("memory://")

    @scheduler.job
    async def wait(delay: int) -> int:
        return delay

    async with scheduler:
        assert await (await wait.submit(delay=0)).result(timeout=30) == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"at": datetime(2027, 1, 1, 9, 0)}, r"job 'send': at is a naive .*write datetime\(2027, 1, 1, 9, 0, tzinfo="),
        ({"delay": "10"}, "job 'send': delay='10': expected a number of seconds"),
        ({"priority": 10}, "job 'send': .*priority=10"),
    ],
)
async def test_wrong_options_name_the_job(options, told):
    scheduler = Scheduler("memory://")

    @scheduler.job
    async def send() -> None: ...

    with pytest.raises(ConfigurationError, match=told):
        send.options(**options)
    with pytest.raises(ConfigurationError, match=told):
        await scheduler.submit(send, **options)


def test_naive_times_are_answered_with_the_right_line():
    with pytest.raises(InvalidSchedule, match=r"datetime\(2027, 1, 1, 0, 0, tzinfo=.*or add .astimezone\(\)"):
        Once(datetime(2027, 1, 1))
    with pytest.raises(InvalidSchedule, match=r"job 'plain': start_at .*datetime\(2027, 1, 1, 9, 30, 5, 7, tzinfo="):
        Job(handler=plain, schedule=Every(5), start_at=datetime(2027, 1, 1, 9, 30, 5, 7))


# --- a start that nobody awaits


def test_a_start_that_is_not_awaited_warns_with_its_line_and_the_line_to_write():
    scheduler = Scheduler("memory://")
    with pytest.warns(RuntimeWarning, match=r"was never awaited") as caught:
        scheduler.start()  # the line
    place, _, hint = str(caught[0].message).partition(": write ")
    file, number = place.split(" at ")[1].rsplit(":", 1)
    assert Path(file).read_text().splitlines()[int(number) - 1].strip() == "scheduler.start()  # the line"
    assert hint.startswith("`await scheduler.start()`, or `scheduler.sync.start()` without an event loop")


def test_the_warning_names_the_line_of_the_call_even_if_it_comes_much_later():
    def begin(scheduler: Scheduler) -> object:
        return scheduler.start()

    kept = [begin(Scheduler("memory://"))]
    with pytest.warns(RuntimeWarning, match=f"{__file__}:{begin.__code__.co_firstlineno + 1}: write"):
        kept.clear()


async def test_a_start_that_is_awaited_does_not_warn():
    scheduler = Scheduler("memory://")
    assert inspect.iscoroutinefunction(scheduler.start)  # frameworks await it if it says so
    begun = scheduler.start()
    assert inspect.iscoroutine(begun)
    await begun
    await scheduler.stop()
    await scheduler.start()
    await scheduler.stop()
    await asyncio.ensure_future(scheduler.start())
    await scheduler.stop()


def test_a_start_can_be_given_to_asyncio_and_used_without_a_loop():
    asyncio.run(Scheduler("memory://").start())
    scheduler = Scheduler("memory://")
    scheduler.sync.start()
    assert scheduler.is_running
    scheduler.sync.stop()


# --- handles


async def test_a_run_is_known_by_its_id():
    scheduler = Scheduler("memory://")

    @scheduler.job
    async def send(to: str) -> Point:
        return Point(len(to), NOW)

    async with scheduler:
        first = await send.submit("ada")
        handle = scheduler.run(first.id)
        assert (handle.id, handle.deduplicated) == (first.id, False)
        with pytest.raises(DulyError, match="made from its id"):
            handle.created_at  # noqa: B018
        assert (await handle.get()).created_at == first.created_at
        assert (await handle.wait(timeout=30)).state is State.COMPLETED
        assert await handle.result() == await send.run(first.id).result() == Point(3, NOW)
        assert (await handle.get()).job == "send"
        later = await send.options(delay=3600).submit("ada")
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.01 s"):
            await scheduler.run(later.id).wait(timeout=0.01)
        await scheduler.run(later.id).cancel("no longer needed")
        assert (await scheduler.run(later.id).wait()).state is State.CANCELLED


@pytest.mark.parametrize("run_id", ["", "nobody", "0" * 26, "\ud800", "0\x00"])
async def test_a_handle_of_no_run_says_so_when_it_is_used(run_id):
    async with Scheduler("memory://").client() as scheduler:
        handle = scheduler.run(run_id)
        for ask in (handle.get, handle.result, handle.wait, handle.cancel):
            with pytest.raises(RunNotFound):
                await ask()


def test_the_same_without_an_event_loop():
    scheduler = Scheduler("memory://")

    @scheduler.job
    def double(number: int) -> int:
        return 2 * number

    scheduler.sync.start()
    try:
        run = double.sync.submit(4)
        assert scheduler.sync.run(run.id).wait(timeout=30).state is State.COMPLETED
        assert double.sync.run(run.id).result() == 8
    finally:
        scheduler.sync.stop()


async def test_registering_returns_a_handle():
    scheduler = Scheduler("memory://", SchedulerConfig(allow_commands=True))
    added = scheduler.add(Job(handler=plain))
    async with scheduler:
        assert await (await added.submit(2, b=4)).result(timeout=30) == 8
        handle = await scheduler.register(Job(handler=total))
        assert await (await handle.submit(1)).result(timeout=30) == 2
        command = await scheduler.register(Job(name="list", handler=Command(["true"])))
        assert (await (await command.submit()).result(timeout=30))["exit_code"] == 0
        with pytest.raises(ConfigurationError, match="'list' has no function to call here"):
            command()


# --- errors of .sync


def chain(exc: BaseException) -> list[Any]:
    return [link for link in (exc.__cause__, None if exc.__suppress_context__ else exc.__context__) if link is not None]


def test_an_error_of_sync_has_one_traceback():
    scheduler = Scheduler("memory://")

    @scheduler.job
    async def send(to: str) -> None: ...

    with pytest.raises(PayloadError) as caught:
        send.sync.submit(to=5)
    assert chain(caught.value) == []
    assert "".join(traceback.format_exception(caught.value)).count("Traceback") == 1
    with pytest.raises(RunNotFound) as missing:
        scheduler.sync.run("0" * 26).get()
    assert "".join(traceback.format_exception(missing.value)).count("Traceback") == 1
    scheduler.sync.close()
