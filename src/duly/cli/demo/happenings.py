"""What happens in the demo, in words: one line for each event that is worth telling."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from duly.cli.output import BAD, DIM, GOOD, LIVE, WARN
from duly.cli.text import line, span
from duly.model import OutcomeKind, Run, State
from duly.model.published_event import PublishedEvent
from duly.model.published_event import PublishedEventKind as Kind


class Happening(Struct, frozen=True):
    """A word with a colour, the job it is about, and a text. `routine` ones happen all the time."""

    word: str
    colour: str
    job: str
    text: str
    routine: bool = False


def happening(event: PublishedEvent) -> Happening | None:
    """An event in words, None if it is not worth a line."""
    job = event.job or ""
    match event.kind:
        case Kind.RUN_STARTED:
            attempt = f", attempt {event.attempt}" if (event.attempt or 0) > 1 else ""
            text = f"{span(event.late or 0.0)} late{attempt} on {event.node}"
            return Happening("started", LIVE, job, text, routine=True)
        case Kind.RUN_ENDED if event.state is State.COMPLETED:
            return Happening("completed", GOOD, job, f"in {span(event.seconds or 0.0)}", routine=True)
        case Kind.RUN_ENDED if event.outcome is OutcomeKind.LOST:
            return None  # said by the event that it was reaped
        case Kind.RUN_ENDED:
            return _not_completed(event, job)
        case Kind.RUN_REAPED:
            text = f"its node {event.vanished} vanished; {event.node} takes it over"
            return Happening("reaped", BAD, job, text)
        case Kind.RUN_SKIPPED:
            return Happening("skipped", WARN, job, "a misfire")
        case Kind.RUN_RELEASED:
            return Happening("released", WARN, job, "the node is stopping")
        case Kind.NODE_STARTED:
            return Happening("node", LIVE, "", f"{event.node} has started")
        case Kind.LEADER_ELECTED:
            return Happening("node", LIVE, "", f"{event.node} leads: it plans the runs")
        case _:
            return None


def _not_completed(event: PublishedEvent, job: str) -> Happening:
    outcome = "" if event.outcome is None else event.outcome.value
    reason = outcome if event.error is None else f"{event.error.type}: {event.error.message}"
    if event.retry_at is None:
        return Happening("failed" if event.state is None else event.state.value, BAD, job, line(reason))
    again = (_instant(event.retry_at) - _instant(event.at)).total_seconds()
    return Happening("retry", WARN, job, f"{line(reason)}, retry in {span(again)}")


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def skipped(run: Run) -> Happening:
    """A run that was not started."""
    return Happening("skipped", WARN, run.job, f"{run.reason}, due {run.due:%H:%M:%S}")


def said(text: str) -> Happening:
    """Something that belongs to no run."""
    return Happening("demo", DIM, "", text)
