"""`duly pause`, `resume`, `remove`, `cancel` and `redrive`: changing what will happen."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from duly.cli import audit_actions
from duly.cli.client import ask
from duly.cli.options import command, store_option
from duly.errors import DulyError
from duly.model import CancelReply

if TYPE_CHECKING:
    from duly.scheduler import Scheduler


@command('duly pause nightly_report --note "the warehouse moves"')
@click.argument("job")
@click.option("--note", default="", help="Why; shown with the job.")
@store_option
def pause(job: str, note: str, url: str | None) -> None:
    """Stop planning and starting JOB until it is resumed; survives restarts and deploys. What runs goes on."""

    async def stop(scheduler: Scheduler) -> None:
        await _operate(scheduler, "pause", job, lambda: scheduler.pause(job, note))

    ask(url, stop)
    click.echo(f"{job} is paused; duly resume {job} lets it go on")


@command("duly resume nightly_report")
@click.argument("job")
@store_option
def resume(job: str, url: str | None) -> None:
    """Let a paused JOB go on. What it missed is recorded as skipped."""

    async def go_on(scheduler: Scheduler) -> None:
        await _operate(scheduler, "resume", job, lambda: scheduler.resume(job))

    ask(url, go_on)
    click.echo(f"{job} goes on")


async def _operate(scheduler: Scheduler, action: str, job: str, act: Callable[[], Awaitable[None]]) -> None:
    """Change a job, and write down how it was and is, if it has changed."""
    before = await scheduler.get_job(job)
    await act()
    after = await scheduler.get_job(job)
    if after.revision != before.revision:
        was, is_now = ({"status": view.status, "note": view.note} for view in (before, after))
        await audit_actions.note(scheduler, action, f"job {job}", was, is_now)


def can_ask() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty()


@command("duly remove nightly_report", "duly remove nightly_report --yes")
@click.argument("job")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_option
def remove(job: str, yes: bool, url: str | None) -> None:
    """Remove JOB and cancel its waiting runs; what runs may end, and history stays. Asks first on a terminal.

    A job that code defines stays removed when that code starts again, until it is registered with restore=True.
    """
    if not yes and can_ask():
        click.confirm(f"Remove {job} and cancel its waiting runs?", abort=True)

    async def forget(scheduler: Scheduler) -> None:
        before = await scheduler.get_job(job)
        await scheduler.remove(job)
        await audit_actions.note(
            scheduler, "remove", f"job {job}", {"status": before.status, "revision": before.revision}
        )

    ask(url, forget)
    click.echo(f"{job} is removed")


@command('duly cancel 00064327ad31b0c71f7bd4e7f1 --reason "sent by mistake"')
@click.argument("run")
@click.option("--reason", help="Why; kept with the run.")
@store_option
def cancel(run: str, reason: str | None, url: str | None) -> None:
    """Cancel RUN: at once while it waits, by asking its worker while it runs."""

    async def stop(scheduler: Scheduler) -> CancelReply:
        before = await scheduler.get_run(run)
        reply = await scheduler.cancel(run, reason)
        if reply is not CancelReply.TOO_LATE:
            await audit_actions.note(scheduler, "cancel", f"run {run}", {"status": before.state}, {"reason": reason})
        return reply

    match ask(url, stop):
        case CancelReply.DONE:
            click.echo(f"run {run} is cancelled")
        case CancelReply.REQUESTED:
            click.echo(f"run {run} is running; its worker has been asked to stop")
        case _:
            raise DulyError(f"run {run} had ended already: see duly show {run}")


@command(
    "duly redrive 00064327ad31b0c71f7bd4e7f1",
    "duly runs --state failed --json | jq -r '.[].id' | xargs -n1 duly redrive",
)
@click.argument("run")
@store_option
def redrive(run: str, url: str | None) -> None:
    """Run a failed, lost or cancelled RUN again, under the same id and with all its retries."""

    async def again(scheduler: Scheduler) -> None:
        before = await scheduler.get_run(run)
        await scheduler.redrive(run)
        await audit_actions.note(scheduler, "redrive", f"run {run}", {"status": before.state})

    ask(url, again)
    click.echo(f"run {run} waits to be run again")
