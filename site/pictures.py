"""Pictures of the terminal for the documentation: `make pictures` runs commands and writes what they show as SVG.

Each command runs in a pseudo-terminal of a fixed size, on a temporary store with a running node. A terminal emulator
interprets the output; the last screen becomes the picture. Nothing in a picture is drawn by hand.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyte

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
DULY = [sys.executable, "-m", "duly"]

_WIDTH, _HEIGHT, _SIZE = 8.4, 19, 14  # of a character, and of its font, in pixels
_MARGIN, _BAR = 16, 34
_BACKGROUND, _TEXT, _SELECTED = "#16181d", "#d7dae0", "#2f3644"
_PHRASE = re.compile(r"\S+(?: \S+)*")
_COLOURS = {
    "black": "#5c6370",
    "red": "#f07178",
    "green": "#8fce7c",
    "brown": "#e6c15c",
    "blue": "#6cb6ff",
    "magenta": "#c792ea",
    "cyan": "#56d4dd",
    "white": _TEXT,
    "brightblack": "#8b929e",
}


class Picture(NamedTuple):
    """What is typed, the size of the terminal, and how long the command may run; 0 means until it ends."""

    name: str
    command: str
    columns: int = 100
    rows: int = 30
    seconds: float = 0.0


SHOWN = (
    Picture("runs", "duly runs --limit 12", rows=18),
    Picture("explain", "duly explain sync_stock", rows=10),
    Picture("top", "duly top", rows=26, seconds=6.0),
)


def main() -> None:
    names = set(sys.argv[1:])
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="duly-pictures-") as folder, _shop(Path(folder)):
        for picture in SHOWN:
            if not names or picture.name in names:
                screen = _screen(picture, Path(folder))
                (PICTURES / f"{picture.name}.svg").write_text(_svg(picture, screen), encoding="utf-8")


@contextmanager
def _shop(folder: Path) -> Iterator[None]:
    """Two nodes that work on the example's jobs."""
    (folder / "shop.py").write_text((ROOT / "examples" / "shop.py").read_text(encoding="utf-8"), encoding="utf-8")
    nodes = [
        subprocess.Popen(
            [*DULY, "run", "shop:scheduler", "--node-id", name],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name in ("shop-1", "shop-2")
    ]
    try:
        time.sleep(20)  # so that there is something to see
        yield
    finally:
        for node in nodes:
            node.send_signal(signal.SIGTERM)
        for node in nodes:
            node.wait()


def _screen(picture: Picture, folder: Path) -> pyte.Screen:
    """Run the command in a terminal of this size; what it shows at the end."""
    screen = pyte.Screen(picture.columns, picture.rows)
    stream = pyte.ByteStream(screen)
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        words = picture.command.split()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""}
        os.execvpe(sys.executable, [*DULY, *words[1:]], environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", picture.rows, picture.columns, 0, 0))
    deadline = time.monotonic() + (picture.seconds or 30.0)
    while (left := deadline - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            try:
                stream.feed(os.read(terminal, 65536))
            except OSError:  # the command has ended
                break
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(terminal)
    return screen


def _svg(picture: Picture, screen: pyte.Screen) -> str:
    """A screen as text in a drawing: it can be selected, and needs no font of its own."""
    lines = [_line(screen, row, _BAR + (row + 2) * _HEIGHT) for row in range(picture.rows)]
    while lines and not lines[-1]:
        lines.pop()
    width = round(picture.columns * _WIDTH + 2 * _MARGIN)
    height = (len(lines) + 1) * _HEIGHT + _BAR + _MARGIN
    prompt = f'<tspan fill="{_COLOURS["green"]}">$</tspan> {escape(picture.command)}'
    first = f'<text x="{_MARGIN}" y="{_BAR + _HEIGHT}">{prompt}</text>'
    text = "\n".join([first, *(line for line in lines if line)])
    dots = "".join(f'<circle cx="{20 + 18 * i}" cy="17" r="5.5" fill="#4a505c"/>' for i in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(picture.command)}">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="{_BACKGROUND}"/>{dots}\n'
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="{_SIZE}" '
        f'fill="{_TEXT}">\n{text}\n</g>\n</svg>\n'
    )


def _line(screen: pyte.Screen, row: int, y: int) -> str:
    """One line: each word or phrase at its column, so that columns fit whatever font the reader has."""
    cells = [screen.buffer[row][column] for column in range(screen.columns)]
    parts, column = [], 0
    for (foreground, bold, reverse), some in groupby(cells, key=lambda cell: (cell.fg, cell.bold, cell.reverse)):
        data = "".join(cell.data for cell in some)
        if reverse:
            x, width = _x(column), round(len(data) * _WIDTH, 1)
            parts.append(f'<rect x="{x}" y="{y - 14}" width="{width}" height="{_HEIGHT}" fill="{_SELECTED}"/>')
        colour = _TEXT if foreground == "default" else _COLOURS.get(foreground, f"#{foreground}")
        weight = ' font-weight="bold"' if bold else ""
        parts += [
            f'<text x="{_x(column + word.start())}" y="{y}" fill="{colour}"{weight}>{escape(word[0])}</text>'
            for word in _PHRASE.finditer(data)
        ]
        column += len(data)
    return "".join(parts)


def _x(column: int) -> float:
    return round(_MARGIN + column * _WIDTH, 1)


if __name__ == "__main__":
    main()
