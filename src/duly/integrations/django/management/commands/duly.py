"""`manage.py duly …`: the `duly` command with the scheduler and the store of the project."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from duly.cli import cli
from duly.integrations.django import scheduler


class Command(BaseCommand):
    """Passes its arguments to the `duly` command."""

    help = (
        "Run and inspect the project's jobs: `manage.py duly run`, `duly worker`, `duly jobs`, …"
        " `duly -- --help` lists all commands."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="command", help="and its own arguments")

    def handle(self, *args: Any, arguments: list[str], **options: Any) -> None:
        given = [each for each in arguments if each != "--"] or ["--help"]
        with _environment(_env()):
            try:
                cli.main(args=given, prog_name="manage.py duly")
            except SystemExit as ended:
                if ended.code:
                    raise


def _env() -> dict[str, str]:
    """The variables for the command. Settings are code, so they override the environment."""
    url = getattr(settings, "DULY", {}).get("URL")
    known = {"DULY_APP": "duly.integrations.django:scheduler", "DULY_NAMESPACE": scheduler.config.namespace}
    return known if url is None else known | {"DULY_URL": url}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
