"""Published events as they are read back, with their numbers in the log."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from duly.model import Entry
from duly.model.published_event import EVENTS
from duly.ports import ValueStore

UNREADABLE = "events.unreadable"  # the kind of an entry that cannot be read


class _Words(Struct, frozen=True):
    """The fields that events can be filtered by. A kind is plain text: a newer node may publish kinds unknown here."""

    kind: str
    run_id: str | None = None
    job: str | None = None
    queue: str | None = None
    handler: str | None = None
    shard: str | None = None


class ReadEvent(Struct, frozen=True):
    """One event in the log: its number, the fields it can be filtered by, and its JSON as it was written."""

    id: int
    words: _Words
    text: bytes


class Choice(Struct, frozen=True):
    """A filter; all given fields must match, and the kind must be one of `kinds`."""

    kinds: frozenset[str] = frozenset()
    run: str | None = None
    job: str | None = None
    queue: str | None = None
    handler: str | None = None

    @property
    def chooses(self) -> bool:
        """Whether the filter excludes any event."""
        return self != Choice()

    def takes(self, event: ReadEvent) -> bool:
        words = event.words
        return (
            (not self.kinds or words.kind in self.kinds)
            and (self.run is None or words.run_id == self.run)
            and (self.job is None or words.job == self.job)
            and (self.queue is None or words.queue == self.queue)
            and (self.handler is None or words.handler == self.handler)
        )


class EventReader:
    """Belongs to one session on a store."""

    def __init__(self, store: ValueStore) -> None:
        self._store = store

    async def last(self) -> int:
        """The number of the newest event there ever was."""
        last = await self._store.append(EVENTS, [])
        assert last is not None  # nothing was expected
        return last

    async def read(self, after: int, limit: int) -> list[ReadEvent]:
        """Events with a greater number than `after`, in order, as far as they are kept."""
        entries = await self._store.read(EVENTS, after, limit)
        return [_read_event(entry) for entry in entries]


def _read_event(entry: Entry) -> ReadEvent:
    """An entry of the log; one that cannot be read has only its number."""
    try:
        return ReadEvent(entry.sequence, _decode(entry.value), entry.value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ReadEvent(entry.sequence, _Words(UNREADABLE), b'{"kind":"%b"}' % UNREADABLE.encode())


_decode = msgspec.json.Decoder(_Words).decode
