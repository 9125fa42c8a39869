"""Django: one scheduler for the project, configured in its settings. Needs the extra `django`.

Add `"duly.integrations.django"` to `INSTALLED_APPS`, name the store in `DULY`, and define jobs on `scheduler` in the
`jobs.py` of your applications; `manage.py duly run` runs them. `on_commit` submits when a transaction commits.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from duly.errors import MissingExtra
from duly.scheduler import Scheduler
from duly.scheduler.handles import JobHandle, Submission

try:
    import django  # noqa: F401  # the error names the extra even if parts of Django are loaded
    from django.db import transaction
except ImportError as exc:
    raise MissingExtra("the integration with Django", "django") from exc

__all__ = ["on_commit", "scheduler"]

scheduler = Scheduler()

P = ParamSpec("P")
R = TypeVar("R")


class OnCommit(Generic[P, R]):
    """A job that is submitted when the current transaction commits, so that its run sees the data."""

    def __init__(self, job: JobHandle[Any, P, R] | Submission[P, R], using: str | None) -> None:
        self._job = job
        self._using = using

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Check the arguments now, submit when the transaction commits, or at once if there is none.

        If the transaction is rolled back, nothing is submitted.
        """
        self._job.check(*args, **kwargs)
        transaction.on_commit(partial(self._job.sync.submit, *args, **kwargs), using=self._using)


def on_commit(job: JobHandle[Any, P, R] | Submission[P, R], *, using: str | None = None) -> OnCommit[P, R]:
    """`on_commit(send_mail).submit(to=…)`, or `on_commit(send_mail.options(delay=60)).submit(to=…)`.

    `using` names the database of the transaction, if it is not the default one.
    """
    return OnCommit(job, using)
