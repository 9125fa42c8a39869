"""`duly submit` and `duly trigger`: submit a run, and wait for it with `--wait`.

Standard output has only the id of the run, so that it can be piped; with `--wait` it is the result as JSON.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from duly.cli.actions import trigger_job
from duly.cli.client import ask, store_time
from duly.cli.completing import job_names, queue_names
from duly.cli.options import F, command, duration, store_option
from duly.cli.output import note, write_json
from duly.cli.payloads import read_payload
from duly.cli.text import full
from duly.cli.time_args import time_type, zone_option
from duly.errors import ConfigurationError, DulyError, ResultExpired, RunNotFound
from duly.model import Node, Role, is_job_name
from duly.rules.time_words import TimeText

if TYPE_CHECKING:
    from duly.scheduler import RunHandle, Scheduler

Submit = Callable[["Scheduler"], "Awaitable[RunHandle[Any]]"]


def waiting(command: F) -> F:
    """`--wait` and `--timeout`."""
    wait = click.option("--wait", is_flag=True, help="Wait until the run has ended, and print its result.")
    limit = click.option("--timeout", type=duration, metavar="DURATION", help="With --wait: the longest time to wait.")
    return wait(limit(command))


@command(
    "duly submit send_mail to=ada@example.org subject=Hi",
    "duly submit send_mail to=ada@example.org --delay 10m --priority 5",
    'duly submit resize --payload \'{"path": "a.png"}\' --wait --timeout 1m',
    "duly submit import_orders --payload @orders.json",
)
@click.argument("handler", shell_complete=job_names)
@click.argument("words", metavar="[KEY=VALUE]...", nargs=-1)
@click.option(
    "--payload",
    "--json-payload",
    "document",
    metavar="JSON",
    help="All arguments as one JSON object: JSON, @FILE, or - for standard input.",
)
@click.option("--delay", type=duration, metavar="DURATION", help="Start after this time, for example 10m.")
@click.option(
    "--at", type=time_type, metavar="T", help="Start at this time, for example 2027-03-14T02:30Z or in 5 minutes."
)
@zone_option("The time zone of --at, if it has none.", default="UTC")
@click.option("--priority", type=click.IntRange(0, 9), help="0 to 9; 9 is the most urgent.")
@click.option("--dedupe-key", metavar="KEY", help="If an unfinished run has this key, use that run instead.")
@click.option(
    "--unique-for",
    type=duration,
    metavar="DURATION",
    help="With --dedupe-key: use the same run for this long, whatever its state.",
)
@click.option("--queue", shell_complete=queue_names, help="A queue other than the job's.")
@click.option("--force", is_flag=True, help="Accept a handler that no live node and no job has yet.")
@waiting
@store_option
def submit(
    handler: str,
    words: tuple[str, ...],
    document: str | None,
    delay: float | None,
    at: TimeText | None,
    timezone: str,
    priority: int | None,
    dedupe_key: str | None,
    unique_for: float | None,
    queue: str | None,
    force: bool,
    wait: bool,
    timeout: float | None,
    url: str | None,
) -> None:
    """Submit a run to HANDLER with these arguments, and print its id.

    A HANDLER that no live node and no job has is refused, because it is probably misspelt. With --force the run is
    accepted and waits until a node has the handler: for submissions before a deploy.

    A value that is valid JSON is read as JSON (3, true, [1, 2]), anything else as text. Quote digits that are text:
    '"007"'.
    """
    if unique_for is not None and dedupe_key is None:
        raise click.UsageError("--unique-for needs --dedupe-key")
    payload = read_payload(words, document, "--payload")

    async def submit_it(scheduler: Scheduler) -> RunHandle[Any]:
        if not force:
            await _refuse_unknown(scheduler, handler)
        due = None if at is None else at.resolve(await store_time(scheduler), timezone)
        return await scheduler.submit(
            handler,
            payload,
            at=due,
            delay=delay,
            priority=priority,
            dedupe_key=dedupe_key,
            unique_for=unique_for,
            queue=queue,
        )

    _submit_and_wait(url, submit_it, wait=wait, timeout=timeout)


async def _refuse_unknown(scheduler: Scheduler, handler: str) -> None:
    from duly.scheduler.known_names import is_known_handler, no_such_handler  # noqa: PLC0415

    client = await scheduler.opened()
    if is_job_name(handler) and not await is_known_handler(client, handler):
        raise ConfigurationError(f"{await no_such_handler(client, handler)} (--force submits it all the same)")


@command(
    "duly trigger nightly_report",
    "duly trigger nightly_report day=2027-03-14 --wait --timeout 10m",
    "duly trigger nightly_report --payload @night.json",
)
@click.argument("job", shell_complete=job_names)
@click.argument("words", metavar="[KEY=VALUE]...", nargs=-1)
@click.option(
    "--payload",
    "document",
    metavar="JSON",
    help="Arguments instead of the job's own, as one JSON object: JSON, @FILE, or - for standard input.",
)
@waiting
@store_option
def trigger(
    job: str, words: tuple[str, ...], document: str | None, wait: bool, timeout: float | None, url: str | None
) -> None:
    """Run JOB now, with its own payload or with these arguments, and print the id of the run.

    The job's overlap policy applies, as it does to scheduled runs.
    """
    payload = read_payload(words, document, "--payload")

    _submit_and_wait(url, lambda scheduler: trigger_job(scheduler, job, payload), wait=wait, timeout=timeout)


def _submit_and_wait(url: str | None, submit_run: Submit, *, wait: bool, timeout: float | None) -> None:
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")

    submitted: list[str] = []

    async def conversation(scheduler: Scheduler) -> tuple[bool, Any]:
        handle = await submit_run(scheduler)
        submitted.append(handle.id)
        if handle.deduplicated:
            note(f"a run with this key exists already, submitted at {full(handle.created_at)}: {handle.id}")
        if not wait:
            click.echo(handle.id)
        await _note_missing_worker(scheduler, handle)
        if not wait:
            return False, None
        note(f"waiting for run {handle.id}")
        return await _result(handle, timeout)

    try:
        has_result, value = ask(url, conversation)
    except KeyboardInterrupt:
        for run_id in submitted:
            note(f"\nno longer waiting; the run continues: duly show {run_id}")
        raise
    if has_result:
        write_json(value)


async def _result(handle: RunHandle[Any], timeout: float | None) -> tuple[bool, Any]:
    try:
        return True, await handle.result(timeout)
    except ResultExpired as exc:
        note(str(exc))
        return False, None
    except TimeoutError as exc:
        raise DulyError(str(exc)) from exc


async def _note_missing_worker(scheduler: Scheduler, handle: RunHandle[Any]) -> None:
    """Print a note if no worker can run it."""
    nodes = await scheduler.nodes()
    try:
        run = await handle.get()
    except RunNotFound:  # a key can outlive its run
        note(f"run {handle.id} has ended, and retention has purged it")
        return
    if not run.final and (reason := _missing_worker(nodes, run.handler)):
        note(reason)


def _missing_worker(nodes: Sequence[Node], handler: str) -> str | None:
    workers = [node for node in nodes if Role.WORKER in node.roles]
    if not workers:
        return "no worker is alive: the run waits until one starts"
    if not any(handler in node.handlers for node in workers):
        return f"no live worker has the handler {handler!r}: the run waits until one does"
    return None
