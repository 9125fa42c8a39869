"""`duly init`: writes a small project that runs, to change from there."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import click

from duly.cli.options import command
from duly.cli.output import write_line
from duly.errors import ConfigurationError

_SUFFIX = ".template"  # so that neither Python nor its tools take them for modules of Duly
FILES = ("app.py", "test_app.py", "jobs.toml", "compose.yaml", "README.md")


@command("duly init", "duly init shop", "duly init shop --force")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
def init(folder: Path, force: bool) -> None:
    """Write a small project to DIR (default: this folder): jobs, a test for them, and a store for production.

    If one of the files exists, nothing is written; with --force it is overwritten.
    """
    existing = [name for name in FILES if os.path.lexists(folder / name)]
    if existing and not force:
        raise ConfigurationError(
            f"{folder} already has {', '.join(existing)}, nothing was written: choose another folder, or use --force"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            with (folder / name).open("w" if name in existing else "x", encoding="utf-8") as file:
                file.write(content(name))
            write_line(f"{'overwrote' if name in existing else 'created'} {folder / name}")
    except OSError as exc:
        raise ConfigurationError(f"cannot write to {folder}: {exc.strerror or exc}") from exc
    enter = "" if folder == Path() else f"cd {folder} && "
    write_line(f"start it with: {enter}duly run app:scheduler")


def content(name: str) -> str:
    """The text of one of the files."""
    return (resources.files(__package__) / "project" / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
