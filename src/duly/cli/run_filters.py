"""The options that choose runs: the same for `duly runs`, `duly cancel` and `duly redrive` as for `GET /runs`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from duly.cli.options import duration, option_type
from duly.cli.time_args import past_type
from duly.errors import ConfigurationError
from duly.model import Cause, PathEquals, RunFilter, RunOrder, RunQuery, State
from duly.rules.bulk import says_something
from duly.rules.time_words import TimeText

_WHERE = re.compile(r"((?:payload|result)(?:\.[^.=]+)+)=(.*)", re.DOTALL)


class RunFilters(Struct, frozen=True, kw_only=True):
    """The values of the options."""

    job: str | None = None
    state: tuple[str, ...] = ()
    handler: str | None = None
    queue: str | None = None
    tag: str | None = None
    node: str | None = None
    error: str | None = None
    text: str | None = None
    key: str | None = None
    where: tuple[PathEquals, ...] = ()
    cause: str | None = None
    since: TimeText | None = None
    until: TimeText | None = None
    ended_since: TimeText | None = None
    ended_until: TimeText | None = None
    min_duration: float | None = None
    min_late: float | None = None
    min_attempts: int | None = None
    id_prefix: str | None = None
    not_state: tuple[str, ...] = ()
    not_job: tuple[str, ...] = ()
    not_handler: tuple[str, ...] = ()
    not_queue: tuple[str, ...] = ()
    not_node: tuple[str, ...] = ()
    not_error: tuple[str, ...] = ()
    not_text: tuple[str, ...] = ()

    @property
    def given(self) -> bool:
        """Whether any of them was given."""
        return self != _NOTHING

    def resolve(self, now: datetime, order: RunOrder = RunOrder.CREATED) -> RunFilter:
        """The filter. Times without a zone are in UTC, those that are relative count from now."""

        def at(given: TimeText | None) -> datetime | None:
            return None if given is None else given.resolve(now, "UTC")

        same = {name: getattr(self, name) for name in ("job", "handler", "queue", "node", "error", "text", "key")}
        query = RunQuery(
            **same,
            states=tuple(State(each) for each in self.state),
            cause=None if self.cause is None else Cause(self.cause),
            due_from=at(self.since),
            due_until=at(self.until),
            ended_from=at(self.ended_since),
            ended_until=at(self.ended_until),
            where=self.where,
            min_seconds=self.min_duration,
            min_late=self.min_late,
            min_attempt=self.min_attempts,
            id=self.id_prefix,
            order=order,
            none_of=tuple(self._excluded()),
        )
        return RunFilter(query, self.tag)

    def _excluded(self) -> Iterator[RunQuery]:
        if self.not_state:
            yield RunQuery(states=tuple(State(each) for each in self.not_state))
        for name in ("job", "handler", "queue", "node", "error", "text"):
            for value in getattr(self, f"not_{name}"):
                yield RunQuery(**{name: value})


_NOTHING = RunFilters()


def only_states(wanted: RunFilter, states: tuple[State, ...]) -> RunFilter:
    """The filter with these states, if it names none."""
    return wanted if wanted.query.states else replace(wanted, query=replace(wanted.query, states=states))


def refuse_empty(wanted: RunFilter) -> None:
    """Refuse a filter that every run matches."""
    if wanted.tag is None and not says_something(wanted.query):
        raise click.UsageError("name a RUN, or say which runs: for example --job NAME, --state failed or --since 1h")


def refuse_both(filters: RunFilters) -> None:
    """Refuse a filter beside a run that is named."""
    if filters.given:
        raise click.UsageError("a RUN and options that choose runs were both given: give one of them")


def _read_condition(text: str) -> PathEquals:
    found = _WHERE.fullmatch(text)
    if found is None:
        raise ConfigurationError(f"invalid condition {text!r}: expected e.g. payload.customer=7 or result.status=ok")
    return PathEquals.of(found[1], found[2])


_STATES = click.Choice([each.value for each in State])


def _option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    return click.option(*names, **settings)


_OPTIONS = (
    _option("--state", multiple=True, type=_STATES, help="Only runs in this state; repeatable."),
    _option("--handler", metavar="NAME", help="Only runs of this handler."),
    _option("--queue", metavar="NAME", help="Only runs of this queue."),
    _option("--tag", help="Only runs of jobs with this tag."),
    _option("--node", help="Only runs whose latest attempt was on this node."),
    _option("--error", help="Only runs whose error or reason contains this text."),
    _option("--text", help="Only runs that contain this text: id, names, dedupe key, error, payload or result."),
    _option("--key", help="Only the runs with this dedupe key."),
    _option(
        "--where",
        multiple=True,
        type=option_type(_read_condition),
        metavar="PATH=VALUE",
        help="Only runs with this value in the payload or result, for example payload.customer=7; repeatable.",
    ),
    _option(
        "--cause", type=click.Choice([each.value for each in Cause]), help="Only runs that came about in this way."
    ),
    _option(
        "--since", type=past_type, metavar="T", help="Only runs due from this time on: a time, or 1h for an hour ago."
    ),
    _option("--until", type=past_type, metavar="T", help="Only runs due up to this time."),
    _option("--ended-since", type=past_type, metavar="T", help="Only runs that ended at or after this time."),
    _option("--ended-until", type=past_type, metavar="T", help="Only runs that ended up to this time."),
    _option("--min-duration", type=duration, metavar="DURATION", help="Only runs whose latest attempt took this long."),
    _option("--min-late", type=duration, metavar="DURATION", help="Only runs that started, or wait, this late."),
    _option("--min-attempts", type=click.IntRange(1, 1_000_000), help="Only runs with this many attempts."),
    _option("--id-prefix", metavar="TEXT", help="Only runs whose id begins so."),
    _option(
        "--not-state", multiple=True, type=_STATES, help="No runs in this state; repeatable, as the following are."
    ),
    _option("--not-job", multiple=True, metavar="NAME", help="No runs of this job."),
    _option("--not-handler", multiple=True, metavar="NAME", help="No runs of this handler."),
    _option("--not-queue", multiple=True, metavar="NAME", help="No runs of this queue."),
    _option("--not-node", multiple=True, metavar="NODE", help="No runs of this node."),
    _option("--not-error", multiple=True, metavar="TEXT", help="No runs whose error or reason contains this text."),
    _option("--not-text", multiple=True, metavar="TEXT", help="No runs that contain this text."),
)

_job_option = _option("--job", metavar="NAME", help="Only runs of this job.")


def run_filters(*, job_option: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the options to a command; it gets them together, as `filters`."""
    names = set(RunFilters.__struct_fields__) - (set() if job_option else {"job"})

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def collected(**options: Any) -> Any:
            given = {name: options.pop(name) for name in names}
            return function(filters=RunFilters(**given), **options)

        decorated: Callable[..., Any] = collected
        for option in reversed([*([_job_option] if job_option else []), *_OPTIONS]):
            decorated = option(decorated)
        return decorated

    return decorate
