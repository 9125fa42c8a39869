"""Runs in memory, with the indexes that every store needs in some form.

Waiting runs by ready time, queued ones by urgency per queue, running ones by expiry, ended ones by age; holds, groups
and dedupe keys. Heaps are cleaned lazily: an entry counts only while the run is where the entry says it is.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import itemgetter

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.codec import kept_run
from duly.backends.line_chunks import bounds, chunk_after
from duly.model import EPOCH, FINAL, WAITING, Attempt, Cause, EndedProcess, Put, Report, Run, State, shift, to_micros
from duly.model.holds import UNPLACED, hold_for_group
from duly.model.run_log import Chunk
from duly.model.transfer import KeyEntry
from duly.rules.admission import OVERLAP, REPLACED, Admission, admit, urgency
from duly.rules.misfires import MISFIRE, is_missed_entrant
from duly.rules.sharing import shared

_Entry = tuple[int, datetime, str, str | None]  # urgency, ready time, id, assigned node
_Heap = list[_Entry]
_Line = tuple[str, str | None, bool]  # queue, the only node that may claim from it, whether scheduled


class _Unique(Struct, frozen=True):
    """A dedupe key that stays with a run for a time, whatever the run's state."""

    id: str
    created_at: datetime
    until: datetime


class Runs:
    """All runs of one store. All changes go through `save`, which keeps every index correct."""

    def __init__(self, last_fence: int) -> None:
        self.last_fence = last_fence
        self.clear()

    def clear(self) -> None:
        """Contain nothing."""
        self.by_id: dict[str, Run] = {}
        self.attempts: defaultdict[str, list[Attempt]] = defaultdict(list)
        self.logs: dict[str, list[Chunk]] = {}
        self.ended: defaultdict[State, int] = defaultdict(int)
        self.kept: defaultdict[State, int] = defaultdict(int)
        self.holds: dict[str, dict[str, None]] = {}
        self._lines: defaultdict[str, list[tuple[int, float, str]]] = defaultdict(list)  # held runs by urgency
        self._pending: list[tuple[datetime, str]] = []
        self._queued: defaultdict[_Line, _Heap] = defaultdict(list)
        self._running: list[tuple[datetime, str]] = []
        self._final: defaultdict[State, list[tuple[datetime, str]]] = defaultdict(list)
        self._members: defaultdict[str, set[str]] = defaultdict(set)
        self._dedupe: dict[tuple[str, str], str] = {}
        self._unique: dict[tuple[str, str], _Unique] = {}
        self._unique_until: list[tuple[datetime, tuple[str, str]]] = []

    def next_fence(self) -> int:
        self.last_fence += 1
        return self.last_fence

    def raise_fence(self, fence: int) -> None:
        """Give out greater fences than this one."""
        self.last_fence = max(self.last_fence, fence)

    # --- keeping

    def put(self, run: Run, now: datetime) -> Put:
        """Add a run that duplicates nothing; returns the answer for the submitter."""
        known = self.by_id.get(run.id)
        twin = self.twin(run, now) if known is None else Put(run.id, False, known.created_at or now)
        if twin is not None:
            return twin
        self._add(kept_run(run), now)
        return Put(run.id, True, now)

    def twin(self, run: Run, now: datetime) -> Put | None:
        """The run that has this one's dedupe key: an unfinished one, or one that is still unique."""
        if run.dedupe_key is None:
            return None
        key = (run.handler, run.dedupe_key)
        if (twin := self._dedupe.get(key)) is not None:
            return Put(twin, False, self.by_id[twin].created_at or now)
        unique = self._unique.get(key)
        return None if unique is None or unique.until <= now else Put(unique.id, False, unique.created_at)

    def _add(self, run: Run, now: datetime) -> None:
        """Insert a run that duplicates nothing: queued if it is ready and belongs to no group."""
        if run.dedupe_key is not None and run.unique_for is not None and not run.final:
            key, until = (run.handler, run.dedupe_key), shift(now, run.unique_for)
            self._unique[key] = _Unique(run.id, now, until)
            heapq.heappush(self._unique_until, (until, key))
        ready = run.state is State.PENDING and run.group is None and run.hold is None and run.ready_at <= now
        state, finished_at = State.QUEUED if ready else run.state, now if run.final else None
        self.save(replace(run, state=state, created_at=now, finished_at=finished_at, unique_for=None, legacy=False))

    def expire(self, limit: int, now: datetime) -> int:
        """Delete dedupe keys whose time has passed; returns how many."""
        expired = 0
        while expired < limit and self._unique_until and self._unique_until[0][0] <= now:
            until, key = heapq.heappop(self._unique_until)
            unique = self._unique.get(key)
            if unique is not None and unique.until == until:
                del self._unique[key]
                expired += 1
        return expired

    def save(self, run: Run) -> None:
        """Keep this version of a run."""
        before = self.by_id.get(run.id)
        if before is not None and (before.hold is not None or before.state in FINAL):
            self._leave(before)
        self.by_id[run.id] = run
        if run.state in FINAL:
            self._end(run)
            return
        if run.dedupe_key is not None:
            self._dedupe[run.handler, run.dedupe_key] = run.id
        if run.member and run.group is not None:
            self._members[run.group].add(run.id)
        if run.hold is not None:
            self.holds.setdefault(run.hold, {})[run.id] = None
            heapq.heappush(self._lines[run.hold], urgency(run))
        elif run.state is State.PENDING:
            heapq.heappush(self._pending, (run.ready_at, run.id))
        elif run.state is State.QUEUED:
            line = self._queued[run.queue, run.assignee, run.cause is Cause.SCHEDULE]
            heapq.heappush(line, (-run.priority, run.ready_at, run.id, run.assignee))
        elif run.expires_at is not None:
            heapq.heappush(self._running, (run.expires_at, run.id))

    def _leave(self, before: Run) -> None:
        if before.hold is not None:
            self._forget_hold(before)
        if before.state in FINAL:
            self.kept[before.state] -= 1

    def _end(self, run: Run) -> None:
        assert run.finished_at is not None
        self.ended[run.state] += 1
        self.kept[run.state] += 1
        heapq.heappush(self._final[run.state], (run.finished_at, run.id))
        if run.dedupe_key is not None or run.group is not None:
            self._release(run)

    def _release(self, run: Run) -> None:
        """Free what an unfinished run occupied: its dedupe key, and its place in the group for the next one held."""
        if run.dedupe_key is not None and self._dedupe.get((run.handler, run.dedupe_key)) == run.id:
            del self._dedupe[run.handler, run.dedupe_key]
        if run.group is not None and run.id in self._members[run.group]:
            self._members[run.group].remove(run.id)
            self._admit_next(run.group)
        else:
            self._pass_on(run)

    def delete(self, run: Run) -> None:
        """Delete a run."""
        present = self.by_id.pop(run.id)
        self._leave(present)
        self.attempts.pop(run.id, None)
        self.logs.pop(run.id, None)
        if not present.final:
            self._release(present)

    def append_lines(self, report: Report) -> None:
        """Append lines to the log of a run, and delete what is out of bounds."""
        chunks = self.logs.get(report.run_id, [])
        chunk = chunk_after(chunks[-1] if chunks else None, report)
        if chunk is not None:
            number, size = bounds(chunk)
            kept = [each for each in chunks if each.number > number and each.size > size]
            self.logs[report.run_id] = [*kept, chunk]

    def end(self, run: Run, state: State, reason: str | None, now: datetime) -> None:
        """Give a waiting run its final state."""
        self.save(replace(run, state=state, reason=reason, hold=None, member=False, finished_at=now))

    # --- loading

    def load(self, run: Run, attempts: Sequence[Attempt], lines: Sequence[Chunk]) -> None:
        """Keep a run from another store as it is, without a consequence for others."""
        self.unload(run.id)
        if attempts:
            self.attempts[run.id] = list(attempts)
        if lines:
            self.logs[run.id] = list(lines)
        if not run.final:
            self.save(run)
            return
        assert run.finished_at is not None
        self.by_id[run.id] = run
        self.kept[run.state] += 1
        heapq.heappush(self._final[run.state], (run.finished_at, run.id))

    def unload(self, run_id: str) -> None:
        """Forget a run, without a consequence for others."""
        run = self.by_id.pop(run_id, None)
        self.attempts.pop(run_id, None)
        self.logs.pop(run_id, None)
        if run is None:
            return
        self._leave(run)
        if run.group is not None:
            self._members[run.group].discard(run.id)
        if run.dedupe_key is not None and self._dedupe.get((run.handler, run.dedupe_key)) == run.id:
            del self._dedupe[run.handler, run.dedupe_key]

    def unique_keys(self) -> Iterator[KeyEntry]:
        """The dedupe keys that stay with a run for a time."""
        for (handler, key), unique in sorted(self._unique.items(), key=itemgetter(0)):
            yield KeyEntry(handler, key, unique.id, unique.created_at, unique.until)

    def load_key(self, key: tuple[str, str], run_id: str, created_at: datetime, until: datetime) -> None:
        """Keep such a key from another store."""
        self._unique[key] = _Unique(run_id, created_at, until)
        heapq.heappush(self._unique_until, (until, key))

    def unload_key(self, key: tuple[str, str]) -> None:
        """Forget such a key."""
        self._unique.pop(key, None)

    # --- holding

    def hold(self, run: Run, key: str) -> None:
        """Take a waiting run out of the indexes."""
        assignee = None if key == UNPLACED else run.assignee
        in_line = run.group is not None and key == hold_for_group(run.group)
        start_by = None if in_line else run.start_by
        self.save(replace(run, hold=key, state=State.PENDING, assignee=assignee, start_by=start_by))
        if not run.member and not in_line:
            self._pass_on(run)

    def unhold(self, run: Run) -> None:
        """Let a held run wait again."""
        self.save(replace(run, hold=None, assignable=run.assignable and run.hold != UNPLACED))

    def assign(self, run: Run, node: str) -> None:
        """Make a run that is not placed yet wait for a node."""
        self.save(replace(run, hold=None, assignable=True, assignee=node))

    def held(self, key: str) -> list[Run]:
        """The runs held under a key, the most urgent first."""
        return sorted((self.by_id[run_id] for run_id in self.holds.get(key, ())), key=urgency)

    def _first_held(self, key: str) -> Run | None:
        """The most urgent run held under a key."""
        line = self._lines.get(key, [])
        while line:
            run = self.by_id.get(line[0][2])
            if run is not None and run.hold == key and urgency(run) == line[0]:
                return run
            heapq.heappop(line)
        return None

    def _forget_hold(self, run: Run) -> None:
        assert run.hold is not None
        self.holds[run.hold].pop(run.id, None)
        if not self.holds[run.hold]:
            del self.holds[run.hold], self._lines[run.hold]

    # --- waiting, running, ended

    def next_pending(self) -> Run | None:
        """The pending run that is ready first."""
        while self._pending:
            ready_at, run_id = self._pending[0]
            run = self.by_id.get(run_id)
            if run is not None and run.state is State.PENDING and run.hold is None and run.ready_at == ready_at:
                return run
            heapq.heappop(self._pending)
        return None

    def soonest(self, until: datetime) -> Iterator[Run]:
        """Pending runs without a hold that are ready by `until`, by ready time, then id."""
        entries = self._pending
        first = [(entries[0], 0)] if entries else []  # the root of a heap; an entry's children come no earlier than it
        seen: set[str] = set()  # a run that was kept twice has two entries
        while first and first[0][0][0] <= until:
            (ready_at, run_id), at = heapq.heappop(first)
            for child in range(2 * at + 1, min(2 * at + 3, len(entries))):
                heapq.heappush(first, (entries[child], child))
            run = self.by_id.get(run_id)
            if run is None or run_id in seen or run.ready_at != ready_at:
                continue
            if run.state is State.PENDING and run.hold is None:
                seen.add(run_id)
                yield run

    def promote_before(self, runs: Sequence[Run], now: datetime) -> None:
        """Promote entrants to the groups of these runs that are ready before them."""
        first: dict[str, datetime] = {}
        for run in runs:
            if run.group is not None:
                first[run.group] = max(run.ready_at, first.get(run.group, run.ready_at))
        latest = min(now, max(first.values(), default=EPOCH))
        for run in [run for run in self.soonest(latest) if run.group in first and run.ready_at < first[run.group]]:
            self._admit(run, now)

    def has_room(self, run: Run) -> bool:
        """Whether a run is in its group, or could enter it now."""
        return run.group is None or run.member or len(self._members[run.group]) < run.limit

    def promote(self, limit: int, now: datetime) -> int:
        """Queue what is ready, as far as the groups admit it. Returns how many runs were looked at."""
        looked_at = 0
        while looked_at < limit and (run := self.next_pending()) is not None and run.ready_at <= now:
            heapq.heappop(self._pending)
            self._admit(run, now)
            looked_at += 1
        return looked_at

    def lines(self, queues: list[str], node: str) -> tuple[list[_Heap], list[_Heap]]:
        """The lines of these queues that a node may take from: those of scheduled runs, and the others."""
        names = [(queue, assignee) for queue in queues for assignee in (None, node)]
        scheduled, others = (
            [self._queued[*name, kind] for name in names if (*name, kind) in self._queued] for kind in (True, False)
        )
        return scheduled, others

    def first_priority(self, heaps: list[_Heap]) -> int | None:
        """The highest priority among the queued runs of these lines."""
        first = self._first_line(heaps)
        return -first[0][0] if first else None

    def take_queued(self, lines: tuple[list[_Heap], list[_Heap]], priority: int, room: int, owed: int) -> list[Run]:
        """Take the first queued runs of a priority out of these lines, `room` at most, `owed` scheduled ones if any."""
        scheduled, others = (self._pop(heaps, priority, room) for heaps in lines)
        first, other = shared(scheduled, others, room, owed)
        for entry in [*scheduled[first:], *others[other:]]:
            self.save(self.by_id[entry[2]])
        return [self.by_id[entry[2]] for entry in heapq.merge(scheduled[:first], others[:other])]

    def _pop(self, heaps: list[_Heap], priority: int, room: int) -> list[_Entry]:
        entries: dict[_Entry, None] = {}  # a run that was kept twice has two entries
        while len(entries) < room and (heap := self._first_line(heaps)) and -heap[0][0] == priority:
            entries[heapq.heappop(heap)] = None
        return list(entries)

    def _first_line(self, heaps: list[_Heap]) -> _Heap:
        """The line with the most urgent run in front; empty if there is none."""
        return min(filter(self._has_queued, heaps), key=_first, default=[])

    def _has_queued(self, heap: _Heap) -> bool:
        while heap and self._queued_run(heap[0]) is None:
            heapq.heappop(heap)
        return bool(heap)

    def _queued_run(self, entry: _Entry) -> Run | None:
        run = self.by_id.get(entry[2])
        if run is None or run.state is not State.QUEUED or run.hold is not None:
            return None
        return run if (run.ready_at, run.assignee) == (entry[1], entry[3]) else None

    def queues(self) -> list[str]:
        """The queues that have ever had a queued run."""
        return list(dict.fromkeys(queue for queue, _, _ in self._queued))

    def take_expired(self, now: datetime) -> Run | None:
        """Take the running run whose lease ran out first, if any did."""
        while self._running and self._running[0][0] <= now:
            expires_at, run_id = heapq.heappop(self._running)
            run = self.by_id.get(run_id)
            if run is not None and run.state is State.RUNNING and run.expires_at == expires_at:
                return run
        return None

    def of_process(self, process: EndedProcess) -> list[Run]:
        """The runs that the requests of a process have claimed, by expiry."""
        entries = ((run.expires_at, run) for _, run_id in self._running if (run := self.by_id.get(run_id)) is not None)
        found = {
            run.id: (expires_at, run.id, run)
            for expires_at, run in entries
            if run.state is State.RUNNING and run.node == process.node and expires_at is not None
            if process.first <= run.request <= process.last
        }
        return [run for _, _, run in sorted(found.values())]

    def oldest_ended(self, state: State) -> Run | None:
        """The run that ended in this state first."""
        heap = self._final[state]
        while heap:
            run = self.by_id.get(heap[0][1])
            if run is not None and run.state is state and run.finished_at == heap[0][0]:
                return run
            heapq.heappop(heap)
        return None

    def waiting_of(self, job: str) -> list[Run]:
        """The waiting runs of a job, held ones included."""
        return [run for run in self.by_id.values() if run.job == job and run.state in WAITING]

    # --- groups

    def _admit(self, run: Run, now: datetime) -> None:
        if self._is_missed(run, now):
            self.end(run, State.SKIPPED, MISFIRE, now)
            return
        members = 0 if run.group is None else len(self._members[run.group])
        match admit(run, members):
            case Admission.ENTER:
                self.save(replace(run, state=State.QUEUED, member=run.group is not None))
            case Admission.SKIP:
                self.end(run, State.SKIPPED, OVERLAP, now)
            case Admission.HOLD:
                self.hold(run, hold_for_group(run.group or ""))
            case Admission.REPLACE:
                self._replace(run, run.group or "", now)

    @staticmethod
    def _is_missed(run: Run, now: datetime) -> bool:
        if run.start_by is None or run.group is None or run.member:
            return False
        return is_missed_entrant(to_micros(run.start_by), to_micros(run.ready_at), to_micros(now))

    def _replace(self, run: Run, group: str, now: datetime) -> None:
        for held in self.held(hold_for_group(group)):
            self.end(held, State.SKIPPED, REPLACED, now)
        for member in [self.by_id[run_id] for run_id in sorted(self._members[group])]:
            if member.state is State.RUNNING:
                self.save(replace(member, cancelling=True, reason=REPLACED))
            else:
                self.end(member, State.CANCELLED, REPLACED, now)
        if len(self._members[group]) < run.limit:
            self.save(replace(run, state=State.QUEUED, member=True))
        else:
            self.hold(run, hold_for_group(group))

    def _admit_next(self, group: str) -> None:
        first = self._first_held(hold_for_group(group))
        if first is not None:
            self.unhold(first)

    def _pass_on(self, run: Run) -> None:
        """A run that was not a member leaves: a place it may have been offered goes to the next in line.

        Otherwise the next run would wait for ever, since no member is left to end.
        """
        if run.group is None:
            return
        first = self._first_held(hold_for_group(run.group))
        if first is not None and len(self._members[run.group]) < first.limit:
            self.unhold(first)


def _first(heap: _Heap) -> _Entry:
    return heap[0]
