"""`duly submit` and `duly trigger`: asking for a run, and waiting for it if wanted.

The run's id is written to standard output, alone, so that it can be piped; with `--wait` it is the result, as JSON.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from duly.cli import audit_actions
from duly.cli.client import ask, store_time
from duly.cli.durations import duration
from duly.cli.options import F, command, store_option
from duly.cli.output import note, write_json
from duly.cli.payloads import read_payload
from duly.cli.time_args import TimeArg, moment, zone
from duly.cli.words import full
from duly.errors import DulyError, ResultExpired, RunNotFound
from duly.model import Node, Role

if TYPE_CHECKING:
    from duly.scheduler import RunHandle, Scheduler

Ask = Callable[["Scheduler"], "Awaitable[RunHandle[Any]]"]


def waiting(command: F) -> F:
    """`--wait` and `--timeout`."""
    wait = click.option("--wait", is_flag=True, help="Wait until the run has ended, and write its result.")
    limit = click.option("--timeout", type=duration, metavar="DURATION", help="With --wait: how long at most.")
    return wait(limit(command))


@command(
    "duly submit send_mail to=ada@example.org subject=Hi",
    "duly submit send_mail to=ada@example.org --delay 10m --priority 5",
    'duly submit resize --json-payload \'{"path": "a.png", "width": 80}\' --wait --timeout 1m',
)
@click.argument("handler")
@click.argument("words", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--json-payload", metavar="JSON", help="All arguments as one JSON object.")
@click.option("--delay", type=duration, metavar="DURATION", help="Start that much later, for example 10m.")
@click.option("--at", type=moment, metavar="T", help="Start then, for example 2027-03-14T02:30Z or in 5 minutes.")
@click.option(
    "--timezone", "--tz", "timezone", type=zone, default="UTC", metavar="ZONE", help="The zone of --at, if it has none."
)
@click.option("--priority", type=click.IntRange(0, 9), help="0 to 9; 9 is the most urgent.")
@click.option("--dedupe-key", metavar="KEY", help="While a run with this key is unfinished, that run is meant.")
@click.option(
    "--unique-for",
    type=duration,
    metavar="DURATION",
    help="With --dedupe-key: for that long from now the key means this run, whatever becomes of it.",
)
@click.option("--queue", help="Another queue than the job's.")
@waiting
@store_option
def submit(
    handler: str,
    words: tuple[str, ...],
    json_payload: str | None,
    delay: float | None,
    at: TimeArg | None,
    timezone: str,
    priority: int | None,
    dedupe_key: str | None,
    unique_for: float | None,
    queue: str | None,
    wait: bool,
    timeout: float | None,
    url: str | None,
) -> None:
    """Submit a run to HANDLER with these arguments, and write its id.

    A value that is JSON is taken as such (3, true, [1, 2]), anything else as text; quote digits that are text: '"007"'.
    """
    if unique_for is not None and dedupe_key is None:
        raise click.UsageError("--unique-for needs --dedupe-key")
    payload = read_payload(words, json_payload, "--json-payload")

    async def ask_for(scheduler: Scheduler) -> RunHandle[Any]:
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

    _ask_and_wait(url, ask_for, wait=wait, timeout=timeout)


@command("duly trigger nightly_report", "duly trigger nightly_report day=2027-03-14 --wait --timeout 10m")
@click.argument("job")
@click.argument("words", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--payload", "document", metavar="JSON", help="Other arguments than the job's own, as one JSON object.")
@waiting
@store_option
def trigger(
    job: str, words: tuple[str, ...], document: str | None, wait: bool, timeout: float | None, url: str | None
) -> None:
    """Run JOB once more, now, with its own payload or with these arguments, and write the run's id.

    The job's overlap rule applies as to its scheduled runs.
    """
    payload = read_payload(words, document, "--payload")

    async def once_more(scheduler: Scheduler) -> RunHandle[Any]:
        handle = await scheduler.trigger(job, payload)
        await audit_actions.note(scheduler, "trigger", f"job {job}", after={"run": handle.id})
        return handle

    _ask_and_wait(url, once_more, wait=wait, timeout=timeout)


def _ask_and_wait(url: str | None, ask_for: Ask, *, wait: bool, timeout: float | None) -> None:
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")

    asked: list[str] = []

    async def conversation(scheduler: Scheduler) -> tuple[bool, Any]:
        handle = await ask_for(scheduler)
        asked.append(handle.id)
        if handle.deduplicated:
            note(f"a run with this key exists, submitted at {full(handle.created_at)}: {handle.id}")
        if not wait:
            click.echo(handle.id)
        await _remark(scheduler, handle)
        if not wait:
            return False, None
        note(f"waiting for run {handle.id}")
        return await _result(handle, timeout)

    try:
        has_result, value = ask(url, conversation)
    except KeyboardInterrupt:
        for run_id in asked:
            note(f"\nnot waiting any longer; the run goes on: duly show {run_id}")
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


async def _remark(scheduler: Scheduler, handle: RunHandle[Any]) -> None:
    """Say so if nobody is there to run it."""
    nodes = await scheduler.nodes()
    try:
        run = await handle.get()
    except RunNotFound:  # a key may outlive its run
        note(f"run {handle.id} has ended, and retention has purged it")
        return
    if not run.final and (remark := _nobody(nodes, run.handler)):
        note(remark)


def _nobody(nodes: Sequence[Node], handler: str) -> str | None:
    workers = [node for node in nodes if Role.WORKER in node.roles]
    if not workers:
        return "no worker is alive: it waits until one is started"
    if not any(handler in node.handlers for node in workers):
        return f"no live worker has the handler {handler!r}: it waits until one does"
    return None
