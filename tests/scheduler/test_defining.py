"""Defining jobs: the decorator, the explicit form, and what is refused at once."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from duly import (
    Command,
    ConfigurationError,
    Context,
    Cron,
    DuplicateJob,
    Every,
    InvalidSchedule,
    Job,
    Once,
    RetryPolicy,
    Scheduler,
    SchedulerConfig,
    SchedulerRunning,
)


def noop() -> None:
    """Do nothing.

    At length.
    """


async def anoop() -> None: ...


def test_a_job_is_named_and_described_by_its_function():
    job = Job(handler=noop)
    assert (job.name, job.description, job.queue, job.priority) == ("noop", "Do nothing.", "default", 0)
    assert Job(handler=noop, name="other", description="Mine.").description == "Mine."
    assert Job(handler=Command(["ls", "-l"]), name="list").description == "ls -l"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"name": "1st"}, "'1st' cannot name a job"),
        ({"name": "a b"}, "'a b' cannot name a job"),
        ({"name": "x" * 129}, "cannot name a job"),
        ({"handler": lambda: None}, "cannot name a job"),
        ({"handler": Command(["ls"])}, "has no name"),
        ({"handler": 5, "name": "x"}, "expected a callable"),
        ({"priority": 11}, "priority=11"),
        ({"queue": ""}, "queue=''"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": -1}, "timeout=-1"),
        ({"timeout": float("inf")}, "timeout=inf"),
        ({"delivery": "twice"}, "delivery='twice' is not one of at_least_once"),
        ({"overlap": "maybe"}, "overlap='maybe'"),
        ({"misfire": "never"}, "misfire='never'"),
        ({"on_store_loss": "panic"}, "on_store_loss='panic'"),
        ({"executor": "gpu"}, "executor='gpu'"),
        ({"executor": "async"}, "has a sync handler"),
        ({"handler": anoop, "executor": "thread"}, "has an async handler"),
        ({"tags": "daily"}, "tags='daily'"),
        ({"tags": (1,)}, "tags"),
        ({"max_runs": 0}, "max_runs=0"),
        ({"retry": -1}, "max_retries=-1"),
        ({"delivery": "at_most_once", "retry": 3}, "never tried twice"),
        ({"delivery": "at_most_once", "retry": RetryPolicy()}, "never tried twice"),
    ],
)
def test_a_bad_definition_is_refused_and_names_itself(fields, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        job = Job(**{"handler": noop} | fields)
        job.policy()
        Scheduler("memory://").add(job)


@pytest.mark.parametrize(
    ("schedule", "hint"),
    [
        ("0 * * * *", r"write Cron\('0 \* \* \* \*'\)"),
        (timedelta(seconds=5), "write Every"),
        (5, "write Every"),
        (datetime(2027, 1, 1, tzinfo=UTC), "write Once"),
        (Cron, "next_run"),
        (object(), "next_run"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_way_out(schedule, hint):
    with pytest.raises(InvalidSchedule, match=hint):
        Job(handler=noop, schedule=schedule)


def test_naive_bounds_are_refused():
    with pytest.raises(InvalidSchedule, match="naive"):
        Job(handler=noop, schedule=Every(seconds=5), start_at=datetime(2027, 1, 1))
    with pytest.raises(InvalidSchedule):
        Once(datetime(2027, 1, 1))


def test_omitted_retry_is_the_default_policy_and_none_is_no_retry():
    assert Job(handler=noop).retry_policy == RetryPolicy()
    assert Job(handler=noop, retry=None).retry_policy.max_retries == 0
    assert Job(handler=noop, retry=5).retry_policy.max_retries == 5
    assert Job(handler=noop, delivery="at_most_once").retry_policy.max_retries == 0
    assert Job(handler=noop, delivery="at_most_once", retry=None).retry_policy.max_retries == 0


def test_a_name_is_taken_once_and_both_places_are_told():
    scheduler = Scheduler("memory://")
    scheduler.add(Job(handler=noop))
    with pytest.raises(DuplicateJob, match=r"'noop' is defined twice: at .*test_defining.py:\d+ and at .*\.py:\d+"):
        scheduler.add(Job(handler=noop))
    scheduler.add(Job(handler=noop, name="noop2"))


async def test_a_scheduled_handler_needs_its_arguments():
    scheduler = Scheduler("memory://")

    @scheduler.job(Every(seconds=5))
    async def report(region: str, *, full: bool = False) -> None: ...

    with pytest.raises(ConfigurationError, match=r"needs region: give payload=\{…\}"):
        await scheduler.start()


async def test_a_scheduled_payload_is_checked_at_registration():
    scheduler = Scheduler("memory://")

    @scheduler.job(Every(seconds=5), payload={"region": 5})
    async def report(region: str) -> None: ...

    with pytest.raises(ValueError, match="Expected `str`, got `int`"):
        await scheduler.start()


async def test_annotations_are_resolved_at_start_not_at_decoration():
    scheduler = Scheduler("memory://")

    @scheduler.job()
    async def odd(x: "NotDefined") -> None: ...  # noqa: F821

    with pytest.raises(ConfigurationError, match=r"'odd'.*NotDefined"):
        await scheduler.start()


@pytest.mark.parametrize("position", ["second", "star", "slash"])
async def test_signatures_that_cannot_be_payloads_are_refused(position):
    scheduler = Scheduler("memory://")
    if position == "second":

        @scheduler.job(name="bad")
        async def bad(n: int, ctx: Context) -> None: ...

    elif position == "star":

        @scheduler.job(name="bad")
        async def bad(*n: int) -> None: ...

    else:

        @scheduler.job(name="bad")
        async def bad(n: int, /) -> None: ...

    with pytest.raises(ConfigurationError, match="'bad'"):
        await scheduler.start()


async def test_keywords_are_open_if_the_handler_takes_any():
    scheduler = Scheduler("memory://")
    seen = {}

    @scheduler.job()
    async def any_of(n: int, **rest) -> None:
        seen.update(n=n, **rest)

    async with scheduler:
        await (await any_of.submit(n=1, a="x", b=[1, None])).result(timeout=30)
    assert seen == {"n": 1, "a": "x", "b": [1, None]}


async def test_one_handler_may_serve_many_jobs():
    scheduler = Scheduler("memory://")
    seen = []

    @scheduler.job()
    async def report(ctx: Context, region: str) -> None:
        seen.append((ctx.job, region))

    scheduler.add(Job(name="report-eu", handler="report", schedule=Every(hours=1), payload={"region": "eu"}))
    async with scheduler:
        await (await scheduler.trigger("report-eu")).result(timeout=30)
        await (await scheduler.submit("report-eu", {"region": "us"})).result(timeout=30)
    assert seen == [("report-eu", "eu"), ("report-eu", "us")]


async def test_commands_are_off_unless_allowed():
    scheduler = Scheduler("memory://")
    scheduler.add(Job(name="list", handler=Command(["true"])))
    with pytest.raises(ConfigurationError, match="allow_commands=True"):
        await scheduler.start()
    allowed = Scheduler("memory://", SchedulerConfig(allow_commands=True))
    allowed.add(Job(name="list", handler=Command(["true"])))
    async with allowed:
        result = await (await allowed.submit("list")).result(timeout=30)
    assert result["exit_code"] == 0


async def test_a_process_needs_a_function_that_can_be_imported():
    scheduler = Scheduler("memory://")

    @scheduler.job(executor="process")
    def local() -> None: ...

    with pytest.raises(ConfigurationError, match="executor='process'"):
        await scheduler.start()


async def test_exactly_once_needs_transactions():
    scheduler = Scheduler("memory://")

    @scheduler.job(delivery="exactly_once")
    async def pay(ctx: Context) -> None: ...

    with pytest.raises(ConfigurationError, match="no transactions"):
        await scheduler.start()


async def test_defining_while_running_is_done_by_registering():
    scheduler = Scheduler("memory://")
    async with scheduler:
        with pytest.raises(SchedulerRunning, match="register"):
            scheduler.add(Job(handler=noop))
        with pytest.raises(SchedulerRunning):
            scheduler.configure("memory://other")
        await scheduler.register(Job(handler=noop))
        assert await (await scheduler.submit("noop")).result(timeout=30) is None


async def test_a_frozen_registry_does_not_change_while_running():
    scheduler = Scheduler("memory://", SchedulerConfig(registry="frozen"))
    scheduler.add(Job(handler=noop, schedule=Every(hours=1)))
    async with scheduler:
        with pytest.raises(SchedulerRunning, match="frozen"):
            await scheduler.register(Job(handler=anoop))
        with pytest.raises(SchedulerRunning, match="frozen"):
            await scheduler.remove("noop")
        await scheduler.pause("noop")
        await scheduler.resume("noop")
        await (await scheduler.trigger("noop")).result(timeout=30)


async def test_modules_are_imported_at_start(tmp_path, monkeypatch):
    (tmp_path / "shop_jobs.py").write_text(
        "from shop_app import scheduler\n\n@scheduler.job()\nasync def bill() -> str:\n    return 'billed'\n"
    )
    (tmp_path / "shop_app.py").write_text(
        "from duly import Scheduler\n\nscheduler = Scheduler('memory://', imports=['shop_jobs'])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from shop_app import scheduler

    async with scheduler:
        assert await (await scheduler.submit("bill")).result(timeout=30) == "billed"


def test_the_default_zone_is_the_schedulers():
    scheduler = Scheduler("memory://", SchedulerConfig(timezone="Europe/Berlin"))

    @scheduler.job(Cron("0 3 * * *"))
    async def nightly() -> None: ...

    @scheduler.job(Cron("0 3 * * *", timezone=ZoneInfo("Asia/Tokyo")))
    async def tokyo() -> None: ...

    assert nightly.job.spec("Europe/Berlin", b"{}").schedule.timezone == "Europe/Berlin"
    assert tokyo.job.spec("Europe/Berlin", b"{}").schedule.timezone == "Asia/Tokyo"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"lock_ttl": 0}, "lock_ttl=0: expected a duration from 0.1 to 3600"),
        ({"lock_refresh_interval": 8}, "lock_refresh_interval=8: expected a duration from 0.01 to 7.5"),
        ({"max_concurrent": 0}, "max_concurrent=0"),
        ({"timezone": "Mars/Base"}, "timezone='Mars/Base'"),
        ({"namespace": "No!"}, "namespace='No!'"),
        ({"roles": ()}, "roles"),
        ({"roles": ("boss",)}, "roles"),
        ({"queues": {"a": 0}}, "weight of 'a'"),
        ({"registry": "thawed"}, "registry='thawed'"),
        ({"placement": "anywhere"}, "placement='anywhere'"),
        ({"misfire_grace": -1}, "misfire_grace=-1"),
        ({"node_id": "a b"}, "node_id='a b'"),
        ({"tick_interval": "5s"}, "tick_interval='5s'"),
    ],
)
def test_bad_settings_name_field_value_and_range(fields, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        SchedulerConfig(**fields)


def test_settings_are_immutable_and_take_timedeltas():
    config = SchedulerConfig(lock_ttl=timedelta(seconds=30))
    assert (config.lease, config.refresh, config.horizon) == (30.0, 10.0, timedelta(seconds=30))
    with pytest.raises(AttributeError):
        config.lock_ttl = 5


@pytest.mark.parametrize("url", ["bogus", "://x", "ftp://x", "redis://localhost?colour=red"])
async def test_an_unknown_address_is_refused_clearly(url):
    with pytest.raises(ConfigurationError):
        await Scheduler(url).start()


async def test_stores_that_cannot_be_mixed_are_refused():
    with pytest.raises(ConfigurationError, match="queue="):
        await Scheduler(store="memory://", queue="redis://x").start()
