"""Duly: a distributed job scheduler. In the proper manner, at the proper time.

The public names, and nothing else. Each is imported when it is first used, so that `import duly` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from duly.version import __version__

if TYPE_CHECKING:
    from duly.errors import (
        BackendError,
        BackendUnavailable,
        ClaimLost,
        ConfigurationError,
        DulyError,
        DuplicateJob,
        GiveUp,
        InvalidSchedule,
        JobNotFound,
        LockUnavailable,
        MissingExtra,
        PayloadError,
        ResultExpired,
        Retry,
        RunCancelled,
        RunFailed,
        RunLost,
        RunNotCompleted,
        RunNotFound,
        RunSkipped,
        SchedulerRunning,
    )
    from duly.model import Attempt, CancelReply, Confinement, Node, Retention, Run, SchedulerConfig, State
    from duly.model.notification import Notification
    from duly.observe import Logger, MetricsCollector
    from duly.rules.calendars import Calendar
    from duly.rules.combined import Union
    from duly.rules.explain import Explanation
    from duly.rules.retry import RetryPolicy
    from duly.rules.schedules import Cron, Every, Once, Schedule
    from duly.runtime.command import Command
    from duly.runtime.context import Context
    from duly.runtime.executors.custom import Executor, HandlerCall
    from duly.runtime.notify.mail import Mail
    from duly.runtime.notify.program import NotifyCommand
    from duly.runtime.notify.target import DeliveryRejected
    from duly.runtime.notify.webhook import Webhook
    from duly.scheduler import Health, Job, JobHandle, JobView, Lock, RunHandle, Scheduler, ShutdownReport, Upcoming

_HOMES = {
    "duly.errors": (
        "BackendError",
        "BackendUnavailable",
        "ClaimLost",
        "ConfigurationError",
        "DulyError",
        "DuplicateJob",
        "GiveUp",
        "InvalidSchedule",
        "JobNotFound",
        "LockUnavailable",
        "MissingExtra",
        "PayloadError",
        "ResultExpired",
        "Retry",
        "RunCancelled",
        "RunFailed",
        "RunLost",
        "RunNotCompleted",
        "RunNotFound",
        "RunSkipped",
        "SchedulerRunning",
    ),
    "duly.model": ("Attempt", "CancelReply", "Confinement", "Node", "Retention", "Run", "SchedulerConfig", "State"),
    "duly.model.notification": ("Notification",),
    "duly.observe": ("Logger", "MetricsCollector"),
    "duly.rules.calendars": ("Calendar",),
    "duly.rules.combined": ("Union",),
    "duly.rules.explain": ("Explanation",),
    "duly.rules.retry": ("RetryPolicy",),
    "duly.rules.schedules": ("Cron", "Every", "Once", "Schedule"),
    "duly.runtime.command": ("Command",),
    "duly.runtime.context": ("Context",),
    "duly.runtime.executors.custom": ("Executor", "HandlerCall"),
    "duly.runtime.notify.mail": ("Mail",),
    "duly.runtime.notify.program": ("NotifyCommand",),
    "duly.runtime.notify.target": ("DeliveryRejected",),
    "duly.runtime.notify.webhook": ("Webhook",),
    "duly.scheduler": (
        "Health",
        "Job",
        "JobHandle",
        "JobView",
        "Lock",
        "RunHandle",
        "Scheduler",
        "ShutdownReport",
        "Upcoming",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Attempt",
    "BackendError",
    "BackendUnavailable",
    "Calendar",
    "CancelReply",
    "ClaimLost",
    "Command",
    "ConfigurationError",
    "Confinement",
    "Context",
    "Cron",
    "DeliveryRejected",
    "DulyError",
    "DuplicateJob",
    "Every",
    "Executor",
    "Explanation",
    "GiveUp",
    "HandlerCall",
    "Health",
    "InvalidSchedule",
    "Job",
    "JobHandle",
    "JobNotFound",
    "JobView",
    "Lock",
    "LockUnavailable",
    "Logger",
    "Mail",
    "MetricsCollector",
    "MissingExtra",
    "Node",
    "Notification",
    "NotifyCommand",
    "Once",
    "PayloadError",
    "ResultExpired",
    "Retention",
    "Retry",
    "RetryPolicy",
    "Run",
    "RunCancelled",
    "RunFailed",
    "RunHandle",
    "RunLost",
    "RunNotCompleted",
    "RunNotFound",
    "RunSkipped",
    "Schedule",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerRunning",
    "ShutdownReport",
    "State",
    "Union",
    "Upcoming",
    "Webhook",
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'duly' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return __all__
