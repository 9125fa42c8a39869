"""`duly events`: the published events of runs, jobs, queues and nodes, one per line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from duly.cli.cells import cut
from duly.cli.client import ask, find_run
from duly.cli.options import MOST_SEQUENCE, command, json_option, store_option
from duly.cli.output import COLOURS, WARN, in_full, json_text, note, room, shown_id, write_json
from duly.cli.runs import progress
from duly.cli.text import line, span
from duly.errors import AmbiguousRun, BackendUnavailable, RunNotFound
from duly.model import Progress
from duly.model.published_event import PublishedEventKind

if TYPE_CHECKING:
    from duly.scheduler import Scheduler
    from duly.scheduler.event_reader import Choice, EventReader, ReadEvent

_SLICE = 500
_PERIOD = 0.25
_AFTER_FAILURE = 1.0
_KINDS = [kind.value for kind in PublishedEventKind]


@command(
    "duly events",
    "duly events --follow",
    "duly events --follow --kind run.ended --job nightly_report",
    "duly events --after 1200 --limit 1000 --json",
)
@click.option("--follow", "-f", is_flag=True, help="Show new events as they happen, until Ctrl-C.")
@click.option(
    "--after",
    type=click.IntRange(0, MOST_SEQUENCE),
    metavar="ID",
    help="Only events after this one, the oldest first.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(_KINDS),
    metavar="KIND",
    help="Only events of this kind, such as run.ended; repeatable.",
)
@click.option("--job", help="Only events of this job.")
@click.option("--queue", help="Only events of this queue.")
@click.option("--handler", help="Only events of this handler.")
@click.option("--run", help="Only events of this run.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most.")
@store_option
@json_option
def events(
    follow: bool,
    after: int | None,
    kinds: tuple[str, ...],
    job: str | None,
    queue: str | None,
    handler: str | None,
    run: str | None,
    limit: int,
    url: str | None,
    as_json: bool,
) -> None:
    """Show events of runs, jobs, queues and nodes: the newest ones, or those after an id.

    Nodes that `duly` runs publish their events; a node in your own program does with publish_events=True. With --follow
    and --json each event is one line of JSON.
    """
    from duly.scheduler.event_reader import Choice  # noqa: PLC0415  # `--help` needs no scheduler

    async def read(scheduler: Scheduler) -> list[ReadEvent]:
        run_id = None if run is None else await _run_id(scheduler, run)
        choice = Choice(frozenset(kinds), run_id, job, queue, handler)
        return await _read(scheduler, choice, after, limit, follow=follow, as_json=as_json)

    try:
        found = ask(url, read)
    except KeyboardInterrupt:
        return
    if as_json:
        write_json([_document(event) for event in found])
    elif not found:
        note("no events match; a node in your own program publishes its events with publish_events=True")
    else:
        _write(found, as_json=False)


async def _run_id(scheduler: Scheduler, text: str) -> str:
    """The id of a run that may be shortened. A run that has been purged may still have events."""
    try:
        return (await find_run(scheduler, text)).id
    except AmbiguousRun:
        raise
    except RunNotFound:
        return text


async def _read(
    scheduler: Scheduler, choice: Choice, after: int | None, limit: int, *, follow: bool, as_json: bool
) -> list[ReadEvent]:
    """The events that match; with `follow` they are written as they come, until the command is interrupted."""
    from duly.scheduler.event_reader import EventReader  # noqa: PLC0415

    reader = EventReader((await scheduler.opened()).backend.store)
    if not follow:
        return await _list(reader, choice, after, limit)
    known = await reader.last() if after is None else after
    await _follow(reader, choice, known, as_json=as_json)
    return []


async def _list(reader: EventReader, choice: Choice, after: int | None, limit: int) -> list[ReadEvent]:
    """The first events after an id, or the newest ones."""
    found: list[ReadEvent] = []
    known = after or 0
    if after is None and not choice.chooses:
        known = max(0, await reader.last() - limit)
    while part := await reader.read(known, _SLICE):
        known = part[-1].id
        found += [event for event in part if choice.takes(event)]
        if after is not None and len(found) >= limit:
            return found[:limit]
        found = found if after is not None else found[-limit:]
    return found


async def _follow(reader: EventReader, choice: Choice, known: int, *, as_json: bool) -> None:
    import asyncio  # noqa: PLC0415

    away = False
    while True:
        try:
            part = await reader.read(known, _SLICE)
        except BackendUnavailable as exc:
            if not away:
                note(f"{exc}; waiting for it")
            away = True
            await asyncio.sleep(_AFTER_FAILURE)
            continue
        away = False
        if part and part[0].id != known + 1:
            note(f"{part[0].id - known - 1} events after {known} are no longer kept")
        known = part[-1].id if part else known
        _write([event for event in part if choice.takes(event)], as_json=as_json)
        if len(part) < _SLICE:
            await asyncio.sleep(_PERIOD)


def _document(event: ReadEvent) -> dict[str, Any]:
    return {"id": event.id, **json.loads(event.text)}


def _write(found: Sequence[ReadEvent], *, as_json: bool) -> None:
    for event in found:
        document = _document(event)
        if as_json:
            click.echo(json_text(document))
        else:
            at = str(document["at"]).replace("T", " ")[:23]
            moment = f"{at}Z" if in_full() else at[11:19]
            lead = f"{event.id:>7}  {moment}  {event.words.kind:<14}  "
            text, limit = line(_words(document)), room()
            shown = text if limit is None else cut(text, limit - len(lead))
            click.echo(f"{lead}{click.style(shown, fg=_colour(document))}")


def _colour(document: Mapping[str, Any]) -> str | None:
    if document["kind"] != "run.ended":
        return WARN if document["kind"] == "events.dropped" else None
    return WARN if "retry_at" in document else COLOURS.get(document.get("state", ""))


def _words(document: Mapping[str, Any]) -> str:
    """An event in words."""
    node = document["node"]
    if "run_id" in document:
        document = {**document, "run_id": shown_id(document["run_id"])}
    match document:
        case {"kind": "run.ended", "run_id": run, "job": job, "state": state}:
            took = span(document.get("seconds", 0.0))
            error = document.get("error")
            why = f": {error['type']}: {error['message']}" if error else ""
            again = f", retry at {document['retry_at'][11:19]}" if "retry_at" in document else ""
            outcome = document.get("outcome", state) if again else state
            return f"{job} {run} {outcome} after {took} on {node}{why}{again}"
        case {
            "kind": "run.progressed",
            "run_id": run,
            "job": job,
            "progress": {"done": done, "total": total, "note": why},
        }:
            return f"{job} {run} {progress(Progress(done, total, why))} on {node}"
        case {"kind": "run.started", "run_id": run, "job": job}:
            return f"{job} {run} on {node}, {span(document.get('late', 0.0))} late"
        case {"kind": "run.reaped", "run_id": run, "job": job}:
            return f"{job} {run} by {node} from {document.get('vanished', 'a node')}, which vanished"
        case {"run_id": run, "job": job}:
            return f"{job} {run} by {node}"
        case {"kind": "job.saved", "job": job, "what": what}:
            return f"{job} {what} (revision {document.get('revision')}) by {node}"
        case {"queue": queue}:
            return f"{queue} by {node}"
        case {"count": count}:
            return f"{count} events of {node} were not published"
        case {"shard": shard}:
            return f"{shard} by {node}"
        case _:
            return str(node)
