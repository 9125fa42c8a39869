"""The type of options that take a length of time."""

from __future__ import annotations

import click

from duly.errors import ConfigurationError
from duly.rules.durations import seconds_of


def duration(text: str) -> float:
    """The type of an option that takes a duration."""
    try:
        return seconds_of(text)
    except ConfigurationError as exc:
        raise click.BadParameter(str(exc)) from exc
