"""Handlers whose parameters come from a dishka container."""

from collections.abc import AsyncIterator, Iterator

import pytest
from dishka import Provider, Scope, from_context, make_async_container, make_container, provide

from duly import Context, Every, PayloadError, Run, Scheduler, SchedulerRunning
from duly.integrations.dishka import FromDishka, inject, setup_dishka


class Service:
    """Made once per attempt, and told when the attempt has ended."""

    def __init__(self, run: Run):
        self.run_id, self.attempt = run.id, run.attempt


class Services(Provider):
    run = from_context(provides=Run, scope=Scope.REQUEST)

    def __init__(self):
        super().__init__()
        self.opened, self.closed = [], []

    @provide(scope=Scope.APP)
    def greeting(self) -> str:
        return "hello"


class AsyncServices(Services):
    @provide(scope=Scope.REQUEST)
    async def service(self, run: Run) -> AsyncIterator[Service]:
        service = Service(run)
        self.opened.append(service.attempt)
        yield service
        self.closed.append(service.attempt)


class SyncServices(Services):
    @provide(scope=Scope.REQUEST)
    def service(self, run: Run) -> Iterator[Service]:
        service = Service(run)
        self.opened.append(service.attempt)
        yield service
        self.closed.append(service.attempt)


@inject
async def greet_async(ctx: Context, name: str, greeting: FromDishka[str], service: FromDishka[Service]) -> str:
    assert service.run_id == ctx.run_id
    return f"{greeting} {name}"


@inject
def greet_in_thread(ctx: Context, name: str, greeting: FromDishka[str], service: FromDishka[Service]) -> str:
    assert service.run_id == ctx.run_id
    return f"{greeting} {name}"


HANDLERS = pytest.mark.parametrize("handler", [greet_async, greet_in_thread])
CONTAINERS = pytest.mark.parametrize(
    ("provider", "make"), [(AsyncServices, make_async_container), (SyncServices, make_container)]
)


@HANDLERS
@CONTAINERS
async def test_an_attempt_is_called_with_what_the_container_provides(handler, provider, make):
    scheduler, services = Scheduler("memory://"), provider()
    greet = scheduler.job(name="greet")(handler)
    setup_dishka(make(services), scheduler)
    async with scheduler:
        assert await (await greet.submit(name="ada")).result(timeout=30) == "hello ada"
        assert await (await greet.submit("bob")).result(timeout=30) == "hello bob"
    assert services.opened == services.closed == [1, 1]


@pytest.mark.parametrize("is_async", [True, False])
async def test_every_attempt_has_a_scope_of_its_own_that_ends_with_it_also_when_it_fails(is_async):
    scheduler, services = Scheduler("memory://"), AsyncServices()
    fail = ValueError("not yet")

    @inject
    async def stumble(service: FromDishka[Service]) -> int:
        if service.attempt < 3:
            raise fail
        return service.attempt

    @inject
    def stumble_in_thread(service: FromDishka[Service]) -> int:
        if service.attempt < 3:
            raise fail
        return service.attempt

    from duly import RetryPolicy

    policy = RetryPolicy.fixed(3, 0.01)
    job = scheduler.job(name="stumble", retry=policy)(stumble if is_async else stumble_in_thread)
    setup_dishka(make_async_container(services), scheduler)
    async with scheduler:
        assert await (await job.submit()).result(timeout=30) == 3
    assert services.opened == services.closed == [1, 2, 3]


async def test_a_payload_knows_nothing_of_injected_parameters():
    scheduler = Scheduler("memory://")
    greet = scheduler.job(name="greet")(greet_async)
    async with scheduler.client():
        with pytest.raises(PayloadError, match="greeting"):
            await greet.submit(name="ada", greeting="from outside")
        with pytest.raises(PayloadError, match=r"it takes \(name: str\)"):
            await greet.submit(nome="ada")


async def test_a_scheduled_handler_needs_no_payload_for_what_is_injected():
    scheduler, services = Scheduler("memory://"), AsyncServices()

    @scheduler.job(Every(hours=1))
    @inject
    async def sweep(service: FromDishka[Service]) -> int:
        return service.attempt

    setup_dishka(make_async_container(services), scheduler)
    async with scheduler:
        assert await (await scheduler.trigger("sweep")).result(timeout=30) == 1


async def test_called_by_hand_a_handler_takes_its_dependencies_like_other_parameters():
    scheduler = Scheduler("memory://")

    @scheduler.job
    @inject
    async def greet(name: str, greeting: FromDishka[str]) -> str:
        return f"{greeting} {name}"

    assert await greet(name="ada", greeting="ciao") == "ciao ada"
    with pytest.raises(TypeError, match="greeting"):
        await greet(name="ada")


async def test_a_handler_without_injection_is_called_as_it_is():
    scheduler = Scheduler("memory://")

    @scheduler.job
    async def plain(name: str) -> str:
        return name

    setup_dishka(make_async_container(AsyncServices()), scheduler)
    async with scheduler:
        assert await (await plain.submit(name="ada")).result(timeout=30) == "ada"


async def test_a_running_scheduler_takes_no_container():
    async with Scheduler("memory://") as scheduler:
        with pytest.raises(SchedulerRunning):
            setup_dishka(make_async_container(AsyncServices()), scheduler)


async def test_wrappers_are_nested_in_the_order_they_were_given():
    scheduler, order = Scheduler("memory://"), []

    def wrapper(word):
        def wrap(handler):
            async def call(*args, **kwargs):
                order.append(word)
                return await handler(*args, **kwargs)

            return call

        return wrap

    @scheduler.job
    async def work() -> None:
        order.append("handler")

    scheduler.wrap(wrapper("outer"))
    scheduler.wrap(wrapper("inner"))
    async with scheduler:
        await (await work.submit()).result(timeout=30)
    assert order == ["outer", "inner", "handler"]
