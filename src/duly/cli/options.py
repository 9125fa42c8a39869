"""The class of all commands, and the options that many of them share.

`--debug` and `--no-color` may stand before or after the command's name.
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


class Command(click.Command):
    """A command with the options of all commands, and examples at the end of its help."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += switches()
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)


class Group(Command, click.Group):
    """A command with subcommands."""

    command_class = Command


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
    """`--debug` and `--no-color`."""
    return [
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
