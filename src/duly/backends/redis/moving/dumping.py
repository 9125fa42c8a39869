"""Reading everything that a Redis store contains: in slices, runs by the pages of their creation.

There are no transactions: each record is read as it is at that moment, and each run once. A run that was planned after
its job was read is there, and the job's cursor is older: planning again finds the run by its id. Only a closed store
(`exact`) is read as of one moment.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from duly.backends.record_kinds import Dump, as_stored, dump_page
from duly.backends.redis import listing, reporting
from duly.backends.redis.client import ClientView, slices_of
from duly.backends.redis.codec import NUMBERS, STATES, attempts_of, decode_jobs
from duly.backends.redis.listing import decoded
from duly.backends.redis.records import item_of, statistics_of
from duly.model import FINAL, Entry, Run, State, from_micros, to_micros, transfer
from duly.model.definitions import DEFINITIONS, definitions_log
from duly.model.run_log import Chunk
from duly.ports import FROZEN

_UNIQUE = struct.Struct(">qq")  # until when, and when the run was created; then its id
_TIME = struct.Struct(">q")
_SLICE = 1_000


class RedisSnapshot:
    """What the keys of a view contain."""

    def __init__(self, view: ClientView, at: datetime, since: datetime | None, *, exact: bool) -> None:
        self.at = at
        self.exact = exact
        self.fence = 0
        self.ended: dict[State, int] = {}
        self._view = view
        self._since = since
        self._names: dict[str, list[bytes]] = {}

    async def begin(self) -> None:
        """Read what the snapshot knows from the beginning."""
        self.fence = int(await self._view.on_key("HGET", "meta", "fence") or 0)
        for state in FINAL:
            self.ended[state] = await self._view.on_key("ZCARD", f"ended:{NUMBERS[state]}")

    async def dump(self, cursor: str | None, limit: int) -> transfer.DumpPage:
        changed = self._since is not None
        dumps: dict[str, Dump] = {
            "job": self._jobs,
            "queue": self._queues,
            "total": self._totals,
            "statistics": self._statistics,
            "value": self._values,
            "run": self._runs_changed if changed else self._runs,
            "dedupe_key": self._keys,
            "log": self._logs,
        }
        return await dump_page(dumps, cursor, limit)

    async def _fields(self, key: str, place: int | None, limit: int) -> tuple[list[Any], list[Any], int | None]:
        """Some fields of a hash with their values, by name; the names are read once."""
        if key not in self._names:
            self._names[key] = sorted(await self._view.on_key("HKEYS", key))
        start = place or 0
        names = self._names[key][start : start + limit]
        texts = await self._view.on_key("HMGET", key, *names) if names else []
        following = start + limit
        return names, texts, following if following < len(self._names[key]) else None

    async def _jobs(self, place: int | None, limit: int) -> tuple[list[transfer.JobEntry], int | None]:
        if "earlier" not in self._names:
            self._names["earlier"] = sorted(await scanned(self._view, f"log:{DEFINITIONS}"))
        start = len(self._view.prefix) + len(f"log:{DEFINITIONS}")
        replaced = {name[start:].decode() for name in self._names["earlier"]}
        names, texts, following = await self._fields("jobs", place, limit)
        records = decode_jobs(names, texts)
        earlier = {each.name: await self._earlier(each.name) for each in records if each.name in replaced}
        return [transfer.JobEntry(record, earlier.get(record.name, ())) for record in records], following

    async def _earlier(self, job: str) -> tuple[Entry, ...]:
        """The definitions of a job that were replaced."""
        log = definitions_log(job)
        return tuple(Entry(each.sequence, each.at, each.value) for each in await self._log(log, 0, _SLICE))

    async def _queues(self, _: None, __: int) -> tuple[list[transfer.QueueEntry], None]:
        names = decoded(await self._view.on_key("SMEMBERS", "paused"))
        return [transfer.QueueEntry(name) for name in sorted(names) if name != FROZEN], None

    async def _totals(self, _: None, __: int) -> tuple[list[transfer.TotalEntry], None]:
        flat = await self._view.on_key("HGETALL", "totals")
        counted = [(STATES[int(state)], int(number)) for state, number in zip(flat[::2], flat[1::2], strict=True)]
        return [transfer.TotalEntry(state, number) for state, number in counted if state in FINAL and number], None

    async def _statistics(self, place: int | None, limit: int) -> tuple[list[transfer.StatisticsEntry], int | None]:
        jobs, texts, following = await self._fields("statistics", place, limit)
        pairs = [(job.decode(), text) for job, text in zip(jobs, texts, strict=True) if text is not None]
        return [transfer.StatisticsEntry(job, statistics_of(text)) for job, text in pairs], following

    async def _values(self, _: None, __: int) -> tuple[list[transfer.ValueEntry], None]:
        entries: list[transfer.ValueEntry] = []
        for name in await names_under(self._view, "kind:"):
            flat = await self._view.on_key("HGETALL", f"kind:{name}")
            for key, text in sorted(zip(flat[::2], flat[1::2], strict=True)):
                item = item_of(key.decode(), text)
                entries.append(transfer.ValueEntry(name, item.key, item.value, item.version))
        return entries, None

    # --- runs

    async def _runs(self, after: int | None, limit: int) -> tuple[list[transfer.RunEntry], int | None]:
        """The runs of the next pages."""
        if "page" not in self._names:
            self._names["page"] = await self._view.on_key("ZRANGE", "pages", 0, -1)
        pages, at, entries = self._names["page"], after or 0, list[transfer.RunEntry]()
        while at < len(pages) and len(entries) < limit:
            text = await self._view.on_key("GET", f"page:{pages[at].decode()}")
            entries += await self._entries(decoded((text or b"").split()))
            at += 1
        return entries, at if at < len(pages) else None

    async def _runs_changed(self, place: int | None, limit: int) -> tuple[list[transfer.RunEntry], int | None]:
        """The runs that have not ended, and those that ended since; their ids are read once."""
        if "run" not in self._names:
            self._names["run"] = sorted(await self._changed())
        start = place or 0
        ids = decoded(self._names["run"][start : start + limit])
        following = start + limit
        return await self._entries(ids), following if following < len(self._names["run"]) else None

    async def _changed(self) -> set[bytes]:
        holds = await self._view.on_key("HKEYS", "holds")
        sets = decoded(await self._view.on_key("SMEMBERS", "levels"))
        names = [f"waiting:{name}" for name in sets]
        names += [f"ready:{name}" for name in decoded(await self._view.on_key("SMEMBERS", "lanes"))]
        names += [f"held:{priority}:{hold}" for hold in decoded(holds) for priority in range(10)]
        found: set[bytes] = set()
        for name in [*names, "running"]:
            found.update(await self._view.on_key("ZRANGE", name, 0, -1))
        since = to_micros(self._since) if self._since is not None else 0
        for state in FINAL:
            found.update(await self._view.on_key("ZRANGEBYSCORE", f"ended:{NUMBERS[state]}", since, "+inf"))
        return {run_id for run_id in found if not run_id.startswith(b"=")}  # see `LONG_NAME` in layout.lua

    async def _entries(self, run_ids: Sequence[str]) -> list[transfer.RunEntry]:
        entries: list[transfer.RunEntry] = []
        for some in slices_of(run_ids):
            found = [each.run for each in await listing.read_runs(self._view, some, None)]
            texts = await self._view.on_key("HMGET", "attempts", *[run.id for run in found]) if found else []
            logs = await asyncio.gather(*[self._lines(run) for run in found])
            for run, text, lines in zip(found, texts, logs, strict=True):
                attempts = () if text is None else tuple(attempts_of(text))
                entries.append(transfer.RunEntry(as_stored(run), attempts, lines))
        return entries

    async def _lines(self, run: Run) -> tuple[Chunk, ...]:
        """The log of a run; one that has never started has none."""
        return tuple(await reporting.chunks(self._view.client, run.id)) if run.fence else ()

    # --- keys and logs

    async def _keys(self, place: int | None, limit: int) -> tuple[list[transfer.KeyEntry], int | None]:
        fields, texts, following = await self._fields("unique", place, limit)
        entries = [_key_of(field, text) for field, text in zip(fields, texts, strict=True) if text is not None]
        return entries, following

    async def _logs(self, place: Any, limit: int) -> tuple[list[transfer.LogEntry], Any]:
        names = await names_under(self._view, "log:")
        log, after = place or ("", 0)
        for name in [name for name in names if name >= log and not name.startswith(DEFINITIONS)]:
            entries = await self._log(name, after if name == log else 0, limit)
            if entries:
                later = [entry for entry in entries if self._since is None or entry.at >= self._since]
                return later, (name, entries[-1].sequence)
        return [], None

    async def _log(self, name: str, after: int, limit: int) -> list[transfer.LogEntry]:
        first, texts = await self._view.call("read_log", name, after, limit)
        return [
            transfer.LogEntry(name, number, from_micros(_TIME.unpack_from(text)[0]), text[_TIME.size :])
            for number, text in enumerate(texts, first)
        ]


async def names_under(view: ClientView, start: str) -> list[str]:
    """What follows in the names of keys that begin with this."""
    prefix = view.prefix + start.encode()
    return sorted(name[len(prefix) :].decode() for name in await scanned(view, start))


async def scanned(view: ClientView, start: str) -> set[bytes]:
    """The names of all keys of the view that begin with this."""
    prefix = view.prefix + start.encode()
    pattern = b"".join(
        b"\\" + prefix[i : i + 1] if prefix[i] in b"*?[]\\^" else prefix[i : i + 1] for i in range(len(prefix))
    )
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, names = await view.client.command("SCAN", cursor, "MATCH", pattern + b"*", "COUNT", _SLICE)
        found.update(names)
        if cursor == b"0":
            return found


def _key_of(field: bytes, text: bytes) -> transfer.KeyEntry:
    handler, _, key = field.decode().partition("\0")
    until, created_at = _UNIQUE.unpack_from(text)
    return transfer.KeyEntry(handler, key, text[_UNIQUE.size :].decode(), from_micros(created_at), from_micros(until))
