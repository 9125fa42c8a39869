"""Times as options of commands (`rules.time_words`)."""

from __future__ import annotations

from collections.abc import Callable

import click

from duly.cli.options import F, option_type
from duly.rules.time_words import read_past, read_time
from duly.rules.zones import zone_key

time_type = option_type(read_time)
past_type = option_type(read_past)


def zone_option(help: str, default: str | None = None) -> Callable[[F], F]:  # noqa: A002  # click's word
    """`--timezone`, also written `--tz`."""
    zone = option_type(zone_key)
    return click.option("--timezone", "--tz", "timezone", type=zone, default=default, metavar="ZONE", help=help)
