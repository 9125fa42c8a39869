"""The context: what a handler can read about its run, and the few requests it can make to its node."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any, Protocol

from duly.errors import ClaimLost, RunCancelled, shown
from duly.model import Progress, Run, sanitize, shift
from duly.model.current_run import run_fields
from duly.runtime.log_text import message_of


class Tether(Protocol):
    """The link between a handler and the node that runs it, wherever the handler runs."""

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: cancelled, timed out, or the node is stopping."""
        ...

    @property
    def owned(self) -> bool:
        """Whether this attempt still holds the run, as far as the node knows."""
        ...

    def report(self, progress: Progress) -> None:
        """Carry progress to the store, within about a second."""
        ...

    def keep(self, level: int, logger: str, text: str) -> None:
        """Keep lines in the run's log only."""
        ...

    def transaction(self) -> Any:
        """The transaction that the run's completion joins."""
        ...


class RunLogger(logging.LoggerAdapter[logging.Logger]):
    """The logger of one attempt. Records from INFO on are kept in the run's log, whatever its level is."""

    def __init__(self, run: Run, tether: Tether) -> None:
        super().__init__(logging.getLogger(f"duly.job.{run.job}"), run_fields(run))
        self._tether = tether

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self.isEnabledFor(level):
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # without the frame of this method
            super().log(level, msg, *args, **kwargs)
        elif level >= logging.INFO:
            self._tether.keep(level, self.logger.name, message_of(msg, args))


class Contexts(Protocol):
    """Makes contexts."""

    def of(self, active: Any, /) -> Context:
        """The context of a live run."""
        ...

    def begin(self, active: Any, /) -> None:
        """To be called right before the handler; raises `Unbegun` if it must not be called any more."""
        ...


class Context:
    """Given to handlers whose first parameter is annotated with it. Valid until the handler returns."""

    __slots__ = ("_tether", "run")

    def __init__(self, run: Run, tether: Tether) -> None:
        self.run = run
        self._tether = tether

    @property
    def run_id(self) -> str:
        return self.run.id

    @property
    def job(self) -> str:
        """The job's name."""
        return self.run.job

    @property
    def attempt(self) -> int:
        """1 for the first try."""
        return self.run.attempt

    @property
    def due(self) -> datetime:
        """The instant this run stands for. The same in every attempt, and without jitter."""
        return self.run.due

    @property
    def deadline(self) -> datetime | None:
        """When this attempt will be stopped, None without a timeout."""
        timeout, started_at = self.run.policy.timeout, self.run.started_at
        return None if timeout is None or started_at is None else shift(started_at, timeout)

    @property
    def fence(self) -> int:
        """A number greater than that of every earlier attempt; pass it to systems that can reject a smaller one."""
        return self.run.fence

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt of this run; pass it to systems that can recognise a repetition."""
        return self.run.id

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that names the run in every record.

        The run's log keeps its records from INFO on, also if the level of the logger is higher.
        """
        return RunLogger(self.run, self._tether)

    @property
    def cancelled(self) -> bool:
        """Whether to stop: the run was cancelled, its timeout has passed, or the node is stopping."""
        return self._tether.cancelled

    def check(self) -> None:
        """Raise if this attempt should not go on: `ClaimLost` or `RunCancelled`. Call it before an external effect."""
        if not self._tether.owned:
            raise ClaimLost(f"run {self.run.id} of {self.run.job!r}: this attempt's lease is no longer certain")
        if self._tether.cancelled:
            raise RunCancelled(f"run {self.run.id} of {self.run.job!r} was asked to stop", self.run)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report progress; it is stored within about a second.

        Any finite number is accepted. Anything else is logged and ignored: a wrong progress value never fails a run.
        """
        progress = sanitize.progress(done, total, note)
        if progress is None:
            self.log.warning("progress(%s) is ignored: expected a finite number", shown(done))
            return
        self._tether.report(progress)

    def transaction(self) -> Any:
        """For `delivery="exactly_once"`: a transaction that commits together with the run's completion.

        `async with ctx.transaction() as tx:` in async handlers, `with ctx.transaction() as tx:` in sync ones. Exactly
        one block per attempt; other writes through the scheduler inside it raise, `tx.submit` joins it.
        """
        return self._tether.transaction()
