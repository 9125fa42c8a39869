"""Active runs: what a node is executing now, shared by its worker, settler, heartbeat and reporter."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import UnsetType

from duly.model import Claim, LineSource, Progress, Run
from duly.runtime.handler import Handler
from duly.runtime.run_lines import OutputLines, RunLines

if TYPE_CHECKING:
    from duly.runtime.outbox import Outbox


class Unbegun(Exception):
    """The handler was not called: its claim had expired, or it had already been asked to stop."""


class ActiveRun:
    """One claimed run in this process, from its claim until its settlement is acknowledged.

    Other services set the flags; the attempt reads them when it is cancelled, to learn why. The heartbeat's thread
    only writes `trusted_until`.
    """

    # Defaults live on the class: a live run is made for every claim, and most of these are never set.
    task: asyncio.Task[None] | None = None
    outbox: Outbox | None = None
    progress: Progress | None = None
    reported: Progress | None = None  # the progress that the store has
    lines: RunLines | None = None  # made with its first line
    error: BaseException | None = None  # what the handler raised, for hooks
    residue: asyncio.Future[None] | None = None  # completes when a thread that could not be stopped ends
    elapsed = 0.0
    entered = False  # its task has taken its first step
    began = False  # the handler is being called
    ended = False  # the handler has ended; only runtime code follows
    cancelled = False  # an operator asked
    timed_out = False  # past its timeout
    released = False  # the node is stopping
    abandoned = False  # released while its handler still runs: the handler's outcome is ignored
    lost = False  # another node has the run
    untrusted = False  # the lease could not be renewed in time
    committing = False  # its transaction is being committed
    committed = False  # its transaction committed, the run is completed
    to_stop = False  # to be stopped when the commit is known

    def __init__(self, claim: Claim, handler: Handler | None, started: float, trusted_until: float) -> None:
        self.claim = claim
        self.handler = handler
        self.started = started
        self.trusted_until = trusted_until

    @property
    def asked_to_stop(self) -> bool:
        """Whether it was asked to stop, for any reason."""
        return self.lost or self.timed_out or self.cancelled

    @property
    def held(self) -> bool:
        """Whether this attempt needs its claim: it has not ended, and its own transaction has not completed it."""
        return not (self.ended or self.committing or self.committed)

    @property
    def unreported(self) -> bool:
        """Whether it has progress or lines that are not stored."""
        return self.progress is not self.reported or (self.lines is not None and not self.lines.empty)

    def report(self, progress: Progress) -> None:
        """Keep the progress of the handler; from any thread."""
        self.progress = progress
        if self.outbox is not None:
            self.outbox.note(self)

    def write(self, source: LineSource, text: str, level: str = "", logger: str = "") -> None:
        """Add lines to the run's log; from any thread."""
        if self.outbox is not None and (lines := self._opened()) is not None:
            lines.add(self.outbox.now(), source, text, level, logger)
            self.outbox.note(self)

    def output(self, source: LineSource) -> OutputLines:
        """Where to write the output of a process that executes the handler."""
        return OutputLines(lambda lines: self._write_output(source, lines))

    def _write_output(self, source: LineSource, data: Sequence[bytes]) -> None:
        if self.outbox is not None and (lines := self._opened()) is not None:
            lines.add_output(self.outbox.now(), source, data)
            self.outbox.note(self)

    def _opened(self) -> RunLines | None:
        """The buffer for its lines; None if none are kept."""
        if self.lines is None and self.outbox is not None:
            run = self.claim.run
            chosen = run.policy.keep_logs
            keep = self.outbox.keep() if isinstance(chosen, UnsetType) else chosen
            if keep > 0:  # two threads may be here: the first buffer counts
                self.lines = vars(self).setdefault("lines", RunLines(keep, run.attempt))
        return self.lines

    def begin(self, now: float) -> None:
        """To be called right before the handler. Raises `Unbegun` if it must not be called any more."""
        if not self.may_begin(now):
            raise Unbegun
        self.began = True

    def may_begin(self, now: float) -> bool:
        """Whether the handler may be called: it was not asked to stop, and its claim has not expired.

        After a pause of the process a claim may have expired before its handler was called: another node may have the
        run by now.
        """
        return now < self.trusted_until and not (self.lost or self.timed_out or self.cancelled or self.released)

    def stop(self) -> None:
        """Cancel the handler; the flag set before says why.

        A commit is not interrupted, so that its outcome is known. A task that has not taken its first step must
        not be cancelled either: it would end silently and its slot would be lost. `begin` checks the flag.
        """
        if self.committing:
            self.to_stop = True
        elif self.entered and self.task is not None and not self.ended:
            self.task.cancel()

    def commit_known(self, *, committed: bool) -> None:
        """The commit has succeeded or failed; a stop that was requested meanwhile happens now."""
        self.committing, self.committed = False, committed
        if self.to_stop:
            self.stop()


class ActiveRuns:
    """All live attempts of a node, by fence: a run may be live twice, lost under one fence and claimed again."""

    def __init__(self, outbox: Outbox | None = None) -> None:
        self._outbox = outbox
        self._by_fence: dict[int, ActiveRun] = {}

    def add(self, active: ActiveRun) -> None:
        active.outbox = self._outbox
        self._by_fence[active.claim.fence] = active

    def remove(self, active: ActiveRun) -> None:
        self._by_fence.pop(active.claim.fence, None)

    def find(self, run: Run) -> ActiveRun | None:
        """The live attempt at a run; safe to call from any thread."""
        active = self._by_fence.get(run.fence)
        return active if active is not None and active.claim.run.id == run.id else None

    def of_runs(self, run_ids: Collection[str]) -> list[ActiveRun]:
        """The live attempts at these runs."""
        return [active for active in self.snapshot() if active.claim.run.id in run_ids]

    def snapshot(self) -> list[ActiveRun]:
        """The live attempts at this moment; safe to call from the heartbeat's thread."""
        return list(self._by_fence.values())

    def __iter__(self) -> Iterator[ActiveRun]:
        return iter(self.snapshot())

    def __len__(self) -> int:
        return len(self._by_fence)

    def __contains__(self, active: ActiveRun) -> bool:
        return self._by_fence.get(active.claim.fence) is active
