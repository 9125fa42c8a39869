"""The gateway: calls to any member of the cluster that answers, each with a deadline.

A member that cannot be reached, or has no leader, is not asked for a while; the next one is asked within the same call.
Every call may be repeated safely: each write compares first, and the caller reads again after a lost comparison. The
token of a login is fetched when it is needed, and again when a member no longer knows it.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import httpx2
import msgspec

from duly.backends.backoff import Backoff
from duly.backends.etcd.errors import TokenStale, not_etcd, reply_error, response_error, unreachable
from duly.backends.etcd.messages import Token, WatchMessage, WatchResult
from duly.backends.etcd.settings import ConnectionSettings
from duly.backends.loop_binding import LoopBinding
from duly.errors import BackendUnavailable

T = TypeVar("T")

_SHORTEST_TIMEOUT = 0.05

_encode = msgspec.json.encode


class Member:
    """One member: its address, and how long not to ask it."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.host = origin.partition("://")[2]
        self.backoff = Backoff()


class Gateway:
    """Belongs to the event loop that it was opened on, and to the process."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._binding = LoopBinding(settings.safe_url)
        self._members: list[Member] = []
        self._client: httpx2.AsyncClient | None = None
        self._token = ""
        self._logging_in = asyncio.Lock()

    # --- opening and closing

    async def open(self) -> None:
        """Find a member that answers."""
        if self._binding.is_bound:
            return
        self._binding.release(self._client)
        tls = self._settings.tls
        context = False if tls is None else await asyncio.to_thread(tls.context)
        self._binding.bind()
        self._members = [Member(origin) for origin in self._settings.origins]
        self._token = ""
        self._logging_in = asyncio.Lock()
        self._client = httpx2.AsyncClient(verify=context, trust_env=False)
        try:
            await self.call("maintenance/status", {}, dict)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if self._binding.release(client) and client is not None:
            await client.aclose()

    def _opened(self) -> httpx2.AsyncClient:
        self._binding.check()
        assert self._client is not None
        return self._client

    # --- calls

    async def call(self, path: str, request: dict[str, Any], answer: type[T]) -> T:
        """Ask the members in turn until one answers; `BackendUnavailable` if none does in time."""
        self._opened()
        content = _encode(request)
        deadline = asyncio.get_running_loop().time() + self._settings.timeout
        candidates = self._candidates()
        reasons = []
        for number, member in enumerate(candidates):
            left = deadline - asyncio.get_running_loop().time()
            timeout = max(left / (len(candidates) - number), _SHORTEST_TIMEOUT)
            try:
                response = await self._ask(member, path, content, timeout)
            except BackendUnavailable as exc:
                self._failed(member, exc)
                reasons.append(str(exc))
            else:
                member.backoff.passed()
                self._members.remove(member)
                self._members.insert(0, member)
                return _decoded(response, answer, member.host)
        raise BackendUnavailable(f"no member of {self._settings.safe_url} answers: {'; '.join(reasons)}")

    def _candidates(self) -> list[Member]:
        """The members that may be asked now, the one that answered last first."""
        allowed = [member for member in self._members if not member.backoff.closed_for]
        if not allowed:
            min(self._members, key=lambda member: member.backoff.closed_for).backoff.check()
            return self._members[:1]
        return allowed

    def _failed(self, member: Member, why: BackendUnavailable) -> None:
        """Do not ask this member for a while, and then last."""
        member.backoff.failed(why)
        self._members.remove(member)
        self._members.append(member)

    @property
    def pause(self) -> float:
        """Seconds until a member may be asked."""
        return min((member.backoff.closed_for for member in self._members), default=0.0)

    async def _ask(self, member: Member, path: str, content: bytes, timeout: float) -> bytes:
        """Ask one member, with a new token if it does not know ours."""
        try:
            async with asyncio.timeout(timeout):
                token = await self._token_for(member)
                try:
                    return await self._post(member, path, content, token)
                except TokenStale:
                    return await self._post(member, path, content, await self._token_for(member, stale=token))
        except TimeoutError as exc:
            raise BackendUnavailable(f"{member.host} did not answer within {timeout:.3g} s") from exc

    async def _post(self, member: Member, path: str, content: bytes, token: str) -> bytes:
        client, url = self._opened(), f"{member.origin}/v3/{path}"
        try:
            response = await client.post(url, content=content, headers=_headers(token), timeout=None)
        except httpx2.HTTPError as exc:
            raise unreachable(exc, member.host) from exc
        if response.status_code != httpx2.codes.OK:
            raise response_error(response.status_code, response.content, member.host)
        return response.content

    async def _token_for(self, member: Member, stale: str | None = None) -> str:
        """The token; empty without a login. Concurrent callers wait for the same login."""
        login = self._settings.login
        if login is None:
            return ""
        async with self._logging_in:
            if not self._token or self._token == stale:
                request = _encode({"name": login.username, "password": login.password})
                response = await self._post(member, "auth/authenticate", request, "")
                self._token = _decoded(response, Token, member.host).token
            return self._token

    # --- watching

    async def next_change(self, key: bytes, after: int, silence: float) -> WatchResult | None:
        """The next change of a key after that revision; None if the caller should read the key again.

        That is: nothing was received for `silence` seconds, the member is gone, or etcd has compacted the revision. A
        member that is stopped or cut off neither sends nor closes anything, so silence proves nothing.
        """
        self._opened()
        [member, *_] = self._candidates()
        request = _encode({"create_request": {"key": key, "start_revision": after + 1}})
        try:
            async with asyncio.timeout(silence):
                return await self._watch(member, request, await self._token_for(member))
        except TimeoutError:
            return None
        except TokenStale:
            self._token = ""
        except BackendUnavailable as exc:
            self._failed(member, exc)
        return None

    async def _watch(self, member: Member, request: bytes, token: str) -> WatchResult | None:
        client, url = self._opened(), f"{member.origin}/v3/watch"
        try:
            async with client.stream("POST", url, content=request, headers=_headers(token), timeout=None) as response:
                if response.status_code != httpx2.codes.OK:
                    raise response_error(response.status_code, await response.aread(), member.host)
                async for line in response.aiter_lines():
                    message = _decoded(line, WatchMessage, member.host)
                    if message.error is not None:
                        raise reply_error(message.error, member.host)
                    if message.result.events or message.result.canceled:
                        return None if message.result.canceled else message.result
        except httpx2.HTTPError as exc:
            raise unreachable(exc, member.host) from exc
        raise BackendUnavailable(f"{member.host} has ended a watch")


def _decoded(content: bytes | str, answer: type[T], host: str) -> T:
    try:
        return msgspec.json.decode(content, type=answer, strict=False)
    except msgspec.DecodeError as exc:
        raise not_etcd(host) from exc


def _headers(token: str) -> dict[str, str]:
    content = {"Content-Type": "application/json"}
    return content | {"Authorization": token} if token else content
