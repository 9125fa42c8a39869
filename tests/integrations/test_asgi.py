"""A scheduler inside web applications: FastAPI and Starlette, a real server, and applications without a lifespan."""

import json
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from tests.api.api_support import new_token
from tests.integrations.asgi_support import Host, called, served

from duly import Scheduler, SchedulerConfig
from duly.api import Api
from duly.integrations.asgi import Alongside, lifespan


@pytest.fixture
def scheduler(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path}/duly.db")

    @scheduler.job
    async def greet(name: str) -> str:
        return f"hello {name}"

    return scheduler


def fastapi_app(scheduler, **options):
    app = FastAPI(lifespan=lifespan(scheduler, **options))
    app.mount("/duly", Api(scheduler))

    @app.get("/greet/{name}")
    async def greet(name: str) -> dict[str, str]:
        run = await scheduler.submit("greet", {"name": name})
        return {"said": await run.result(timeout=30)}

    return app


def starlette_app(scheduler, **options):
    async def greet(request):
        run = await scheduler.submit("greet", request.path_params)
        return JSONResponse({"said": await run.result(timeout=30)})

    routes = [Route("/greet/{name}", greet), Mount("/duly", Api(scheduler))]
    return Starlette(routes=routes, lifespan=lifespan(scheduler, **options))


FRAMEWORKS = pytest.mark.parametrize("make", [fastapi_app, starlette_app])


@FRAMEWORKS
async def test_under_a_real_server_a_request_submits_and_the_applications_own_node_works(make, scheduler):
    async with served(make(scheduler)) as client:
        assert scheduler.is_running
        assert (await client.get("/greet/ada")).json() == {"said": "hello ada"}
    assert not scheduler.is_running


@FRAMEWORKS
async def test_the_api_answers_below_the_path_where_it_is_mounted(make, scheduler):
    async with served(make(scheduler)) as client:
        assert (await client.get("/duly/health")).json()["status"] == "healthy"
        assert (await client.post("/duly/runs", json={"handler": "greet"})).status_code == 401
        client.headers["authorization"] = f"Bearer {await new_token(scheduler, 'submitter')}"
        posted = await client.post("/duly/runs", json={"handler": "greet", "payload": {"name": "bob"}})
        assert posted.status_code == 201
        assert "/runs" in (await client.get("/duly/openapi.json")).json()["paths"]


@FRAMEWORKS
async def test_events_are_followed_through_the_mount(make, tmp_path):
    config = SchedulerConfig(publish_events=True)
    scheduler = Scheduler(f"sqlite:///{tmp_path}/duly.db", config)
    scheduler.job(name="greet")(greeting)
    async with served(make(scheduler)) as client:
        client.headers["authorization"] = f"Bearer {await new_token(scheduler, 'viewer')}"
        async with client.stream("GET", "/duly/events?kind=run.ended") as stream:
            assert stream.headers["content-type"] == "text/event-stream"
            await client.get("/greet/ada")
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    assert json.loads(line.removeprefix("data: "))["job"] == "greet"
                    break


async def greeting(name: str) -> str:
    return f"hello {name}"


@FRAMEWORKS
async def test_called_without_a_network_it_is_the_same(make, scheduler):
    app = make(scheduler)
    async with app.router.lifespan_context(app), called(app) as client:
        assert (await client.get("/greet/eve")).json() == {"said": "hello eve"}
        assert (await client.get("/duly/health")).status_code == 200
    assert not scheduler.is_running


async def test_an_application_may_leave_the_work_to_others(scheduler):
    async with served(fastapi_app(scheduler, node=False)) as client:
        assert not scheduler.is_running
        assert (await client.get("/duly/livez")).status_code == 200


async def test_the_applications_own_lifespan_is_inside_and_its_state_is_passed_on(scheduler):
    seen = []

    @asynccontextmanager
    async def own(app):
        seen.append(("begins", scheduler.is_running))
        yield {"database": "open"}
        seen.append(("ends", scheduler.is_running))

    async def state(request):
        return JSONResponse({"database": request.state.database})

    app = Starlette(routes=[Route("/", state)], lifespan=lifespan(scheduler, inner=own))
    async with served(app) as client:
        assert (await client.get("/")).json() == {"database": "open"}
    assert seen == [("begins", True), ("ends", True)]


# --- any application


async def hello(scope, receive, send):
    """An application that has never heard of lifespans."""
    if scope["type"] != "http":
        raise ValueError(f"only HTTP, not {scope['type']}")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def test_an_application_without_a_lifespan_is_served_beside_a_node(scheduler):
    async with served(Alongside(hello, scheduler)) as client:
        assert scheduler.is_running
        assert (await client.get("/")).text == "hello"
    assert not scheduler.is_running


async def test_an_application_with_a_lifespan_is_told_inside_the_schedulers_life(scheduler):
    told = []

    async def app(scope, receive, send):
        for _ in range(2):
            message = await receive()
            told.append((message["type"], scheduler.is_running))
            await send({"type": f"{message['type']}.complete"})

    host = Host(Alongside(app, scheduler))
    assert (await host.startup())["type"] == "lifespan.startup.complete"
    assert (await host.shutdown())["type"] == "lifespan.shutdown.complete"
    assert told == [("lifespan.startup", True), ("lifespan.shutdown", True)]
    assert not scheduler.is_running


async def test_an_application_that_cannot_start_stops_the_scheduler_and_the_server_is_told(scheduler):
    async def app(scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    answer = await Host(Alongside(app, scheduler)).startup()
    assert answer == {"type": "lifespan.startup.failed", "message": "no database"}
    assert not scheduler.is_running


async def test_a_scheduler_that_cannot_start_is_told_to_the_server():
    answer = await Host(Alongside(hello, Scheduler("nonsense://"))).startup()
    assert answer["type"] == "lifespan.startup.failed"
    assert "nonsense" in answer["message"]
