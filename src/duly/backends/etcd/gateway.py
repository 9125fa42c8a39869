"""The gateway: calls to whichever member of the cluster answers, each with a deadline.

A member that cannot be reached, or has no leader, is left alone for a while; the next one is asked within the same
call. Every call is one that may be repeated: whoever writes compares, and looks again after a lost comparison. The
token of a login is fetched when it is needed, and again when a member does not know it any more.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, TypeVar

import httpx2
import msgspec

from duly.backends.backoff import Backoff
from duly.backends.etcd.errors import TokenStale, foreign, refusal_of, refused, unreachable
from duly.backends.etcd.messages import Heard, News, Token
from duly.backends.etcd.url import Place
from duly.errors import BackendError, BackendUnavailable

T = TypeVar("T")

_AUTHENTICATE = "auth/authenticate"
_SHORTEST_TRY = 0.05

_encode = msgspec.json.encode
_inherited: list[object] = []  # kept from being closed by the collector of garbage


class Member:
    """One member: where it is, and whether it is worth asking."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.host = origin.partition("://")[2]
        self.gate = Backoff()


class Gateway:
    """Belongs to the event loop that it was opened on, and to the process."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._members: list[Member] = []
        self._client: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self._token = ""
        self._entering = asyncio.Lock()

    # --- life

    async def open(self) -> None:
        """Make ready, and find a member that answers."""
        if self._loop is not None and self._process == os.getpid():
            return
        self._leave_to_parent()
        context = False if self.place.tls is None else await asyncio.to_thread(self.place.tls.context)
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._members = [Member(origin) for origin in self.place.origins]
        self._token = ""
        self._entering = asyncio.Lock()
        self._client = httpx2.AsyncClient(verify=context, trust_env=False)
        try:
            await self.call("maintenance/status", {}, dict)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Let go of all connections."""
        self._leave_to_parent()
        client, self._client, self._loop = self._client, None, None
        if client is not None:
            await client.aclose()

    def _leave_to_parent(self) -> None:
        """In a forked child: its copies of connections are never used, nor closed, since they are its parent's."""
        if self._process != os.getpid() and self._client is not None:
            _inherited.append(self._client)
            self._client, self._loop = None, None

    def _opened(self) -> httpx2.AsyncClient:
        """Refuse to be used before opening, after a fork, or from another loop."""
        if self._loop is None or self._client is None:
            raise BackendError(f"{self.place.shown} is not open in this session: open it, or use `async with`")
        if self._process != os.getpid():
            raise BackendError(
                f"this process was forked after {self.place.shown} was opened, and a connection must not be carried"
                " across a fork: open a new session in the child"
            )
        if self._loop is not asyncio.get_running_loop():
            raise BackendError(
                f"{self.place.shown} was opened on another event loop: open a `session()` of its own for this one"
            )
        return self._client

    # --- calls

    async def call(self, path: str, words: dict[str, Any], answer: type[T]) -> T:
        """Ask the members in turn until one answers; `BackendUnavailable` when none does in time."""
        self._opened()
        content = _encode(words)
        deadline = asyncio.get_running_loop().time() + self.place.timeout
        candidates = self._candidates()
        reasons = []
        for number, member in enumerate(candidates):
            left = deadline - asyncio.get_running_loop().time()
            patience = max(left / (len(candidates) - number), _SHORTEST_TRY)
            try:
                said = await self._ask(member, path, content, patience)
            except BackendUnavailable as exc:
                self._away(member, exc)
                reasons.append(str(exc))
            else:
                member.gate.passed()
                self._prefer(member)
                return _decoded(said, answer, member.host)
        raise BackendUnavailable(f"no member of {self.place.shown} answers: {'; '.join(reasons)}")

    def _candidates(self) -> list[Member]:
        """The members that are worth asking, the one that answered last first."""
        worth = [member for member in self._members if not member.gate.closed_for]
        if not worth:
            min(self._members, key=lambda member: member.gate.closed_for).gate.check()
            return self._members[:1]
        return worth

    def _prefer(self, member: Member) -> None:
        if self._members[0] is not member:
            self._members.remove(member)
            self._members.insert(0, member)

    def _away(self, member: Member, why: BackendUnavailable) -> None:
        """Leave it alone for a while, and ask it last."""
        member.gate.failed(why)
        self._members.remove(member)
        self._members.append(member)

    @property
    def pause(self) -> float:
        """Seconds until it is worth asking again."""
        return min((member.gate.closed_for for member in self._members), default=0.0)

    async def _ask(self, member: Member, path: str, content: bytes, patience: float) -> bytes:
        """One member, with a fresh token if it does not know ours."""
        try:
            async with asyncio.timeout(patience):
                used = await self._entered(member)
                try:
                    return await self._post(member, path, content, used)
                except TokenStale:
                    return await self._post(member, path, content, await self._entered(member, stale=used))
        except TimeoutError as exc:
            raise BackendUnavailable(f"{member.host} did not answer within {patience:.3g} s") from exc

    async def _post(self, member: Member, path: str, content: bytes, token: str) -> bytes:
        client = self._opened()
        try:
            said = await client.post(
                f"{member.origin}/v3/{path}", content=content, headers=_headers(token), timeout=None
            )
        except httpx2.HTTPError as exc:
            raise unreachable(exc, member.host) from exc
        if said.status_code != httpx2.codes.OK:
            raise refused(said.status_code, said.content, member.host)
        return said.content

    # --- logging in

    async def _entered(self, member: Member, stale: str | None = None) -> str:
        """The token, none where there is no login. Whoever comes while it is fetched waits for the same one."""
        login = self.place.login
        if login is None:
            return ""
        async with self._entering:
            if not self._token or self._token == stale:
                words = _encode({"name": login.name, "password": login.password})
                said = await self._post(member, _AUTHENTICATE, words, "")
                self._token = _decoded(said, Token, member.host).token
            return self._token

    # --- watching

    async def news(self, key: bytes, after: int, silence: float) -> News | None:
        """The next that is written to a key after that revision; None when there is reason to look again.

        That is: nothing was heard for `silence` seconds, the member is gone, etcd has compacted what we asked for. A
        member that is stopped or cut off says nothing and closes nothing, so silence must not be trusted for long.
        """
        self._opened()
        [member, *_] = self._candidates()
        words = _encode({"create_request": {"key": key, "start_revision": after + 1}})
        try:
            async with asyncio.timeout(silence):
                return await self._heard(member, words, await self._entered(member))
        except TimeoutError:
            return None
        except TokenStale:
            self._token = ""
        except BackendUnavailable as exc:
            self._away(member, exc)
        return None

    async def _heard(self, member: Member, words: bytes, token: str) -> News | None:
        client, origin = self._opened(), f"{member.origin}/v3/watch"
        try:
            async with client.stream("POST", origin, content=words, headers=_headers(token), timeout=None) as said:
                if said.status_code != httpx2.codes.OK:
                    raise refused(said.status_code, await said.aread(), member.host)
                async for line in said.aiter_lines():
                    news = _news(line, member.host)
                    if news.events or news.canceled:
                        return None if news.canceled else news
        except httpx2.HTTPError as exc:
            raise unreachable(exc, member.host) from exc
        raise BackendUnavailable(f"{member.host} has ended a watch")


def _decoded(said: bytes | str, answer: type[T], host: str) -> T:
    try:
        return msgspec.json.decode(said, type=answer, strict=False)
    except msgspec.DecodeError as exc:
        raise foreign(host) from exc


def _news(line: str, host: str) -> News:
    heard = _decoded(line, Heard, host)
    if heard.error is not None:
        raise refusal_of(heard.error, host)
    return heard.result


def _headers(token: str) -> dict[str, str]:
    content = {"Content-Type": "application/json"}
    return content | {"Authorization": token} if token else content
