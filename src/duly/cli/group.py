"""The group of all commands: imports a command when it is used, and formats errors.

A `DulyError` is one line on standard error and exit code 1, an interruption is exit code 130; with `--debug` the
traceback is shown. Usage errors are click's, with exit code 2.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from duly.cli.options import debugging, shared_options, switches, write_examples
from duly.errors import DulyError
from duly.rules.printable import escaped, shortened
from duly.rules.redaction import redacted
from duly.rules.suggestions import did_you_mean

INTERRUPTED = 130


class Entry(NamedTuple):
    """The place of a command as "module:attribute", its line in the list of commands, and its section there."""

    home: str
    summary: str
    section: str


class LazyGroup(click.Group):
    """A group that lists its commands without importing them."""

    def __init__(
        self, *arguments: Any, entries: Mapping[str, Entry], examples: Sequence[str] = (), **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.params += [*shared_options(), *switches()]
        self.entries = entries
        self.examples = examples

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.home.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.entries and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"there is no command {args[0]!r}{did_you_mean(args[0], self.entries)}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands without importing them, and the options."""
        found = [
            CompletionItem(name, help=entry.summary)
            for name, entry in self.entries.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by section, without importing them."""
        width = max(len(name) for name in self.entries)
        for section in dict.fromkeys(entry.section for entry in self.entries.values()):
            members = [(name, entry) for name, entry in self.entries.items() if entry.section == section]
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), entry.summary) for name, entry in members])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for number, word in enumerate(args, 1):
            if not is_text(word) and not ctx.resilient_parsing:
                ctx.fail(f"argument {number} is not valid UTF-8: {shortened(ascii(word))}")
            if "\0" in word:
                ctx.fail(f"argument {number} contains a NUL character: {shortened(ascii(word))}")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo(err=True)  # ends the line with the terminal's ^C
            ctx.exit(INTERRUPTED)
        except DulyError as exc:
            if debugging(ctx):
                raise
            raise click.ClickException(shortened(one_line(exc))) from exc
        except click.ClickException as exc:
            object.__setattr__(exc, "message", shortened(exc.message))  # click's messages quote arguments in full
            raise


def is_text(word: str) -> bool:
    """Whether an argument is valid UTF-8. Python decodes other bytes to surrogates."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_line(error: BaseException) -> str:
    """The message of an error as one line, without secrets and terminal control characters."""
    return escaped(redacted(" ".join(str(error).split()))) or type(error).__name__
