"""The composition root: jobs as users write them, handles, and the scheduler itself."""

from duly.scheduler.handles import JobHandle, RunHandle, Submission
from duly.scheduler.job import Job
from duly.scheduler.locks import Lock
from duly.scheduler.scheduler import Scheduler
from duly.scheduler.views import Health, JobView, ShutdownReport, Upcoming

__all__ = [
    "Health",
    "Job",
    "JobHandle",
    "JobView",
    "Lock",
    "RunHandle",
    "Scheduler",
    "ShutdownReport",
    "Submission",
    "Upcoming",
]
