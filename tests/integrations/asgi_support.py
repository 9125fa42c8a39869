"""What the tests of web frameworks share: an application on a real server, or spoken to without a network."""

import asyncio
import contextlib
import socket
from contextlib import asynccontextmanager

import httpx
import uvicorn
from tests.conftest import eventually


@asynccontextmanager
async def served(app):
    """The application under uvicorn on a free port of its own, for the block."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listening]))

        async def up():
            return server.started or serving.done()

        await eventually(up, "uvicorn is up")
        port = listening.getsockname()[1]
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                yield client
        finally:
            server.should_exit = True
            with contextlib.suppress(SystemExit):
                await serving


@asynccontextmanager
async def called(app):
    """The application called in this process, without its lifespan."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        yield client


class Host:
    """A server's half of a lifespan."""

    def __init__(self, app):
        self._app = app
        self._to_app = asyncio.Queue()
        self._from_app = asyncio.Queue()
        self._task = None

    async def startup(self):
        self._task = asyncio.create_task(self._app({"type": "lifespan"}, self._to_app.get, self._from_app.put))
        return await self.tell("lifespan.startup")

    async def shutdown(self):
        answer = await self.tell("lifespan.shutdown")
        await self._task
        return answer

    async def tell(self, kind):
        await self._to_app.put({"type": kind})
        return await asyncio.wait_for(self._from_app.get(), 30)
