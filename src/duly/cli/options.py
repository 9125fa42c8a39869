"""The class of all commands, and the options that many of them share.

`--url`, `--namespace`, `--json` and the switches may stand before or after the command's name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from duly.errors import DulyError
from duly.rules.durations import seconds_of

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

MOST_SEQUENCE = 2**63 - 1  # the largest number of a log entry

_DEBUG = "duly.debug"
_NAMESPACE = "duly.namespace"
_WIDE = "duly.wide"
_WATCH = "duly.watch"
_BEFORE = "duly.before"

_USUAL_INTERVAL = "2s"
_SHORTEST_INTERVAL = 0.2


class Command(click.Command):
    """A command with the options of all commands, and examples at the end of its help."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += switches()
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*self._given_before(ctx), *with_interval(args)])

    def _given_before(self, ctx: click.Context) -> list[str]:
        """The shared options that stood before the command's name, as arguments of this command."""
        given: dict[str, list[str]] = ctx.meta.get(_BEFORE, {})
        own = {name for parameter in self.params for name in parameter.opts}
        for name in given.keys() - own:
            ctx.fail(f"{ctx.command_path} has no option {name}")
        return [word for words in given.values() for word in words]

    def invoke(self, ctx: click.Context) -> Any:
        seconds: float | None = ctx.meta.get(_WATCH)
        if seconds is None:
            return super().invoke(ctx)
        from duly.cli.watching import watch  # noqa: PLC0415  # only --watch needs it

        return watch(ctx, seconds, lambda: super(Command, self).invoke(ctx))


class Group(Command, click.Group):
    """A command with subcommands."""

    command_class = Command

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += shared_options(hidden=True)

    def _given_before(self, ctx: click.Context) -> list[str]:
        return []  # they are for the subcommand


def with_interval(words: Sequence[str]) -> list[str]:
    """The arguments of a command with the usual interval for a `--watch` that no duration follows."""
    found = list(words)
    for place, word in enumerate(words):
        if word == "--":
            break
        if word == "--watch" and not _is_duration(words[place + 1 : place + 2]):
            found[place] = f"--watch={_USUAL_INTERVAL}"
    return found


def _is_duration(words: Sequence[str]) -> bool:
    try:
        return bool(words) and seconds_of(words[0]) >= 0
    except DulyError:
        return False


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Write the examples as a section of lines that are not wrapped."""
    if not examples:
        return
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def command(*examples: str, name: str | None = None) -> Callable[[Callable[..., Any]], Command]:
    """Make a command with these examples."""
    return click.command(name, cls=Command, examples=examples)


def switches() -> list[click.Parameter]:
    """`--wide`, `--debug` and `--no-color`."""
    return [
        click.Option(
            ["--wide"],
            is_flag=True,
            expose_value=False,
            callback=_set_wide,
            help="Show everything, however narrow the terminal is.",
        ),
        click.Option(
            ["--debug"], is_flag=True, expose_value=False, callback=_set_debug, help="Show the traceback of an error."
        ),
        click.Option(
            ["--no-color"],
            is_flag=True,
            expose_value=False,
            callback=_set_no_color,
            help="Disable colour (also: NO_COLOR).",
        ),
    ]


def shared_options(*, hidden: bool = False) -> list[click.Parameter]:
    """`--url`, `--namespace` and `--json` before the name of the command that has them."""
    return [
        click.Option(
            ["--url"], metavar="URL", expose_value=False, callback=_keep, hidden=hidden, help="The store to use."
        ),
        click.Option(
            ["--namespace"],
            metavar="NAME",
            expose_value=False,
            callback=_keep,
            hidden=hidden,
            help="The namespace in that store.",
        ),
        click.Option(
            ["--json"], is_flag=True, expose_value=False, callback=_keep, hidden=hidden, help="Write one JSON document."
        ),
    ]


def _keep(ctx: click.Context, option: click.Parameter, given: str | bool | None) -> None:
    """Keep an option for the command that follows."""
    if given not in {None, False}:
        [name] = option.opts
        ctx.meta.setdefault(_BEFORE, {})[name] = [name] if given is True else [f"{name}={given}"]


def _set_wide(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        ctx.meta[_WIDE] = True


def wide() -> bool:
    """Whether `--wide` was given."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(_WIDE))


def _set_debug(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        ctx.meta[_DEBUG] = True


def _set_no_color(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given or os.environ.get("NO_COLOR"):
        ctx.color = False


def debugging(ctx: click.Context) -> bool:
    """Whether `--debug` was given."""
    return bool(ctx.meta.get(_DEBUG))


def store_option(function: F) -> F:
    """`--url` and `--namespace`, for commands that need a store and no program."""
    where = click.option(
        "--url",
        metavar="URL",
        help="The store, such as sqlite:///duly.db. Default: DULY_URL, POSTGRES_DSN, REDIS_URL, duly.toml, or that.",
    )
    return where(namespace_option("The namespace in that store.")(function))


def namespace_option(what: str) -> Callable[[F], F]:
    """`--namespace`."""
    return click.option(
        "--namespace",
        metavar="NAME",
        expose_value=False,
        callback=_set_namespace,
        help=f"{what} Default: DULY_NAMESPACE, the namespace of duly.toml, or duly.",
    )


def _set_namespace(ctx: click.Context, _: click.Parameter, given: str | None) -> None:
    if given is not None:
        ctx.meta[_NAMESPACE] = given


def namespace() -> str | None:
    """The value of `--namespace`, if it was given."""
    found: str | None = click.get_current_context().meta.get(_NAMESPACE)
    return found


def option_type(parse: Callable[[str], T]) -> Callable[[str], T]:
    """The type of an option whose text is parsed by this function."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except DulyError as exc:
            raise click.BadParameter(str(exc)) from exc

    return convert


duration = option_type(seconds_of)


def json_option(function: F) -> F:
    """`--json`, for commands that show something."""
    return click.option("--json", "as_json", is_flag=True, help="Write one JSON document.")(function)


def watch_option(function: F) -> F:
    """`--watch`, for commands that list something."""
    return click.option(
        "--watch",
        metavar="[SECONDS]",
        type=duration,
        expose_value=False,
        callback=_set_watch,
        help="Show the list again every 2 seconds, or this often, until Ctrl-C.",
    )(function)


def _set_watch(ctx: click.Context, _: click.Parameter, given: float | None) -> None:
    if given is None:
        return
    if given < _SHORTEST_INTERVAL:
        raise click.BadParameter(f"expected at least {_SHORTEST_INTERVAL:g} seconds", ctx=ctx, param_hint="--watch")
    ctx.meta[_WATCH] = given
