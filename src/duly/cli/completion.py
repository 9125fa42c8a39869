"""`duly completion`: the script with which a shell completes commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from duly.cli.options import command

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_DULY_COMPLETE"  # click completes instead of running a command if this variable is set


@command("duly completion bash", "duly completion zsh", "duly completion fish")
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Write the completion script of SHELL. It completes commands, options, jobs, queues and the ids of runs.

    Put this into ~/.bashrc, or into ~/.zshrc after compinit: eval "$(duly completion bash)". For fish, write the script
    to ~/.config/fish/completions/duly.fish.

    Names come from the store of DULY_URL, duly.toml or --url. If it does not answer within a second, they are missing.
    """
    from duly.cli import cli  # noqa: PLC0415  # the group imports this module

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(ShellComplete.source(kind(cli, {}, "duly", _VARIABLE)))
