"""What operators do with jobs, runs and queues. Each change is recorded in the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from duly.cli.client import record_action
from duly.model import CancelReply, Run

if TYPE_CHECKING:
    from duly.scheduler import RunHandle, Scheduler


async def pause_job(scheduler: Scheduler, job: str, note: str = "") -> None:
    """Stop planning and starting a job."""
    await _change(scheduler, "pause", job, lambda: scheduler.pause(job, note))


async def resume_job(scheduler: Scheduler, job: str) -> None:
    """Resume a paused job."""
    await _change(scheduler, "resume", job, lambda: scheduler.resume(job))


async def _change(scheduler: Scheduler, action: str, job: str, change: Callable[[], Awaitable[None]]) -> None:
    """Change a job, and record the change if there was one."""
    before = await scheduler.get_job(job)
    await change()
    after = await scheduler.get_job(job)
    if after.revision != before.revision:
        was, is_now = ({"status": view.status, "note": view.note} for view in (before, after))
        await record_action(scheduler, action, f"job {job}", was, is_now)


async def trigger_job(scheduler: Scheduler, job: str, payload: Mapping[str, Any] | None = None) -> RunHandle[Any]:
    """Run a job now."""
    handle = await scheduler.trigger(job, payload)
    await record_action(scheduler, "trigger", f"job {job}", after={"run": handle.id})
    return handle


async def cancel_run(scheduler: Scheduler, run: Run, reason: str | None = None) -> CancelReply:
    """Cancel a run, or ask its worker to stop it."""
    reply = await scheduler.cancel(run.id, reason)
    if reply is not CancelReply.TOO_LATE:
        await record_action(scheduler, "cancel", f"run {run.id}", {"status": run.state}, {"reason": reason})
    return reply


async def redrive_run(scheduler: Scheduler, run: Run, payload: Mapping[str, Any] | None = None) -> None:
    """Run an ended run again, with its own payload or this one."""
    from duly.scheduler.audit_actions import redriven  # noqa: PLC0415  # other actions do not need it

    await scheduler.redrive(run.id, payload)
    new = None if payload is None else (await scheduler.get_run(run.id)).payload
    await record_action(scheduler, "redrive", f"run {run.id}", *redriven(run, new))


async def pause_queue(scheduler: Scheduler, queue: str, *, paused: bool) -> None:
    """Pause or resume a queue."""
    client = await scheduler.opened()
    if await (client.pause_queue(queue) if paused else client.resume_queue(queue)):
        action = "pause" if paused else "resume"
        await record_action(scheduler, action, f"queue {queue}", {"paused": not paused}, {"paused": paused})
