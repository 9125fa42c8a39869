"""The table: the same cells for a terminal, for a page and for machines. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from bench.side_by_side.catalogue import NAMES, OUR_SETTINGS, PEERS
from bench.side_by_side.figures import DULY, DULY_POSTGRES, FIGURES, Book, Cell, Figure, Measured, cell
from bench.side_by_side.machine import Machine

DASH = "—"
_OWN = {peer.name: peer.own() for peer in PEERS}
_CANNOT = {peer.name: peer.cannot for peer in PEERS}
_TITLES = {DULY: "Duly", DULY_POSTGRES: "Duly on PostgreSQL"} | {peer.name: peer.title for peer in PEERS}
_SETTINGS = {DULY: OUR_SETTINGS, DULY_POSTGRES: OUR_SETTINGS} | {peer.name: peer.settings for peer in PEERS}
CAPTION = (
    "×n: Duly is n times better than this (faster where jobs/s are counted, sooner where milliseconds are)."
    " Systems on PostgreSQL are compared with Duly on PostgreSQL."
)


class Sheet(Struct, frozen=True):
    """A finished run: cells by peer and figure, and everything needed to judge them."""

    figures: tuple[Figure, ...]
    cells: Mapping[str, Mapping[str, Cell]]
    notes: tuple[str, ...]
    settings: Mapping[str, str]
    versions: Mapping[str, Mapping[str, str]]
    machine: Machine
    backend: str
    rounds: int
    servers: Mapping[str, str] = {}
    awake: bool = False


def sheet(
    book: Book,
    versions: Mapping[str, Mapping[str, str]],
    machine: Machine,
    backend: str,
    rounds: int,
    servers: Mapping[str, str] | None = None,
    *,
    awake: bool = False,
) -> Sheet:
    figures = tuple(figure for figure in FIGURES if figure.measure in book.measures())
    peers = [name for name in NAMES if name in book.peers()]
    cells = {peer: {figure.key: _cell(book, peer, figure, peers) for figure in figures} for peer in peers}
    return Sheet(
        figures=figures,
        cells=cells,
        notes=tuple(_notes(book, peers, cells)),
        settings={_TITLES[peer]: _SETTINGS[peer] for peer in peers},
        versions=versions,
        machine=machine,
        backend=backend,
        rounds=rounds,
        servers=servers or {},
        awake=awake,
    )


def _cell(book: Book, peer: str, figure: Figure, measured: Sequence[str]) -> Cell:
    return cell(book, peer, figure, _CANNOT.get(peer, {}), _compared_with(peer, measured))


def _compared_with(peer: str, measured: Sequence[str]) -> str:
    """The row of Duly beside which a peer is put: on its own server, if that was measured."""
    own = _OWN.get(peer, peer)
    return own if own in measured else DULY


def _notes(book: Book, peers: Sequence[str], cells: Mapping[str, Mapping[str, Cell]]) -> list[str]:
    """Every dash and every failure with its reason, every count that differs from Duly's, everything odd."""
    notes = []
    for peer in peers:
        notes += [f"{_TITLES[peer]}: {note}" for note in dict.fromkeys(_of_cells(cells[peer]))]
        for measure in book.measures():
            notes += [f"{_TITLES[peer]}, {measure}: {note}" for note in _of_rounds(book, peer, measure)]
    return notes


def _of_cells(cells: Mapping[str, Cell]) -> list[str]:
    titles = {figure.key: figure for figure in FIGURES}
    grouped: dict[tuple[bool, str], list[str]] = {}
    for key, found in cells.items():
        if found.note:
            grouped.setdefault((found.failed, found.note), []).append(titles[key].title)
    return [f"{'failed' if failed else DASH} ({', '.join(where)}): {note}" for (failed, note), where in grouped.items()]


def _of_rounds(book: Book, peer: str, measure: str) -> list[str]:
    rounds = [outcome for outcome in book.outcomes(peer, measure) if isinstance(outcome, Measured)]
    own = [outcome for outcome in book.outcomes(DULY, measure) if isinstance(outcome, Measured)]
    told = [remark for outcome in rounds for remark in outcome.remarks]
    if rounds and own and rounds[0].jobs != own[0].jobs:
        told.insert(0, f"{rounds[0].jobs:,} jobs where Duly had {own[0].jobs:,}")
    return list(dict.fromkeys(told))


def written(found: Cell, figure: Figure) -> str:
    """A cell in two lines: the figure, and how many times better Duly is."""
    if found.failed:
        return "failed"
    if found.value is None:
        return DASH
    value = f"{found.value:,.0f}" if figure.more_is_better else _milliseconds(found.value)
    return value if found.ratio is None else f"{value}\n×{_short(found.ratio)}"


def _milliseconds(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _short(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2f}"


def as_markdown(page: Sheet) -> str:
    """The whole sheet as a part of a page."""
    heads = [f"{figure.title}, {figure.unit}" for figure in page.figures]
    lines = [
        _circumstances(page),
        "",
        f"| | {' | '.join(heads)} |",
        f"|---|{'---:|' * len(heads)}",
        *_rows(page, lambda peer, texts: f"| {_TITLES[peer]} | {' | '.join(texts).replace(chr(10), '<br>')} |"),
        "",
        f"{CAPTION} {_medians(page)}",
        "",
        *(f"- {line}" for line in by_round(page)),
        *(f"- {note}" for note in page.notes),
        "",
        "Versions: " + "; ".join(_version(name, found) for name, found in page.versions.items()) + ".",
    ]
    return "\n".join(lines)


def by_round(page: Sheet) -> list[str]:
    """The ratios of each round, for what was measured more than once."""
    titles = {figure.key: figure.title for figure in page.figures}
    return [
        f"{_TITLES[peer]}, {titles[key]}, by round: {', '.join(_times(ratio) for ratio in found.ratios)}"
        for peer, cells in page.cells.items()
        for key, found in cells.items()
        if len(found.ratios) > 1
    ]


def _times(ratio: float | None) -> str:
    return DASH if ratio is None else f"×{_short(ratio)}"


def settings_as_markdown() -> str:
    """How each peer is set, for the page that explains the method."""
    rows = [f"| {peer.title} | {peer.settings} | {peer.most:,} |" for peer in PEERS]
    return "\n".join(["| | settings | most jobs |", "|---|---|---:|", f"| Duly | {OUR_SETTINGS} | |", *rows])


def _rows(page: Sheet, row: Callable[[str, list[str]], Any]) -> list[Any]:
    return [
        row(peer, [written(cells[figure.key], figure) for figure in page.figures]) for peer, cells in page.cells.items()
    ]


def _circumstances(page: Sheet) -> str:
    machine = page.machine
    return (
        f"{machine.cores} × {machine.processor}, {machine.memory_gb} GB, {machine.system}, Python {machine.python},"
        f" load {machine.load} at the start, cores {'kept awake' if page.awake else 'as the machine keeps them'}"
        f"{f'; Duly on `{page.backend}`' if DULY in page.cells else ''}."
        + "".join(f" {name}: {settings}." for name, settings in page.servers.items())
    )


def _medians(page: Sheet) -> str:
    return f"Medians of {page.rounds} rounds (lateness, recurring and crowd: one)." if page.rounds > 1 else "One round."


def _version(name: str, versions: Mapping[str, str]) -> str:
    packages = ", ".join(f"{package} {version}" for package, version in versions.items())
    return f"{_TITLES.get(name, name)}: {packages}"


def as_json(page: Sheet) -> str:
    return msgspec.json.encode(page).decode()


def as_text(page: Sheet, width: int | None = None) -> str:
    """The sheet for a terminal."""
    from rich.console import Console  # noqa: PLC0415  # only terminals need it
    from rich.table import Table  # noqa: PLC0415

    table = Table(title="Duly and others, side by side", caption=CAPTION)
    table.add_column("")
    for figure in page.figures:
        table.add_column(f"{figure.title}\n{figure.unit}", justify="right")
    _rows(page, lambda peer, texts: table.add_row(_TITLES[peer], *texts))
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table)
        console.print(_circumstances(page), _medians(page), highlight=False, markup=False)
        for line in (
            *by_round(page),
            *page.notes,
            *(f"{name}: {settings}" for name, settings in page.settings.items()),
        ):
            console.print(f"- {line}", highlight=False, markup=False)
        for name, found in page.versions.items():
            console.print(_version(name, found), highlight=False, markup=False)
    return captured.get()
