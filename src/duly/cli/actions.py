"""What operators do with jobs, runs and queues. Each change is recorded in the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from duly.cli.client import record_action
from duly.model import CancelReply, Run

if TYPE_CHECKING:
    from duly.scheduler import JobView, RunHandle, Scheduler


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


async def remove_job(scheduler: Scheduler, job: str) -> None:
    """Remove a job."""
    before = await scheduler.get_job(job)
    await scheduler.remove(job)
    await record_action(scheduler, "remove", f"job {job}", _revision(before))


async def restore_job(scheduler: Scheduler, job: str) -> None:
    """Plan a removed job again."""
    await scheduler.restore(job)
    await record_action(scheduler, "restore", f"job {job}", after=_revision(await scheduler.get_job(job)))


def _revision(job: JobView) -> dict[str, Any]:
    return {"status": job.status, "revision": job.revision}


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


async def pause_queue(scheduler: Scheduler, queue: str) -> bool:
    """Let no run of a queue start; False if it was paused already."""
    return await _change_queue(scheduler, "pause", queue, (await scheduler.opened()).pause_queue, paused=True)


async def resume_queue(scheduler: Scheduler, queue: str) -> bool:
    """Resume a queue; False if it was not paused."""
    return await _change_queue(scheduler, "resume", queue, (await scheduler.opened()).resume_queue, paused=False)


async def _change_queue(
    scheduler: Scheduler, action: str, queue: str, change: Callable[[str], Awaitable[bool]], *, paused: bool
) -> bool:
    changed = await change(queue)
    if changed:
        await record_action(scheduler, action, f"queue {queue}", {"paused": not paused}, {"paused": paused})
    return changed
