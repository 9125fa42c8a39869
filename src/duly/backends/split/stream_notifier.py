"""Redis Streams that announce ready runs: each entry is read by one node of a group; and messages to all nodes.

The streams hold nothing that is not in the store. Calls here do not raise when the server is away: they report that
they could not, `away` says why, and later calls try again. No caller waits for long.
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
from duly.backends.redis.connection import Argument
from duly.backends.redis.pubsub import Listener
from duly.backends.redis.scripts import Script, script_of
from duly.backends.redis.settings import ConnectionSettings, parse
from duly.backends.split.priority_bands import ANY, BANDS, ReadyRuns
from duly.backends.url_parts import checked_namespace
from duly.errors import BackendError, BackendUnavailable, ConfigurationError

T = TypeVar("T")

LOOK = b"look"  # the message that something changed which may concern any node
_CHANNEL = "connector"  # as in 0.1.0: nodes of both versions listen to it
_TURN = "sweeping"
_MAX_ENTRIES = 10_000
_MAX_READ = 64
_MAX_PUBLISHED = 500  # entries at once: with that many, every node is awake
_TIMEOUT = 0.5  # seconds that a caller waits at most
_LATELY = 10  # seconds in which a sweep does not announce a run again
_TOO_LONG = 1_500  # milliseconds until another node may take over an entry that was read
_CONSUMER_IDLE = 3_600_000
_NAME = re.compile(r"[\w.:-]{1,64}", re.ASCII)


class StreamSettings(Struct, frozen=True):
    """The server, and the names of stream and group. Streams are `duly:{namespace}:stream:<stream>:<band>`."""

    server: ConnectionSettings
    stream: str = "jobs"
    group: str = "workers"


def parse_stream_url(url: str) -> StreamSettings:
    """A Redis URL, which may also have the options `stream` and `group`."""
    before, mark, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    own = {name: value for name, value in options if name in {"stream", "group"}}
    for name, value in own.items():
        if _NAME.fullmatch(value) is None:
            raise ConfigurationError(f"{name}={value!r} is not possible: letters, digits, _ . : and -, at most 64")
    rest = urlencode([(name, value) for name, value in options if name not in own])
    return StreamSettings(parse(f"{before}{mark if rest else ''}{rest}"), **own)


class Entry(Struct, frozen=True, gc=False):
    """An entry that was read: its id in the stream, and the runs that it announces."""

    id: bytes
    ready: ReadyRuns


@cache
def _library() -> dict[str, Script]:
    folder = files("duly.backends.split") / "scripts"
    names = ("identify", "prepare", "publish", "republish", "acknowledge", "take_over")
    return {name: script_of(name, (folder / f"{name}.lua").read_text("utf-8")) for name in names}


class StreamNotifier:
    """Belongs to one session. One task at a time reads."""

    def __init__(self, settings: StreamSettings, namespace: str) -> None:
        self.url = settings.server.safe_url
        self.away: str | None = None
        self._settings = settings
        self._namespace = checked_namespace(namespace, "Redis")
        self._client = RedisClient(settings.server, namespace, _library())
        self._backoff = Backoff()
        self._listener: Listener | None = None
        self._bands = {f"stream:{settings.stream}:{band}": band for band in BANDS}
        self._streams = {band: name for name, band in self._bands.items()}
        self._opened = False

    def session(self) -> StreamNotifier:
        return StreamNotifier(self._settings, self._namespace)

    async def open(self) -> None:
        """Connect if that is possible now. Raises only errors that another attempt would not fix."""
        self._backoff = Backoff()
        try:
            await self._ready()
        except BackendUnavailable as exc:
            self._failed(exc)

    async def close(self) -> None:
        self._opened = False
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        await self._client.close()

    @property
    def pause(self) -> float:
        """Seconds until the next attempt is allowed."""
        return self._backoff.closed_for

    # --- publishing

    async def publish(self, entries: Sequence[ReadyRuns], message: bytes = b"") -> bool:
        """Announce these runs, and send a message to all nodes; whether it succeeded."""
        flat = self._arguments(entries[:_MAX_PUBLISHED])
        return (
            await self._attempt(lambda: self._client.call("publish", _MAX_ENTRIES, _CHANNEL, message, *flat))
            is not None
        )

    async def republish(self, runs: Sequence[ReadyRuns]) -> int:
        """Announce these runs again, each separately, unless a recent sweep has; returns how many."""
        flat = self._arguments(runs)
        return await self._attempt(lambda: self._client.call("republish", _MAX_ENTRIES, _LATELY, *flat)) or 0

    def _arguments(self, entries: Sequence[ReadyRuns]) -> list[str]:
        return [
            argument
            for each in entries
            for argument in (self._streams[each.band], " ".join(each.runs), each.queue, each.handler)
        ]

    async def take_turn(self, node: str, period: float) -> bool:
        """Whether no other node has had the turn to sweep for that long."""
        expiry = round(period * 1000)
        return await self._attempt(lambda: self._client.on_key("SET", _TURN, node, "NX", "PX", expiry)) is not None

    # --- receiving

    async def read(self, node: str, most: int, timeout: float) -> list[Entry] | None:
        """The next entries for this node, as soon as there are any; None if the streams are away."""
        block = min(timeout, self._settings.server.timeout / 2)
        keys = [self._client.prefix + name.encode() for name in self._bands]
        words: list[Argument] = [
            "XREADGROUP",
            "GROUP",
            self._settings.group,
            node,
            "COUNT",
            max(1, min(most, _MAX_READ)),
        ]
        words += ["BLOCK", max(1, round(block * 1000)), "STREAMS", *keys, *([">"] * len(keys))]
        answer = await self._attempt(lambda: self._client.command(*words, connection="read"), timeout=None)
        if answer is None:
            return None if self.away else []
        return [_entry(entry, self._band(key), fields) for key, found in answer for entry, fields in found if fields]

    async def take_over(self, node: str) -> list[Entry]:
        """Entries that other nodes have read and not handled in time."""
        arguments: list[Argument] = [self._settings.group, node, _TOO_LONG, _MAX_READ, _CONSUMER_IDLE, *self._bands]
        found = await self._attempt(lambda: self._client.call("take_over", *arguments)) or []
        return [_entry(entry, self._bands[name.decode()], fields) for name, entry, fields in found]

    async def acknowledge(self, entries: Sequence[Entry], message: bytes = b"") -> None:
        """Delete entries that are handled, or that this message hands over to all nodes."""
        arguments: list[Argument] = [self._settings.group, _CHANNEL, message]
        for entry in entries:
            arguments += (self._streams[entry.ready.band], entry.id)
        await self._attempt(lambda: self._client.call("acknowledge", *arguments))

    async def messages(self, timeout: float) -> list[bytes]:
        """The messages to all nodes since the last call; none after that time."""
        if self._listener is None:
            await asyncio.sleep(timeout)
            return []
        return await self._listener.wait(timeout)

    def _band(self, key: bytes) -> str:
        return self._bands[key.removeprefix(self._client.prefix).decode()]

    # --- attempts

    async def _attempt(self, work: Callable[[], Awaitable[T]], timeout: float | None = _TIMEOUT) -> T | None:
        """The result of the work; None if it failed, and `away` says why."""
        if self._backoff.closed_for:
            return None
        try:
            async with asyncio.timeout(timeout):
                await self._ready()
                answer = await self._with_streams(work)
        except TimeoutError:
            self._failed(BackendUnavailable(f"{self.url} did not answer within {timeout:g} s"))
        except BackendError as exc:
            self._failed(exc)
        else:
            self._backoff.passed()
            self.away = None
            return answer
        return None

    async def _with_streams(self, work: Callable[[], Awaitable[T]]) -> T:
        """Create the streams and repeat if they are missing: the server was emptied or replaced."""
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
        if self._listener is None:
            listener = self._client.listen(_CHANNEL)
            await listener.open()
            await listener.wait(0)  # a new connection begins with MISSED
            self._listener = listener
        self._opened = True

    async def _prepare(self) -> None:
        await self._client.call("prepare", self._settings.group, *self._bands)

    def _failed(self, why: BackendError) -> None:
        self.away = str(why)
        self._backoff.failed(BackendUnavailable(str(why)))


def _entry(entry: bytes, band: str, fields: Sequence[bytes]) -> Entry:
    """An entry as it was read. One of an earlier version has only the ids of runs."""
    named = {name.decode(): value.decode() for name, value in zip(fields[::2], fields[1::2], strict=True)}
    runs = tuple(named.get("runs", "").split())
    return Entry(entry, ReadyRuns(band, runs, named.get("queue", ANY), named.get("handler", ANY)))


def stream_notifier_at(url: str, namespace: str) -> StreamNotifier:
    """The streams of a namespace on a Redis server; see docs/split.md."""
    return StreamNotifier(parse_stream_url(url), namespace)
