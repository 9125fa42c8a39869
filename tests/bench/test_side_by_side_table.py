"""The table: medians, ratios, dashes and failures with their reasons; and the page that shows it."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.side_by_side import page, table
from bench.side_by_side.catalogue import PEERS
from bench.side_by_side.command import main
from bench.side_by_side.figures import FIGURES, Book, Cannot, Cell, Failed, Measured, cell, times_better
from bench.side_by_side.machine import Machine

ROOT = Path(__file__).parents[2]
DRAIN, SINGLE, BULK, LATENCY = (
    next(figure for figure in FIGURES if figure.key == key) for key in ("drain", "single", "bulk", "latency_p99")
)
MACHINE = Machine("A Processor", 2, 24, "Linux 6", "3.11.7", 0.1)


def book(**outcomes):
    made = Book()
    for name, told in outcomes.items():
        peer, _, measure = name.partition("_")
        for outcome in told:
            made.enter(peer, measure, outcome)
    return made


def drained(*rates, jobs=100):
    return [Measured({"drain": rate}, jobs) for rate in rates]


@pytest.mark.parametrize(
    ("other", "duly", "more_is_better", "expected"),
    [(1000, 40_000, True, 40), (40_000, 1000, True, 0.025), (10, 2, False, 5), (1, 2, False, 0.5), (0, 2, False, None)],
)
def test_a_ratio_above_one_means_that_duly_is_ahead(other, duly, more_is_better, expected):
    assert times_better(other, duly, more_is_better) == expected


def test_a_cell_is_the_median_of_the_rounds_and_its_ratio_to_dulys_median():
    found = cell(book(duly_drain=drained(100, 400, 200), arq_drain=drained(50, 10, 20)), "arq", DRAIN, {})
    assert found == Cell(20, 10, (50, 10, 20), (2, 40, 10))


def test_a_peer_on_postgresql_is_compared_with_duly_on_postgresql():
    measured = book(duly_drain=drained(1000), arq_drain=drained(100), graphile_drain=drained(100))
    measured.enter("duly-postgresql", "drain", Measured({"drain": 300}, 100))
    found = table.sheet(measured, {}, MACHINE, "redis", rounds=1).cells
    assert (found["arq"]["drain"].ratio, found["graphile"]["drain"].ratio) == (10, 3)
    assert found["duly-postgresql"]["drain"].ratio is None


def test_ratios_are_shown_by_round_where_there_are_several():
    measured = book(duly_drain=drained(1000, 900), arq_drain=drained(100, 300))
    told = "arq, drain, by round: ×10, ×3.0"
    found = table.sheet(measured, {}, MACHINE, "redis", rounds=2)
    assert table.by_round(found) == [told]
    assert told in table.as_markdown(found)
    assert told in table.as_text(found, width=200)


def test_the_settings_of_the_servers_and_of_the_machine_are_stated():
    servers = {"redis": "appendonly no", "postgresql": "fsync on"}
    found = table.sheet(book(duly_drain=drained(1)), {}, MACHINE, "redis", 1, servers, awake=True)
    for text in (table.as_markdown(found), table.as_text(found, width=300), table.as_json(found)):
        assert "appendonly no" in text
        assert "fsync on" in text
        assert "awake" in text


def test_duly_has_no_ratio_to_itself_and_nobody_has_one_without_duly():
    assert cell(book(duly_drain=drained(100)), "duly", DRAIN, {}).ratio is None
    assert cell(book(arq_drain=drained(100)), "arq", DRAIN, {}).ratio is None


def test_a_failure_in_any_round_is_a_failure():
    found = cell(book(arq_drain=[*drained(50), Failed("it fell over")]), "arq", DRAIN, {})
    assert (found.failed, found.note, found.value) == (True, "it fell over", None)


def test_a_figure_that_a_peer_cannot_have_is_a_dash_with_the_reason():
    measured = book(saq_submit=[Measured({"single": 10.0}, 100)])
    assert table.written(cell(measured, "saq", BULK, {"bulk": "no such call"}), BULK) == table.DASH
    assert cell(measured, "saq", BULK, {"bulk": "no such call"}).note == "no such call"


@pytest.mark.parametrize(
    ("found", "figure", "expected"),
    [
        (Cell(12_345.6, 3.24), DRAIN, "12,346\n×3.2"),
        (Cell(12_345.6), DRAIN, "12,346"),
        (Cell(0.512, 0.64), LATENCY, "0.51\n×0.64"),
        (Cell(48.25, 96.4), LATENCY, "48.2\n×96"),
        (Cell(2700.4, 1350), LATENCY, "2,700\n×1,350"),
        (Cell(failed=True, note="x"), LATENCY, "failed"),
    ],
)
def test_cells_are_written_with_as_many_digits_as_mean_something(found, figure, expected):
    assert table.written(found, figure) == expected


@pytest.fixture
def sheet():
    measured = book(
        duly_drain=drained(1000, jobs=500),
        arq_drain=drained(100),
        rq_drain=[Failed("no such module")],
        dramatiq_recurring=[Cannot("has no schedules")],
    )
    return table.sheet(measured, {"arq": {"arq": "0.28.0"}}, MACHINE, "redis", rounds=3)


def test_the_sheet_has_a_row_for_everybody_the_broken_included(sheet):
    assert list(sheet.cells) == ["duly", "arq", "dramatiq", "rq"]
    assert sheet.cells["rq"]["drain"].failed


def test_every_dash_every_failure_and_every_smaller_count_has_a_note(sheet):
    assert "RQ: failed (drain): no such module" in sheet.notes
    assert "dramatiq: — (recurring p50, recurring p99): has no schedules" in sheet.notes
    assert "arq, drain: 100 jobs where Duly had 500" in sheet.notes


def test_the_page_and_the_terminal_say_the_same(sheet):
    assert "| arq | 100<br>×10 |" in table.as_markdown(sheet)
    text = table.as_text(sheet, width=200)
    for word in ("×10", "failed", "A Processor", "no such module", "arq 0.28.0"):
        assert word in text
        assert word in table.as_markdown(sheet)


def test_machines_get_rounds_as_well_as_medians(sheet):
    told = json.loads(table.as_json(sheet))
    assert told["cells"]["arq"]["drain"] == {
        "value": 100,
        "ratio": 10,
        "rounds": [100],
        "ratios": [10],
        "note": "",
        "failed": False,
    }


@pytest.mark.parametrize(("option", "word"), [("--only", "cron"), ("--measures", "speed")])
def test_an_unknown_peer_or_measurement_is_refused_with_those_there_are(option, word):
    ended = CliRunner().invoke(main, [option, f"duly,drain,{word}"])
    assert ended.exit_code == 2
    assert word in ended.output


def test_a_table_replaces_what_is_between_the_marks_and_nothing_else():
    before = f"# A\n\n{page.BEGIN}\nold\n{page.END}\n\nafter\n"
    assert page.with_table(before, "new") == f"# A\n\n{page.BEGIN}\n\nnew\n\n{page.END}\n\nafter\n"
    with pytest.raises(page.NoPlace):
        page.with_table("# A\n", "new")


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.runtime == "python"], ids=lambda peer: peer.name)
def test_every_python_peer_has_an_adapter_and_pinned_requirements(peer):
    assert (ROOT / "bench" / "side_by_side" / "adapters" / f"{peer.name}.py").exists()
    required = (ROOT / "bench" / "peers" / f"{peer.name}.txt").read_text().splitlines()
    assert all(re.match(r"[\w\[\],-]+==[\d.]+( |$)", line) for line in required)


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.runtime == "node"], ids=lambda peer: peer.name)
def test_every_node_peer_has_an_adapter_and_a_lock_file_that_names_no_registry(peer):
    assert (ROOT / "bench" / "side_by_side" / "adapters" / "node" / f"{peer.name}.cjs").exists()
    folder = ROOT / "bench" / "peers" / peer.name
    required = json.loads((folder / "package.json").read_text())["dependencies"]
    assert all(re.fullmatch(r"[\d.]+", version) for version in required.values())
    locked = json.loads((folder / "package-lock.json").read_text())["packages"]
    assert all("resolved" not in package for package in locked.values())
    assert all("integrity" in package for path, package in locked.items() if path)


def test_the_page_about_benchmarks_says_how_every_peer_is_set_and_has_a_place_for_the_table():
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert table.settings_as_markdown() in text
    assert page.BEGIN in text
    assert page.END in text
