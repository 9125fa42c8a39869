"""The doorbell: Redis Streams that say "look", read by a group of which one gets each entry; and a word to everybody.

It keeps nothing that is not in the store. Whatever happens to it, calls here do not raise: they say that they could
not, `away` tells why, and after a while they try again. Nobody is held up by it for longer than a moment.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode

from msgspec import Struct

from duly.backends.backoff import Backoff
from duly.backends.redis.client import RedisClient
from duly.backends.redis.connection import Word
from duly.backends.redis.loader import Script, made
from duly.backends.redis.notify import Ear
from duly.backends.redis.settings import Place, checked_namespace, parse
from duly.backends.split.priority_bands import ANY, BANDS, Ready
from duly.errors import BackendError, BackendUnavailable, ConfigurationError

T = TypeVar("T")

LOOK = b"look"
_CHANNEL = "door"
_TURN = b"sweeping"
_MOST_ENTRIES = 10_000
_MOST_READ = 64
_MOST_RUNG = 500  # entries at once: when that many are rung for, nobody sleeps
_PATIENCE = 0.5  # seconds that anybody is held up at most
_LATELY = 10
_TOO_LONG = 1_500  # milliseconds until an entry that was read is somebody else's
_FORGOTTEN = 3_600_000
_NAME = re.compile(r"[\w.:-]{1,64}", re.ASCII)


class Door(Struct, frozen=True):
    """Where the doorbell is. Streams are `duly:{namespace}:stream:<stream>:<band>`."""

    place: Place
    stream: str = "jobs"
    group: str = "workers"


def parse_door(url: str) -> Door:
    """A Redis URL, which may have the options `stream` and `group` besides its own."""
    before, mark, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    own = {name: value for name, value in options if name in {"stream", "group"}}
    for name, value in own.items():
        if _NAME.fullmatch(value) is None:
            raise ConfigurationError(f"{name}={value!r} is not possible: letters, digits, _ . : and -, at most 64")
    rest = urlencode([(name, value) for name, value in options if name not in own])
    return Door(parse(f"{before}{mark if rest else ''}{rest}"), **own)


class Entry(Struct, frozen=True, gc=False):
    """What was read: where it is in its stream, and the runs it was rung for."""

    id: bytes
    ready: Ready


@cache
def _library() -> dict[str, Script]:
    folder = files("duly.backends.split") / "scripts"
    names = ("hello", "prepare", "ring", "sweep", "forget", "collect")
    return {name: made(name, (folder / f"{name}.lua").read_text("utf-8")) for name in names}


class StreamNotifier:
    """One session's: it rings, and it is read by one task at a time."""

    def __init__(self, door: Door, namespace: str) -> None:
        self.url = door.place.shown
        self.away: str | None = None
        self._door = door
        self._namespace = namespace
        self._client = RedisClient(door.place, namespace, _library())
        self._gate = Backoff()
        self._ear: Ear | None = None
        self._streams = {f"stream:{door.stream}:{band}": band for band in BANDS}
        self._names = {band: name for name, band in self._streams.items()}
        self._opened = False

    def session(self) -> StreamNotifier:
        return StreamNotifier(self._door, self._namespace)

    async def open(self) -> None:
        """Connect if that is possible now. Only what will not pass by itself is raised."""
        self._gate = Backoff()
        try:
            await self._ready()
        except BackendUnavailable as exc:
            self._failed(exc)

    async def close(self) -> None:
        self._opened = False
        ear, self._ear = self._ear, None
        if ear is not None:
            ear.close()
        await self._client.close()

    @property
    def pause(self) -> float:
        """Seconds until it is worth trying again."""
        return self._gate.closed_for

    # --- ringing

    async def ring(self, entries: Sequence[Ready], word: bytes = b"") -> bool:
        """Say that these runs are ready, and a word to everybody; whether it was said."""
        words = [text for each in entries[:_MOST_RUNG] for text in self._words(each)]
        return await self._tried(lambda: self._client.call("ring", _MOST_ENTRIES, _CHANNEL, word, *words)) is not None

    def _words(self, ready: Ready) -> tuple[str, str, str, str]:
        return self._names[ready.band], " ".join(ready.runs), ready.queue, ready.handler

    async def sweep(self, runs: Sequence[Ready]) -> int:
        """Say again that these runs, each by itself, are ready, if no sweep has lately; how many that were."""
        words = [text for each in runs for text in self._words(each)]
        return await self._tried(lambda: self._client.call("sweep", _MOST_ENTRIES, _LATELY, *words)) or 0

    async def my_turn(self, node: str, period: float) -> bool:
        """Whether nobody else has had the turn to sweep for that long."""
        key, milliseconds = self._client.prefix + _TURN, round(period * 1000)
        return await self._tried(lambda: self._client.command("SET", key, node, "NX", "PX", milliseconds)) is not None

    # --- listening

    async def read(self, node: str, most: int, timeout: float) -> list[Entry] | None:
        """The next entries for this node, as soon as there are any; None when it could not be read at all."""
        block = min(timeout, self._door.place.timeout / 2)
        keys = [self._client.prefix + name.encode() for name in self._streams]
        words: list[Word] = ["XREADGROUP", "GROUP", self._door.group, node, "COUNT", max(1, min(most, _MOST_READ))]
        words += ["BLOCK", max(1, round(block * 1000)), "STREAMS", *keys, *([">"] * len(keys))]
        answer = await self._tried(lambda: self._client.command(*words, lane="door"), patience=None)
        if answer is None:
            return None if self.away else []
        return [_entry(entry, self._band(key), fields) for key, found in answer for entry, fields in found if fields]

    async def collect(self, node: str) -> list[Entry]:
        """Entries that others have read and not looked after."""
        words: list[Word] = [self._door.group, node, _TOO_LONG, _MOST_READ, _FORGOTTEN, *self._streams]
        found = await self._tried(lambda: self._client.call("collect", *words)) or []
        return [_entry(entry, self._streams[name.decode()], fields) for name, entry, fields in found]

    async def forget(self, entries: Sequence[Entry], word: bytes = b"") -> None:
        """These have been looked after; or everybody is told by this word to look after them."""
        words: list[Word] = [self._door.group, _CHANNEL, word]
        for entry in entries:
            words += (self._names[entry.ready.band], entry.id)
        await self._tried(lambda: self._client.call("forget", *words))

    async def words(self, timeout: float) -> list[bytes]:
        """What was said to everybody since the last time; nothing after that time."""
        if self._ear is None:
            await asyncio.sleep(timeout)
            return []
        return await self._ear.wait(timeout)

    def _band(self, key: bytes) -> str:
        return self._streams[key.removeprefix(self._client.prefix).decode()]

    # --- trying

    async def _tried(self, work: Callable[[], Awaitable[T]], patience: float | None = _PATIENCE) -> T | None:
        """What the work answers; None when it could not be done, and `away` says why."""
        if self._gate.closed_for:
            return None
        try:
            async with asyncio.timeout(patience):
                await self._ready()
                answer = await self._repeated(work)
        except TimeoutError:
            self._failed(BackendUnavailable(f"{self.url} did not answer within {patience:g} s"))
        except BackendError as exc:
            self._failed(exc)
        else:
            self._gate.passed()
            self.away = None
            return answer
        return None

    async def _repeated(self, work: Callable[[], Awaitable[T]]) -> T:
        """Once more, where the streams were gone: the server was emptied or is another one."""
        try:
            return await work()
        except BackendError as exc:
            if not any(word in str(exc) for word in ("NOGROUP", "UNBLOCKED")):
                raise
            await self._prepare()
            return await work()

    async def _ready(self) -> None:
        if self._opened:
            return
        await self._client.open()
        await self._prepare()
        if self._ear is None:
            ear = self._client.ear(_CHANNEL)
            await ear.open()
            await ear.wait(0)  # a new connection begins with a ring for everybody
            self._ear = ear
        self._opened = True

    async def _prepare(self) -> None:
        await self._client.call("prepare", self._door.group, *self._streams)

    def _failed(self, why: BackendError) -> None:
        self.away = str(why)
        self._gate.failed(BackendUnavailable(str(why)))


def _entry(entry: bytes, band: str, fields: Sequence[bytes]) -> Entry:
    """An entry as it was read. One of an earlier version names runs alone."""
    told = {name.decode(): value.decode() for name, value in zip(fields[::2], fields[1::2], strict=True)}
    runs = tuple(told.get("runs", "").split())
    return Entry(entry, Ready(band, runs, told.get("queue", ANY), told.get("handler", ANY)))


def stream_notifier_at(url: str, namespace: str) -> StreamNotifier:
    """The doorbell of a namespace on a Redis server; see docs/split.md."""
    return StreamNotifier(parse_door(url), checked_namespace(namespace))
