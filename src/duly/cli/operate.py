"""`duly remove`, `restore`, `cancel`, `redrive` and `migrate`: commands that change what is in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from duly.cli.actions import cancel_run, redrive_run, remove_job, restore_job
from duly.cli.bulk import cancelling, change_many, redriving
from duly.cli.client import actor, address_of, ask, find_run
from duly.cli.completing import job_names, removed_job_names, run_ids
from duly.cli.confirming import can_ask, yes_option
from duly.cli.options import command, namespace, store_option
from duly.cli.output import write_line
from duly.cli.payloads import read_payload
from duly.cli.run_filters import RunFilters, refuse_both, run_filters
from duly.cli.settings import read_settings
from duly.errors import DulyError
from duly.model import CancelReply
from duly.rules.redaction import redacted

if TYPE_CHECKING:
    from duly.scheduler import Scheduler


@command("duly remove nightly_report", "duly remove nightly_report --yes")
@click.argument("job", shell_complete=job_names)
@yes_option
@store_option
def remove(job: str, yes: bool, url: str | None) -> None:
    """Remove JOB and cancel its waiting runs. Running runs continue, history stays. Asks first on a terminal.

    A job that code defines stays removed when that code starts again, until duly restore, or until it is registered
    with restore=True.
    """
    if not yes and can_ask():
        click.confirm(f"Remove {job} and cancel its waiting runs?", abort=True)

    ask(url, lambda scheduler: remove_job(scheduler, job))
    write_line(f"{job} is removed")


@command("duly restore nightly_report")
@click.argument("job", shell_complete=removed_job_names)
@store_option
def restore(job: str, url: str | None) -> None:
    """Plan a removed JOB again, as its code last defined it.

    The store keeps the definition of a removed job only if code defined it. Define others again: through the API, or
    with duly apply.
    """
    ask(url, lambda scheduler: restore_job(scheduler, job))
    write_line(f"{job} is planned again")


@command(
    'duly cancel 00064327ad31b0c71f7bd4e7f1 --reason "sent by mistake"',
    "duly cancel --job send_mail --state pending",
    "duly cancel --tag billing --since 1h --yes",
)
@click.argument("run", required=False, shell_complete=run_ids)
@click.option("--reason", help="The reason; kept with the run.")
@run_filters()
@yes_option
@store_option
def cancel(run: str | None, reason: str | None, filters: RunFilters, yes: bool, url: str | None) -> None:
    """Cancel RUN, or all runs that match: waiting ones at once; the workers of running ones are asked to stop.

    With options instead of RUN, the number of runs and some of them are shown first, and you are asked. Without a
    terminal this needs --yes. Runs that are created afterwards are not touched. Without --state, pending, queued and
    running runs are meant.
    """
    if run is None:
        change_many(url, cancelling(reason), filters, {"reason": reason}, yes=yes)
        return
    refuse_both(filters)

    async def find_and_cancel(scheduler: Scheduler) -> tuple[str, CancelReply]:
        found = await find_run(scheduler, run)
        return found.id, await cancel_run(scheduler, found, reason)

    run_id, reply = ask(url, find_and_cancel)
    match reply:
        case CancelReply.DONE:
            write_line(f"run {run_id} is cancelled")
        case CancelReply.REQUESTED:
            write_line(f"run {run_id} is running; its worker has been asked to stop")
        case _:
            raise DulyError(f"run {run_id} had ended already: see duly show {run_id}")


@command(
    "duly redrive 00064327ad31b0c71f7bd4e7f1",
    "duly redrive 00064327ad31b0c71f7bd4e7f1 --payload @corrected.json",
    "duly redrive --job send_mail --error timeout --since 1h",
    "duly redrive --state failed --state lost --tag billing --yes",
)
@click.argument("run", required=False, shell_complete=run_ids)
@click.option(
    "--payload", "document", metavar="JSON", help="Arguments instead of the run's own: JSON, @FILE, or - for stdin."
)
@run_filters()
@yes_option
@store_option
def redrive(run: str | None, document: str | None, filters: RunFilters, yes: bool, url: str | None) -> None:
    """Run a failed, lost or cancelled RUN again, under the same id and with all its retries; or all that match.

    With options instead of RUN, the number of runs and some of them are shown first, and you are asked. Without a
    terminal this needs --yes. Runs that fail afterwards are not touched. Without --state, failed runs are meant.
    """
    if run is None:
        if document is not None:
            raise click.UsageError("--payload is for one RUN: name it")
        change_many(url, redriving(), filters, {}, yes=yes)
        return
    refuse_both(filters)
    payload = read_payload((), document, "--payload")

    async def find_and_redrive(scheduler: Scheduler) -> str:
        found = await find_run(scheduler, run)
        await redrive_run(scheduler, found, payload)
        return found.id

    write_line(f"run {ask(url, find_and_redrive)} waits to be run again")


@command("duly migrate --url postgresql://jobs.internal/duly")
@store_option
def migrate(url: str | None) -> None:
    """Apply the schema steps that the store lacks. Several processes may do this at the same time.

    Nodes apply steps that only add something when they open a store. Steps that remove something wait for this command:
    run it when the last node of the old version has stopped.
    """
    import asyncio  # noqa: PLC0415  # the help of this command needs none of these

    address = address_of(url).store
    applied = asyncio.run(_migrate(address, namespace() or read_settings().field("namespace")))
    for step in applied:
        write_line(f"applied {step}")
    if not applied:
        write_line(f"{redacted(address)} is up to date")


async def _migrate(address: str, chosen: str | None) -> list[str]:
    from duly.backends import open_backend  # noqa: PLC0415
    from duly.model import SchedulerConfig  # noqa: PLC0415
    from duly.ports import Opening  # noqa: PLC0415
    from duly.scheduler.audit import Audit  # noqa: PLC0415

    opening = Opening(chosen or SchedulerConfig().namespace, migrates=False)
    async with open_backend(address, opening) as backend:
        applied = await backend.store.migrate()
        if applied:
            audit = Audit(backend.store, read_settings().field("audit_key"))
            await audit.record(actor(), "migrate", "schema", backend.clock.now(), after={"steps": applied})
        return applied
