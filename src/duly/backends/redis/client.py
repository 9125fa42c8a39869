"""The wire: how a session talks to the server. Scripts by name, on lanes that do not wait for each other.

A lane is one connection; calls on it are written at once and answered in order, so many share it without waiting for
each other's round trips. Every call has a deadline. A broken connection is made anew by the next call; what was under
way on it raises `BackendUnavailable`, since nobody knows whether it happened.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from hiredis import ReplyError

from duly.backends.redis.connection import Connection, Word, answer_of, kind_of, moved_to, pack, refused
from duly.backends.redis.discovery import Discovery, ReconnectingConnection
from duly.backends.redis.loader import Script, scripts
from duly.backends.redis.notify import Ear, Notifier, Subscriber
from duly.backends.redis.settings import Place
from duly.errors import BackendError, BackendUnavailable
from duly.model import to_micros
from duly.ports import StoreClock
from duly.ports.waiting import shielded

_LOSSES = {
    "empty": "has forgotten everything: it came back, or was emptied, without what it had acknowledged",
    "other": "is not the store it was: another node has found it empty or behind, and it began anew",
    "behind": "has forgotten its latest changes: it came back from an older copy, or a replica took over that lagged",
}


class StoreIdentity:
    """What one session knows about the store. `high` is the greatest fence it has seen."""

    def __init__(self, place: str) -> None:
        self.id = ""
        self.number = 0
        self.high = 0
        self._place = place

    def saw(self, fence: int) -> None:
        """A fence was given out; no later one may be smaller."""
        self.high = max(self.high, fence)

    def question(self) -> tuple[str, int, str, int]:
        """What the store is told: whom we know, how far, and what to call itself if it has to begin anew."""
        return self.id, self.high, secrets.token_hex(8), self.number

    def learn(self, found: bytes, number: int, last: int, verdict: bytes) -> None:
        """Take the answer in; raise once if the store is another, or has lost something."""
        self.id, self.number = found.decode(), number
        self.saw(last)
        if (loss := _LOSSES.get(verdict.decode())) is not None:
            raise BackendUnavailable(f"{self._place} {loss} (incarnation {number} of the store)")

    def differs(self, found: bytes | None, last: bytes | None) -> bool:
        """Whether what a beat came back with is not what this session knows."""
        return bool(self.id) and ((found or b"").decode() != self.id or int(last or 0) < self.high)


MAIN = "main"
HELLO = "hello"
_MOST_MOVES = 5

_inherited: list[object] = []  # kept from being closed by the collector of garbage


class RedisClient:
    """Belongs to the event loop that it was opened on, and to the process."""

    def __init__(
        self,
        place: Place,
        namespace: str,
        library: Mapping[str, Script] | None = None,
        clock: StoreClock | None = None,
    ) -> None:
        self._clock = clock
        self.place = place
        self.namespace = namespace
        self.prefix = f"duly:{{{namespace}}}:".encode()
        self.incarnation = StoreIdentity(place.shown)
        self._scripts = scripts() if library is None else library
        self._lanes: dict[str, ReconnectingConnection] = {}
        self._teaching: dict[bytes, asyncio.Future[Any]] = {}
        self._finder = Discovery(place)
        self._notifier: Notifier | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    # --- life

    async def open(self) -> None:
        """Connect, and look whether this is the store we know."""
        if self._loop is not None and self._process == os.getpid():
            return
        self._leave_to_parent()
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._finder = Discovery(self.place)
        self._notifier = Notifier(self._subscriber, lambda: self._finder.gate.closed_for)
        try:
            await self._finder.prepare()
            await self._lane(MAIN).connection()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Let go of all connections."""
        self._leave_to_parent()
        lanes, notifier = self._lanes, self._notifier
        self._loop, self._lanes, self._notifier = None, {}, None
        if notifier is not None:
            await notifier.close()
        for lane in lanes.values():
            await lane.close()

    def _leave_to_parent(self) -> None:
        """In a forked child: its copies of connections are never used, nor closed, since they are its parent's."""
        if self._process != os.getpid():
            _inherited.extend((self._lanes, self._notifier))
            self._loop, self._lanes, self._notifier = None, {}, None

    def _check(self) -> None:
        """Refuse to be used before opening, after a fork, or from another loop."""
        if self._loop is None:
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

    # --- calls

    def moment(self, now: datetime | None) -> Word:
        """What a script is told about the time.

        The instant that a test gives; else, negative, what we expect the server's clock to show, so that a jump of that
        clock is noticed by the very call that it would mislead; nothing before we know it.
        """
        if now is not None:
            return to_micros(now)
        return -self._clock.micros() if self._clock is not None and self._clock.known else b""

    async def call(self, script: str, *args: Word, lane: str = MAIN) -> Any:
        """Run a script by name. It gets the prefix of all keys as KEYS[1], and the arguments."""
        self._check()
        spell = self._scripts[script]
        command = pack((b"EVALSHA", spell.sha, b"1", self.prefix, *args))
        way = self._lanes.get(lane) or self._lane(lane)
        reply = await (way.live or await way.connection()).ask(command)
        if isinstance(reply, ReplyError):
            return await self._again(reply, command, way, spell)
        return reply

    async def command(self, *words: Word, lane: str = MAIN) -> Any:
        """Send a plain command: for what is looked at rather than done."""
        self._check()
        way = self._lane(lane)
        command = pack(words)
        reply = await (await way.connection()).ask(command)
        if isinstance(reply, ReplyError):
            return await self._again(reply, command, way, None)
        return reply

    async def _again(self, reply: ReplyError, command: bytes, way: ReconnectingConnection, spell: Script | None) -> Any:
        """Do what an error reply asks for, if it is one of those that say how; the command has not happened."""
        answer: Any = reply
        for _ in range(_MOST_MOVES):
            text = str(answer)
            if spell is not None and text.startswith("NOSCRIPT"):
                connection = await way.connection()
                await self._teach(connection, spell)
            elif (address := moved_to(text)) is not None:
                if self._finder.follow(address):
                    self._hang_up(text)
                connection = await way.connection()
            else:
                break
            answer = await connection.ask(command)
            if not isinstance(answer, ReplyError):
                return answer
        raise self._refused(str(answer), spell)

    def _refused(self, text: str, spell: Script | None) -> BackendError:
        if kind_of(text) == "READONLY":  # every lane leads to a server that is no master any more
            self._hang_up(text)
        return refused(text if spell is None else f"{text} [{spell.name}]", self.place.shown)

    def _hang_up(self, why: str) -> None:
        for lane in self._lanes.values():
            lane.drop(why)
        if self._notifier is not None:
            self._notifier.drop(ConnectionError(why))

    async def _teach(self, connection: Connection, script: Script) -> None:
        """Make a script known to the server; those who miss it at the same time share one attempt.

        Only those that are called: each makes the server's collector of Lua's garbage slower for all.
        """
        teaching = self._teaching.get(script.sha)
        if teaching is None:
            teaching = self._teaching[script.sha] = connection.send(pack(("SCRIPT", "LOAD", script.text)))
            teaching.add_done_callback(lambda _: self._teaching.pop(script.sha))
        answer_of(await shielded(teaching), self.place.shown)

    async def recognise(self) -> None:
        """Look whether the store is still the one we know; raises once if it is not, or has lost something."""
        self._check()
        await self._meet(await self._lane(MAIN).connection())

    async def _meet(self, connection: Connection) -> bool:
        """Before anything else is said on a new connection: is it the store that we know? False: it is elsewhere."""
        hello = pack((b"EVALSHA", self._scripts[HELLO].sha, b"1", self.prefix, *self.incarnation.question()))
        reply = await connection.ask(hello)
        if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT"):
            await self._teach(connection, self._scripts[HELLO])
            reply = await connection.ask(hello)
        if isinstance(reply, ReplyError) and (address := moved_to(str(reply))) is not None:
            self._finder.follow(address)
            return False
        self.incarnation.learn(*answer_of(reply, self.place.shown))
        return True

    def _lane(self, name: str) -> ReconnectingConnection:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = ReconnectingConnection(self._finder, self.place, self._meet)
        return lane

    # --- listening

    def ear(self, *channels: str | bytes) -> Ear:
        """Somebody who listens to channels of this namespace, by their names without the prefix.

        `async with wire.ear("work") as ear: … await ear.wait(5.0)`
        """
        self._check()
        assert self._notifier is not None
        names = (name.encode() if isinstance(name, str) else name for name in channels)
        return Ear(self._notifier, tuple(self.prefix + name for name in names))

    async def _subscriber(self, lost: Any, heard: Any) -> Subscriber:
        return await self._finder.connect(lambda: Subscriber(self.place.shown, self.place.timeout, lost, heard))
