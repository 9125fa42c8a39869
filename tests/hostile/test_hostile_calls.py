"""Hostile values at every parameter of the Python interface: each call is refused plainly, or does what it says.

Whatever was tried, an innocent job still runs, is recorded and listed afterwards, and the scheduler stops cleanly.
"""

import asyncio
import inspect
from datetime import UTC, datetime

import pytest

from duly import Command, Cron, Every, Job, Once, RetryPolicy, Scheduler, SchedulerConfig
from duly.errors import DulyError
from duly.model import State
from tests.hostile.values import ALL, Hostility

# What a refusal may be: our own errors, Python's for a wrong type, and what the value itself raises.
REFUSALS = (DulyError, TypeError, TimeoutError, Hostility)

_DAY, _NEXT_DAY = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)

# Valid arguments, so that one parameter at a time can be hostile.
METHODS = {
    "submit": {"handler": "innocent", "payload": {}, "priority": 1, "dedupe_key": "k"},
    "submit_many": {"handler": "innocent", "payloads": [{}]},
    "trigger": {"name": "innocent"},
    "remove": {"name": "nobody"},
    "pause": {"name": "paused"},
    "resume": {"name": "paused"},
    "history": {"name": "innocent"},
    "rollback": {"name": "innocent", "revision": 1, "by": "ada", "dry_run": True},
    "backfill": {"name": "innocent", "start": _DAY, "end": _NEXT_DAY, "limit": 1, "by": "ada", "dry_run": True},
    "get_job": {"name": "innocent"},
    "handler_statistics": {"handler": "innocent"},
    "upcoming": {},
    "explain": {"job": "innocent", "at": None},
    "get_run": {"run_id": "0"},
    "runs": {},
    "attempts": {"run_id": "0"},
    "logs": {"run_id": "0"},
    "waits_for": {"run_id": "0"},
    "cancel": {"run_id": "0"},
    "redrive": {"run_id": "0"},
    "restore": {"name": "nobody"},
}


def _innocent():
    """Called by the jobs of the hostile definitions."""


def _parameters(function):
    signature = inspect.signature(function)
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [each.name for each in signature.parameters.values() if each.name != "self" and each.kind not in kinds]


def test_every_method_that_takes_values_is_tried():
    """A new method of the scheduler must be tried too, or be listed here with a reason."""
    others = {
        *(
            "start",
            "stop",
            "wait",
            "close",
            "client",
            "opened",
            "run_forever",
            "hurry",
            "rescue",
        ),  # life: no foreign values
        *("configure", "override", "wrap", "add", "job", "register", "within"),  # definitions, tried below
        *("observe", "subscribe"),  # callables of the program
        *("carry", "compare", "apply"),  # take values that the job file's reader has made
        *("jobs", "nodes", "health", "counts", "examine", "defined", "notifications"),  # take nothing
        *("report", "replaced", "tell_hooks"),  # for the supervisor of this process
        "follow",  # takes the address of a store that has moved
        "run",  # reads nothing; its handle calls the methods above
        "lock",  # a context manager, tried below
        "refuse_if_frozen",  # takes words of ours
    }
    public = {name for name, _ in inspect.getmembers(Scheduler, callable) if not name.startswith("_")}
    assert public == METHODS.keys() | others


async def _refused_or_done(call):
    """Make a call, which may be refused plainly and must end."""
    async with asyncio.timeout(20):
        try:
            value = call()
            if inspect.isawaitable(value):
                await value
        except REFUSALS as exc:
            str(exc).encode("utf-8", "surrogatepass")


async def _is_well(scheduler):
    """An innocent job runs and is recorded; listings work."""
    handle = await scheduler.submit("innocent")
    assert await handle.result(timeout=30) == "done"
    run = await scheduler.get_run(handle.id)
    assert run.state is State.COMPLETED
    page = await scheduler.runs(limit=1000)
    assert handle.id in {each.id for each in page.runs}
    await scheduler.jobs()
    await scheduler.upcoming(50)
    await scheduler.counts()
    health = await scheduler.health()
    assert (health.status, health.failing) == ("healthy", {})


@pytest.fixture
async def scheduler(url):
    scheduler = Scheduler(url, SchedulerConfig(lock_ttl=5.0))

    @scheduler.job
    async def innocent() -> str:
        return "done"

    scheduler.add(Job(name="paused", handler="innocent", schedule=Every(hours=1)))
    async with scheduler:
        yield scheduler
        await _is_well(scheduler)


@pytest.mark.parametrize("method", METHODS)
async def test_hostile_arguments_of_a_method(scheduler, method):
    function = getattr(scheduler, method)
    for parameter in _parameters(function):
        for value in ALL.values():
            arguments = METHODS[method] | {parameter: value}
            await _refused_or_done(lambda: function(**arguments))  # noqa: B023  # called at once


async def test_hostile_locks(scheduler):
    async def hold(**arguments):
        async with scheduler.lock(**{"name": "l", "ttl": 5, "wait": 0} | arguments):
            pass

    for parameter in ("name", "ttl", "wait"):
        for value in ALL.values():
            await _refused_or_done(lambda: hold(**{parameter: value}))  # noqa: B023  # called at once


async def test_hostile_definitions_are_refused_or_can_be_removed(scheduler):
    for field in _parameters(Job):
        for value in ALL.values():
            if value is None:
                continue

            async def register(field=field, value=value):
                job = Job(**{"handler": _innocent, "name": "odd", "schedule": Every(hours=1), field: value})
                await scheduler.register(job)
                await scheduler.get_job(job.name)
                await scheduler.remove(job.name)

            await _refused_or_done(register)


KINDS = {
    SchedulerConfig: {},
    RetryPolicy: {},
    Cron: {"expression": "0 0 * * *"},
    Every: {},
    Once: {"at": ALL["year 9999"]},
    Command: {"argv": ["true"]},
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_hostile_settings_are_refused_where_they_are_written(kind):
    for parameter in _parameters(kind):
        for value in ALL.values():
            try:
                kind(**KINDS[kind] | {parameter: value})
            except REFUSALS as exc:
                str(exc).encode("utf-8", "surrogatepass")


async def test_one_bad_submission_of_many_fails_alone(scheduler):
    async def submit(key):
        return await scheduler.submit("innocent", dedupe_key=key)

    keys = [f"key-{number}" for number in range(49)]
    answers = await asyncio.gather(*map(submit, [*keys, "bad\ud800"]), return_exceptions=True)
    assert [isinstance(answer, DulyError) for answer in answers] == [False] * 49 + [True]


async def test_far_dates_do_not_stop_planning_or_claiming(scheduler):
    for at in (ALL["year 5139"], ALL["year 9999"], ALL["last"]):
        with pytest.raises(DulyError, match="between 1900 and 2200"):
            await scheduler.submit("innocent", at=at)
        with pytest.raises(DulyError, match="between 1900 and 2200"):
            await scheduler.register(Job(name="far", handler="innocent", schedule=Once(at)))
    assert "far" not in {job.name for job in await scheduler.jobs()}
