"""Hooks of mkdocs: pages that are generated from the code, and files of the repository that pages link to.

The reference of Python names, commands and HTTP routes is written by the code itself, so it cannot be out of date. A
link of a page to a file outside `docs`, such as an example, leads to a copy of that file in the site.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
COPIES = "files"  # the folder of the site that has copies of the repository's files
_SHOWN_BY_BROWSERS = {".toml", ".yaml", ".yml", ".json", ".txt"}
_LINK = re.compile(r"(\]\()((?:\.\./)+[^)#\s]+)(#[^)\s]*)?(\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and copies of the files that pages link to."""
    for name, text in (("python", _python()), ("commands", _commands()), ("routes", _routes())):
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    for page in list(files.documentation_pages()):
        if page.abs_src_path is None:
            continue
        for found in _LINK.finditer(Path(page.abs_src_path).read_text(encoding="utf-8")):
            if (source := _outside(page.src_uri, found[2])) is not None:
                _copy(source, config, files)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave `docs` to the copies."""

    def copied(found: re.Match[str]) -> str:
        source = _outside(page.file.src_uri, found[2])
        if source is None:
            return found[0]
        here = posixpath.dirname(page.file.src_uri) or "."
        return f"{found[1]}{posixpath.relpath(_place(source), here)}{found[4]}"

    return _LINK.sub(copied, markdown)


def _outside(page: str, link: str) -> str | None:
    """The path in the repository of a link that leaves `docs`; None for a link within."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    return target.removeprefix("../") if target.startswith("../") else None


def _place(source: str) -> str:
    """Where the copy of a file is in the site, or the page that lists a folder."""
    path = ROOT / source
    if path.is_dir():
        return f"{COPIES}/{source}.md"
    return f"{COPIES}/{source}{'' if path.suffix in _SHOWN_BY_BROWSERS else '.txt'}"


def _copy(source: str, config: MkDocsConfig, files: Files) -> None:
    path, place = ROOT / source, _place(source)
    if files.get_file_from_path(place) is not None:
        return
    if not path.is_dir():
        files.append(File.generated(config, place, content=path.read_bytes()))
        return
    parts = sorted(str(each.relative_to(ROOT)) for each in path.rglob("*") if _is_shown(each))
    links = [f"- [{part}]({posixpath.relpath(_place(part), posixpath.dirname(place))})" for part in parts]
    listing = f"# Files in {source}\n\n" + "\n".join(links)
    files.append(File.generated(config, place, content=listing, inclusion=InclusionLevel.NOT_IN_NAV))
    for part in parts:
        _copy(part, config, files)


def _is_shown(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


# --- the reference


def _python() -> str:
    import duly  # noqa: PLC0415  # the code whose pages these are

    names = [name for name in duly.__all__ if not name.startswith("_")]
    return "# Python\n\n" + "\n\n".join(f"::: duly.{name}" for name in sorted(names))


def _commands() -> str:
    from duly.cli import cli  # noqa: PLC0415

    pages = ["# All options", "The output of `--help` of each command."]
    pages += [f"{'#' * min(level, 4)} {name}\n\n```text\n{text}\n```" for level, name, text in _helps(cli, "duly", 2)]
    return "\n\n".join(pages)


def _helps(command: click.Command, name: str, level: int) -> Iterator[tuple[int, str, str]]:
    """A command and its subcommands: the level of the heading, the whole name, and the help text."""
    context = click.Context(command, info_name=name, terminal_width=100, max_content_width=100)
    yield level, name, command.get_help(context)
    if isinstance(command, click.Group):
        for each in sorted(command.list_commands(context)):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                yield from _helps(found, f"{name} {each}", level + 1)


def _routes() -> str:
    from duly.api.openapi import document_of  # noqa: PLC0415
    from duly.api.routes import ROUTES  # noqa: PLC0415

    lines = ["# All routes", "", "Made from the server's OpenAPI document, which it serves as `/openapi.json`.", ""]
    for path, methods in sorted(json.loads(document_of(ROUTES))["paths"].items()):
        for method, route in methods.items():
            lines += [f"## {method.upper()} {path}", "", route.get("summary", ""), "", route.get("description", ""), ""]
            lines += _parameters(route)
    return "\n".join(lines)


def _parameters(route: dict[str, Any]) -> list[str]:
    parameters = [each for each in route.get("parameters", ()) if "name" in each]
    if not parameters:
        return []
    rows = [f"| `{each['name']}` | {each['in']} | {_cell(each.get('description', ''))} |" for each in parameters]
    return ["| parameter | in | |", "|---|---|---|", *rows, ""]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
