"""The application, without a web framework. It is an ASGI application; our own server calls `respond` directly.

A call is routed, its caller is identified, its query and body are checked, and the handler of the route answers. Errors
are problem documents. The application may be mounted at any path: it uses `root_path`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from duly.api import problems
from duly.api.asgi import AsgiExchange, Receive, Scope, Send
from duly.api.calls import COMMON_HEADERS, Call, Reply, Stream
from duly.api.conditions import refuse_unknown
from duly.api.config import ApiContext, ApiSettings
from duly.api.exchange import Disconnected, Exchange
from duly.api.json_input import store_now
from duly.api.openapi import document_of as openapi_of
from duly.api.peers import require_local
from duly.api.permissions import ANONYMOUS, LOCAL, Permission, Principal
from duly.api.problems import Problem, problem_of
from duly.api.reading import body_of, headers_of, query_of, wait_for_end
from duly.api.routes import ROUTES, Route, Routing
from duly.api.streaming import send_stream
from duly.api.tokens import Authenticator
from duly.errors import DulyError
from duly.observe.metrics import METERED, MetricsRecorder
from duly.ports import Backend, SystemClock
from duly.scheduler import Scheduler

_log = logging.getLogger("duly.api")

_BEARER = b"bearer "
_CHECK_AGAIN = 2.0  # seconds between checks whether the token of a stream is still valid
_READ_METHODS = frozenset({"GET", "HEAD"})


class Api:
    """An ASGI application for one scheduler: `app.mount("/duly", Api(scheduler))`, or `duly serve`."""

    def __init__(
        self,
        scheduler: Scheduler,
        settings: ApiSettings | None = None,
        *,
        routes: Iterable[Route] = ROUTES,
        meters: MetricsRecorder | None = None,
    ) -> None:
        self.settings = settings or ApiSettings()
        self.routes = (*routes, Route("GET", "/openapi.json", Permission.PUBLIC, self._document, {200: dict[str, Any]}))
        self.context = ApiContext(scheduler, self.settings, meters or MetricsRecorder())
        scheduler.subscribe(self.context.meters, *METERED)
        self._routing = Routing(self.routes)
        self._authenticator = Authenticator(self._backend, SystemClock().monotonic)
        self._openapi: bytes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._serve(AsgiExchange(scope, receive, send))
            case "lifespan":
                await self._live(receive, send)
            case kind:
                raise RuntimeError(f"the API supports HTTP only, not {kind}")

    async def _serve(self, exchange: AsgiExchange) -> None:
        try:
            reply = await self.respond(exchange)
        except Disconnected:
            return
        if isinstance(reply, Stream):
            await self.stream(reply, exchange)
        else:
            await exchange.reply(reply)

    # --- one call

    async def respond(self, exchange: Exchange) -> Reply | Stream:
        """The response to a request. Every error is a reply; only `Disconnected` is raised."""
        try:
            return await self._reply(exchange)
        except Problem as problem:
            return _reply_of(problem)
        except DulyError as error:
            return _reply_of(problem_of(error) or _fault(exchange))
        except Disconnected:
            raise
        except Exception:  # noqa: BLE001  # a bug: logged with its traceback under an id that the caller gets
            return _reply_of(_fault(exchange))

    async def stream(self, stream: Stream, exchange: Exchange) -> None:
        """Send a response without a fixed end, until it ends or the caller or its access is gone."""
        try:
            await exchange.begin([(b"content-type", stream.content_type), *COMMON_HEADERS, *stream.headers])
            if exchange.method == "HEAD":
                await exchange.end()
            else:
                await send_stream(stream, exchange, lambda: self._access_ended(exchange))
        finally:
            stream.close()

    async def _access_ended(self, exchange: Exchange) -> None:
        """Return when the caller's token has been revoked or has expired. While the store is away, access continues."""
        while True:
            await asyncio.sleep(_CHECK_AGAIN)
            try:
                await self._caller(exchange, headers_of(exchange.pairs))
            except Problem:
                return
            except DulyError:
                continue

    async def _reply(self, exchange: Exchange) -> Reply | Stream:
        method, path, root = exchange.method, exchange.path, exchange.root
        headers = headers_of(exchange.pairs)
        route, name = self._routing.find(method, path.removeprefix(root) if root else path)
        principal = await self._principal(route, exchange, headers)
        query = None if route.query is None else query_of(route.query, exchange.query)
        if method not in _READ_METHODS:
            refuse_unknown(headers, route.headers)
        body, most = None, self.settings.max_body_bytes
        if route.body is not None:
            body = await body_of(route.body, headers, exchange, most, self.context.threads)
        elif method not in _READ_METHODS:
            await wait_for_end(headers, exchange, most)
        return await route.handle(Call(self.context, principal, name, query, body, headers, path, root))

    async def _principal(self, route: Route, exchange: Exchange, headers: Mapping[bytes, bytes]) -> Principal:
        if route.permission is Permission.PUBLIC:
            return ANONYMOUS
        principal = await self._caller(exchange, headers)
        principal.require(route.permission)
        client = await self.context.client()
        store_now.set(client.clock.now)
        limits = self.context.limits(client)
        if principal.token_id and (principal.rate is not None or limits.token is not None):
            await limits.count_call(client.backend.store, principal.token_id, principal.rate)
        return principal

    async def _caller(self, exchange: Exchange, headers: Mapping[bytes, bytes]) -> Principal:
        """The caller; raises a `Problem` without a valid token."""
        if self.settings.authentication == "none":
            require_local(exchange.client, headers)
            return LOCAL
        given = headers.get(b"authorization", b"")
        token = given[len(_BEARER) :].strip() if given[: len(_BEARER)].lower() == _BEARER else b""
        principal = await self._authenticator.principal(token) if token else None
        if principal is None:
            raise _unauthenticated(token)
        return principal

    async def _document(self, call: Call[None, None]) -> Reply:
        """The OpenAPI document of this API."""
        if self._openapi is None:
            self._openapi = openapi_of(self.routes)
        return Reply(200, self._openapi)

    async def _backend(self) -> Backend:
        return (await self.context.client()).backend

    # --- startup and shutdown

    async def _live(self, receive: Receive, send: Send) -> None:
        """The lifespan protocol of ASGI: open the store at startup and close it at shutdown."""
        async with AsyncExitStack() as stack:
            while True:
                message = await receive()
                if message["type"] == "lifespan.startup":
                    try:
                        await stack.enter_async_context(self.context.scheduler.client())
                    except DulyError as error:
                        await send({"type": "lifespan.startup.failed", "message": str(error)})
                        return
                    await send({"type": "lifespan.startup.complete"})
                else:
                    self.context.drain()
                    break
        await send({"type": "lifespan.shutdown.complete"})


def _unauthenticated(token: bytes) -> Problem:
    how = "send `Authorization: Bearer <token>`; create one with `duly token create --role submitter`"
    detail = f"the token is unknown, expired or revoked: {how}" if token else f"a token is required: {how}"
    return Problem(401, "unauthenticated", detail, headers=((b"www-authenticate", b"Bearer"),))


def _fault(exchange: Exchange) -> Problem:
    """A bug: the log has the traceback, and the caller gets the id of the log entry."""
    fault_id = secrets.token_hex(6)
    _log.exception("fault %s at %s %s", fault_id, exchange.method, exchange.path)
    return Problem(500, "fault", f"internal error; the log of the server has the cause under {fault_id}")


def _reply_of(problem: Problem) -> Reply:
    return Reply(problem.status, problem.body(), problems.CONTENT_TYPE, problem.headers)
