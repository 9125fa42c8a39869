"""`duly pause` and `duly resume`: one job, several, all with a tag, or a queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import click

from duly.cli.actions import pause_job, pause_queue, resume_job, resume_queue
from duly.cli.client import ask
from duly.cli.completing import job_names, queue_names
from duly.cli.confirming import confirm
from duly.cli.options import F, command, store_option
from duly.cli.output import write_line
from duly.errors import DulyError, JobNotFound

if TYPE_CHECKING:
    from duly.scheduler import Scheduler

Change = Callable[["Scheduler", str], Awaitable[None]]


def _choosing(function: F) -> F:
    """The jobs by name or by tag, or a queue."""
    for option in (
        click.option("--yes", "-y", is_flag=True, help="With --tag: do not ask for confirmation."),
        click.option("--queue", shell_complete=queue_names, help="The queue of this name instead of a job."),
        click.option("--tag", help="All jobs with this tag."),
        click.argument("jobs", metavar="[JOB]...", nargs=-1, shell_complete=job_names),
    ):
        function = option(function)
    return function


@command(
    'duly pause nightly_report --note "the warehouse moves"',
    "duly pause --tag billing --yes",
    "duly pause --queue mail",
)
@_choosing
@click.option("--note", default="", help="The reason; shown with the job.")
@store_option
def pause(jobs: tuple[str, ...], tag: str | None, queue: str | None, yes: bool, note: str, url: str | None) -> None:
    """Stop planning and starting each JOB until it is resumed, across restarts and deploys. Running runs continue.

    With --queue, no run of this queue is started until it is resumed; its jobs are planned as usual.
    """
    _check_choice(jobs, tag, queue)
    if queue is not None:
        if note:
            raise click.UsageError("--note is kept with a job; a queue has none")
        _pause_queue(url, queue)
        return
    names = _chosen(url, "Pause", jobs, tag, yes=yes)
    done = _change_each(url, names, lambda scheduler, job: pause_job(scheduler, job, note))
    if len(done) == 1:
        write_line(f"{done[0]} is paused; duly resume {done[0]} resumes it")
    else:
        write_line(f"{len(done)} jobs are paused; duly resume resumes them")


@command("duly resume nightly_report", "duly resume --tag billing --yes", "duly resume --queue mail")
@_choosing
@store_option
def resume(jobs: tuple[str, ...], tag: str | None, queue: str | None, yes: bool, url: str | None) -> None:
    """Resume each paused JOB. The runs that it missed are recorded as skipped. With --queue, resume a queue."""
    _check_choice(jobs, tag, queue)
    if queue is not None:
        _resume_queue(url, queue)
        return
    names = _chosen(url, "Resume", jobs, tag, yes=yes)
    done = _change_each(url, names, resume_job)
    write_line(f"{done[0]} is resumed" if len(done) == 1 else f"{len(done)} jobs are resumed")


def _check_choice(jobs: Sequence[str], tag: str | None, queue: str | None) -> None:
    if sum(map(bool, (jobs, tag, queue))) != 1:
        raise click.UsageError("give either JOB names, --tag or --queue")


def _chosen(url: str | None, verb: str, jobs: Sequence[str], tag: str | None, *, yes: bool) -> list[str]:
    """The names of the jobs. Those with a tag are shown first, and asked about."""
    if tag is None:
        return list(dict.fromkeys(jobs))
    names = ask(url, lambda scheduler: _names_with_tag(scheduler, tag))
    if not names:
        raise DulyError(f"no job has the tag {tag!r}: see duly jobs")
    write_line(f"{len(names)} job{'s' * (len(names) > 1)} with the tag {tag}: {', '.join(names)}")
    confirm(f"{verb} them?", yes=yes)
    return names


async def _names_with_tag(scheduler: Scheduler, tag: str) -> list[str]:
    from duly.scheduler.tagged_jobs import jobs_with_tag  # noqa: PLC0415  # the help of commands needs no scheduler

    store = (await scheduler.opened()).backend.store
    return [record.name for record in await jobs_with_tag(store, tag)]


def _change_each(url: str | None, jobs: Sequence[str], change: Change) -> list[str]:
    """Change the jobs; those that exist are changed before an unknown name is reported."""

    async def change_all(scheduler: Scheduler) -> tuple[list[str], JobNotFound | None]:
        done, unknown = [], None
        for job in jobs:
            try:
                await change(scheduler, job)
            except JobNotFound as exc:
                unknown = unknown or exc
            else:
                done.append(job)
        return done, unknown

    done, unknown = ask(url, change_all)
    if unknown is not None:
        raise JobNotFound(f"{unknown}{'; the other jobs were changed' if done else ''}")
    return done


# --- queues


def _pause_queue(url: str | None, queue: str) -> None:
    changed = _ask_queue(url, queue, pause_queue)
    write_line(f"queue {queue} {'is' if changed else 'was already'} paused; duly resume --queue {queue} resumes it")


def _resume_queue(url: str | None, queue: str) -> None:
    changed = _ask_queue(url, queue, resume_queue)
    write_line(f"queue {queue} is resumed" if changed else f"queue {queue} was not paused")


def _ask_queue(url: str | None, queue: str, change: Callable[[Scheduler, str], Awaitable[bool]]) -> bool:
    """Change a queue; whether that changed anything."""

    async def checked(scheduler: Scheduler) -> bool:
        from duly.scheduler.job import check_queue  # noqa: PLC0415  # the help of commands needs no scheduler

        check_queue(queue, "--queue")
        return await change(scheduler, queue)

    return ask(url, checked)
