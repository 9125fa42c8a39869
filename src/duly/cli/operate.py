"""`duly pause`, `resume`, `remove`, `cancel`, `redrive` and `migrate`: commands that change what is in the store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from duly.cli.actions import cancel_run, pause_job, redrive_run, resume_job
from duly.cli.client import actor, address_of, ask, find_run, record_action
from duly.cli.options import command, namespace, store_option
from duly.cli.output import write_line
from duly.cli.settings import read_settings
from duly.errors import DulyError
from duly.model import CancelReply
from duly.rules.redaction import redacted

if TYPE_CHECKING:
    from duly.scheduler import Scheduler


@command('duly pause nightly_report --note "the warehouse moves"')
@click.argument("job")
@click.option("--note", default="", help="The reason; shown with the job.")
@store_option
def pause(job: str, note: str, url: str | None) -> None:
    """Stop planning and starting JOB until it is resumed, across restarts and deploys. Running runs continue."""
    ask(url, lambda scheduler: pause_job(scheduler, job, note))
    write_line(f"{job} is paused; duly resume {job} resumes it")


@command("duly resume nightly_report")
@click.argument("job")
@store_option
def resume(job: str, url: str | None) -> None:
    """Resume a paused JOB. The runs that it missed are recorded as skipped."""
    ask(url, lambda scheduler: resume_job(scheduler, job))
    click.echo(f"{job} is resumed")


def can_ask() -> bool:
    """Whether the command runs on a terminal, where a question can be answered."""
    return sys.stdin.isatty()


@command("duly remove nightly_report", "duly remove nightly_report --yes")
@click.argument("job")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@store_option
def remove(job: str, yes: bool, url: str | None) -> None:
    """Remove JOB and cancel its waiting runs. Running runs continue, history stays. Asks first on a terminal.

    A job that code defines stays removed when that code starts again, until it is registered with restore=True.
    """
    if not yes and can_ask():
        click.confirm(f"Remove {job} and cancel its waiting runs?", abort=True)

    async def remove_and_record(scheduler: Scheduler) -> None:
        before = await scheduler.get_job(job)
        await scheduler.remove(job)
        was = {"status": before.status, "revision": before.revision}
        await record_action(scheduler, "remove", f"job {job}", was)

    ask(url, remove_and_record)
    click.echo(f"{job} is removed")


@command('duly cancel 00064327ad31b0c71f7bd4e7f1 --reason "sent by mistake"')
@click.argument("run")
@click.option("--reason", help="The reason; kept with the run.")
@store_option
def cancel(run: str, reason: str | None, url: str | None) -> None:
    """Cancel RUN: at once if it waits; if it is running, ask its worker to stop it."""

    async def find_and_cancel(scheduler: Scheduler) -> tuple[str, CancelReply]:
        found = await find_run(scheduler, run)
        return found.id, await cancel_run(scheduler, found, reason)

    run_id, reply = ask(url, find_and_cancel)
    match reply:
        case CancelReply.DONE:
            click.echo(f"run {run_id} is cancelled")
        case CancelReply.REQUESTED:
            click.echo(f"run {run_id} is running; its worker has been asked to stop")
        case _:
            raise DulyError(f"run {run_id} had ended already: see duly show {run_id}")


@command(
    "duly redrive 00064327ad31b0c71f7bd4e7f1",
    "duly runs --state failed --json | jq -r '.[].id' | xargs -n1 duly redrive",
)
@click.argument("run")
@store_option
def redrive(run: str, url: str | None) -> None:
    """Run a failed, lost or cancelled RUN again, under the same id and with all its retries."""

    async def find_and_redrive(scheduler: Scheduler) -> str:
        found = await find_run(scheduler, run)
        await redrive_run(scheduler, found)
        return found.id

    click.echo(f"run {ask(url, find_and_redrive)} waits to be run again")


@command("duly migrate --url postgresql://jobs.internal/duly")
@store_option
def migrate(url: str | None) -> None:
    """Apply the schema steps that the store lacks. Several processes may do this at the same time.

    Nodes apply steps that only add something when they open a store. Steps that remove something wait for this command:
    run it when the last node of the old version has stopped.
    """
    import asyncio  # noqa: PLC0415  # the help of this command needs none of these

    address = address_of(url).store
    applied = asyncio.run(_migrate(address, namespace() or read_settings().namespace))
    for step in applied:
        click.echo(f"applied {step}")
    if not applied:
        click.echo(f"{redacted(address)} is up to date")


async def _migrate(address: str, chosen: str | None) -> list[str]:
    from duly.backends import open_backend  # noqa: PLC0415
    from duly.model import SchedulerConfig  # noqa: PLC0415
    from duly.ports import Opening  # noqa: PLC0415
    from duly.scheduler.audit import Audit  # noqa: PLC0415

    opening = Opening(chosen or SchedulerConfig().namespace, migrates=False)
    async with open_backend(address, opening) as backend:
        applied = await backend.store.migrate()
        if applied:
            audit = Audit(backend.store, read_settings().audit_key)
            await audit.record(actor(), "migrate", "schema", backend.clock.now(), after={"steps": applied})
        return applied
