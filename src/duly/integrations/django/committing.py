"""Submitting when a transaction commits, so that no run sees data that is not there, or that never came to be."""

from __future__ import annotations

from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from django.db import transaction

from duly.scheduler.handles import JobHandle, Submission

P = ParamSpec("P")
R = TypeVar("R")


class OnCommit(Generic[P, R]):
    """A job that is submitted when the transaction around the call commits."""

    def __init__(self, job: JobHandle[Any, P, R] | Submission[P, R], using: str | None) -> None:
        self._job = job
        self._using = using

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Check the arguments now, submit when the transaction commits; at once where there is none.

        If it is rolled back nothing is submitted.
        """
        self._job.check(*args, **kwargs)
        transaction.on_commit(partial(self._job.sync.submit, *args, **kwargs), using=self._using)


def on_commit(job: JobHandle[Any, P, R] | Submission[P, R], *, using: str | None = None) -> OnCommit[P, R]:
    """`on_commit(send_mail).submit(to=…)`, or `on_commit(send_mail.options(delay=60)).submit(to=…)`.

    `using` names the database of the transaction, if it is not the default one.
    """
    return OnCommit(job, using)
