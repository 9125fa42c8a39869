"""ASGI: a scheduler that starts and stops with the web application it lives in.

`lifespan` is for FastAPI, Starlette and whatever takes such a function; `Alongside` wraps any other application, also
one that knows nothing of lifespans. The API is an application of its own: `app.mount("/duly", Api(scheduler))`.
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

    With `node=False` the application only submits and looks, and others do the work. `inner` is the application's own
    lifespan: it begins after the scheduler has started and ends before it stops, and what it yields is passed on.
    """

    @asynccontextmanager
    async def living(app: Any) -> AsyncIterator[Any]:
        async with _opened(scheduler, node=node):
            if inner is None:
                yield None
            else:
                async with inner(app) as state:
                    yield state

    return living


def _opened(scheduler: Scheduler, *, node: bool) -> AbstractAsyncContextManager[Scheduler]:
    return scheduler if node else scheduler.client()


class Alongside:
    """An application with a scheduler that lives as long as it: `app = Alongside(get_asgi_application(), scheduler)`.

    The application is told to start after the scheduler has started, and has ended before the scheduler stops. One that
    refuses to hear of lifespans, as Django's does, is served all the same.
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
                answer = await self._told(_Inner(self.app, scope, startup), receive, send)
        except DulyError as error:
            answer = {"type": "lifespan.startup.failed", "message": str(error)}
        await send(answer)

    @staticmethod
    async def _told(inner: _Inner, receive: Receive, send: Send) -> Message:
        """Pass on what the server says, and give back the application's last word."""
        async with inner:
            answer = await inner.answer("lifespan.startup.complete")
            if answer["type"] != "lifespan.startup.complete":
                return answer
            await send(answer)
            inner.tell(await receive())
            return await inner.answer("lifespan.shutdown.complete")


class _Inner:
    """The application's own half of a lifespan, as a task that is spoken to."""

    def __init__(self, app: Application, scope: MutableMapping[str, Any], startup: Message) -> None:
        self._app = app
        self._scope = scope
        self._heard: asyncio.Queue[Message] = asyncio.Queue(maxsize=2)
        self._said: asyncio.Queue[Message] = asyncio.Queue(maxsize=2)
        self._task: asyncio.Task[None] | None = None
        self.tell(startup)

    def tell(self, message: Message) -> None:
        self._heard.put_nowait(message)

    async def __aenter__(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def __aexit__(self, *exc: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        await self._app(self._scope, self._heard.get, self._said.put)

    async def answer(self, otherwise: str) -> Message:
        """What the application says next. By the standard, one that ended or raised does without a lifespan."""
        assert self._task is not None
        saying = asyncio.get_running_loop().create_task(self._said.get())
        await asyncio.wait([saying, self._task], return_when=asyncio.FIRST_COMPLETED)
        if saying.done():
            return saying.result()
        if not self._said.empty():
            return await saying
        saying.cancel()
        return {"type": otherwise}
