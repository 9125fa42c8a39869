"""ASGI: a scheduler that starts and stops with a web application.

`lifespan` is for FastAPI, Starlette and other frameworks that take such a function; `Alongside` wraps any other
application, also one without lifespan support. The REST API is a separate application:
`app.mount("/duly", Api(scheduler))`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from duly.errors import DulyError
from duly.scheduler import Scheduler

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def lifespan(scheduler: Scheduler, *, node: bool = True, inner: Lifespan | None = None) -> Lifespan:
    """A lifespan that runs a node with the application: `FastAPI(lifespan=lifespan(scheduler))`.

    With `node=False` the application is only a client, and other processes execute the runs. `inner` is the
    application's own lifespan: it begins after the scheduler has started, ends before it stops, and its value is
    passed on.
    """

    @asynccontextmanager
    async def scheduler_lifespan(app: Any) -> AsyncIterator[Any]:
        async with _opened(scheduler, node=node):
            if inner is None:
                yield None
            else:
                async with inner(app) as state:
                    yield state

    return scheduler_lifespan


def _opened(scheduler: Scheduler, *, node: bool) -> AbstractAsyncContextManager[Scheduler]:
    return scheduler if node else scheduler.client()


class Alongside:
    """Runs a scheduler together with an application: `app = Alongside(get_asgi_application(), scheduler)`.

    The application starts after the scheduler has started, and ends before the scheduler stops. Applications without
    lifespan support, such as Django's, work as well.
    """

    def __init__(self, app: Application, scheduler: Scheduler, *, node: bool = True) -> None:
        self.app = app
        self.scheduler = scheduler
        self._node = node

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _live(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        startup = await receive()
        try:
            async with _opened(self.scheduler, node=self._node):
                answer = await self._forward(_Inner(self.app, scope, startup), receive, send)
        except DulyError as error:
            answer = {"type": "lifespan.startup.failed", "message": str(error)}
        await send(answer)

    @staticmethod
    async def _forward(inner: _Inner, receive: Receive, send: Send) -> Message:
        """Forward the messages of the server to the application, and return its last answer."""
        async with inner:
            answer = await inner.answer("lifespan.startup.complete")
            if answer["type"] != "lifespan.startup.complete":
                return answer
            await send(answer)
            inner.send(await receive())
            return await inner.answer("lifespan.shutdown.complete")


class _Inner:
    """The application's side of the lifespan protocol, as a task that exchanges messages."""

    def __init__(self, app: Application, scope: MutableMapping[str, Any], startup: Message) -> None:
        self._app = app
        self._scope = scope
        self._received: asyncio.Queue[Message] = asyncio.Queue(maxsize=2)
        self._sent: asyncio.Queue[Message] = asyncio.Queue(maxsize=2)
        self._task: asyncio.Task[None] | None = None
        self.send(startup)

    def send(self, message: Message) -> None:
        self._received.put_nowait(message)

    async def __aenter__(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def __aexit__(self, *exc: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        await self._app(self._scope, self._received.get, self._sent.put)

    async def answer(self, otherwise: str) -> Message:
        """The next message of the application. By the standard, one that ended or raised does not support lifespans."""
        assert self._task is not None
        sending = asyncio.get_running_loop().create_task(self._sent.get())
        await asyncio.wait([sending, self._task], return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            return sending.result()
        if not self._sent.empty():
            return await sending
        sending.cancel()
        return {"type": otherwise}
