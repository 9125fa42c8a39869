"""Django: one scheduler for the project, configured by its settings. Needs the extra `django`.

Put `"duly.integrations.django"` into `INSTALLED_APPS`, say where the store is in `DULY`, and define jobs on `scheduler`
in the `jobs.py` of your applications; `manage.py duly run` runs them. `on_commit` submits when a transaction commits.
"""

from __future__ import annotations

from duly.errors import MissingExtra
from duly.scheduler import Scheduler

try:
    import django  # noqa: F401  # asked for here, so that the error names the extra
except ImportError as exc:
    raise MissingExtra("the integration with Django", "django") from exc

from duly.integrations.django.committing import on_commit

__all__ = ["on_commit", "scheduler"]

scheduler = Scheduler()
