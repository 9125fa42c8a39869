"""Asking before something is changed."""

from __future__ import annotations

import sys

import click

from duly.errors import DulyError

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


def can_ask() -> bool:
    """Whether the command runs on a terminal, where a question can be answered."""
    return sys.stdin.isatty()


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal; elsewhere `--yes` is required."""
    if yes:
        return
    if not can_ask():
        raise DulyError("nothing was changed: without a terminal this needs --yes")
    click.confirm(question, abort=True)
