"""`duly history` and `duly rollback`: the versions of a job's definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from duly.cli.client import actor, ask, record_action
from duly.cli.confirming import can_ask, yes_option
from duly.cli.options import command, json_option, store_option
from duly.cli.output import note, write_block, write_json, write_line
from duly.cli.text import full, line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duly.rules.definition_words import FieldChange
    from duly.rules.definitions import Revision
    from duly.scheduler import Scheduler
    from duly.scheduler.job_history import Rollback


@command("duly history nightly_report", "duly history nightly_report -n 3 --json")
@click.argument("job")
@click.option("-n", "--count", type=click.IntRange(1, 100), default=10, show_default=True, help="How many versions.")
@store_option
@json_option
def history(job: str, count: int, url: str | None, as_json: bool) -> None:
    """Show the versions of JOB's definition, newest first: who wrote each, when, and what it changed.

    The newest 50 replaced versions are kept. Pausing a job is not a new version, so the numbers of revisions may jump.
    Values of a command's environment are not shown.
    """
    found = ask(url, lambda scheduler: scheduler.history(job))
    if as_json:
        write_json(found[:count])
        return
    for each in found[:count]:
        write_block(_title(each), [line(text) for text in each.words()])
    if len(found) > count:
        note(f"\n{len(found) - count} earlier versions: -n {min(len(found), 100)} shows them")


def _title(each: Revision) -> str:
    by = f" by {line(each.by)}" if each.by else ""
    return f"revision {each.revision}{' (now)' if each.current else ''}: {full(each.at)}{by}"


@command("duly rollback nightly_report", "duly rollback nightly_report 4", "duly rollback nightly_report 4 --yes")
@click.argument("job")
@click.argument("revision", type=click.IntRange(1), required=False)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@yes_option
@store_option
@json_option
def rollback(job: str, revision: int | None, dry_run: bool, yes: bool, url: str | None, as_json: bool) -> None:
    """Give JOB the definition it had at REVISION, or its previous one, as a new revision.

    The change is shown first, and on a terminal you are asked to confirm it. A job that live nodes define in their code
    is refused, because their next start would write their definition again: deploy the earlier code instead.
    """

    async def change(scheduler: Scheduler) -> Rollback:
        before = await scheduler.get_job(job)
        done = await scheduler.rollback(job, revision, by=actor(), dry_run=dry_run)
        if done.revision != before.revision:
            was, is_now = {"revision": before.revision}, {"revision": done.revision, "to": done.to}
            await record_action(scheduler, "rollback", f"job {job}", was, is_now)
        return done

    if not (dry_run or yes) and can_ask():
        planned = ask(url, lambda scheduler: scheduler.rollback(job, revision, dry_run=True))
        if planned.changes:
            _write_changes(planned.changes)
            click.confirm(f"Roll {job} back to revision {planned.to}?", abort=True, err=True)
    done = ask(url, change)
    if as_json:
        write_json(done)
    else:
        _write(done)


def _write(done: Rollback) -> None:
    if not done.changes:
        write_line(f"{done.job} is as it was at revision {done.to}: nothing was changed")
        return
    if done.dry_run:
        _write_changes(done.changes)
        write_line("nothing was changed: --dry-run")
        return
    write_line(f"{done.job} has the definition of revision {done.to} again, as revision {done.revision}")
    if done.job_file is not None:
        note(f"job file {done.job_file} defines this job: when it is applied again, its definition counts again")


def _write_changes(changes: Iterable[FieldChange]) -> None:
    for each in changes:
        write_line(line(f"{each.field}: {each.old} → {each.new}"))
