"""`duly demo`: it lives, it stops by itself or by a signal, and it tells how it went."""

import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.cli_support import invoke, run_process, spawn, until
from tests.cli.terminal import WIDTHS, Terminal

from duly.cli.demo.counts import percentile


def check_summary(output: str) -> None:
    assert re.search(r"^runs +\d+ completed", output, re.MULTILINE)
    assert re.search(r"^retries +\d+", output, re.MULTILINE)
    assert re.search(r"^late +p50 .* max ", output, re.MULTILINE)
    assert "$ duly explain count_the_stock --at " in output
    assert output.rstrip().endswith("decided by: overlap='skip'")
    assert "\x1b" not in output


def test_the_demo_ends_by_itself(tmp_path):
    folder = tmp_path / "temporary"
    folder.mkdir()
    code, output, errors = run_process("demo", "--duration", "3", "--plain", folder=tmp_path, TMPDIR=str(folder))
    assert (code, errors) == (0, "")
    for word in ("started", "completed", "skipped"):
        assert re.search(rf"^ *\d+\.\d+ {word} ", output, re.MULTILINE)
    check_summary(output)
    assert list(folder.glob("duly-demo-*")) == []


def test_the_demo_stops_when_it_is_told_to(tmp_path):
    process = spawn("demo", folder=tmp_path)
    assert process.stdout is not None
    seen = ""
    while "skipped" not in seen or "retry" not in seen:
        line = process.stdout.readline()
        assert line, seen
        seen += line
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert "Stopping" in output
    check_summary(seen + output)


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_demo_on_a_terminal(tmp_path, columns):
    with Terminal("demo", folder=tmp_path, columns=columns, rows=40) as terminal:
        terminal.until(lambda: b"shop-2 has started" in terminal.written)
        terminal.until(lambda: re.search(r"^pack_the_parcels .*[█░]{10}", terminal.text, re.MULTILINE))  # progress
        terminal.until(lambda: re.search(r"s  retry +fetch_exchange_rates: ConnectionError", terminal.text))
        terminal.until(lambda: re.search(r"s  skipped +count_the_stock: overlap", terminal.text))
        terminal.until(lambda: b"why? It was skipped" in terminal.written)  # it may have scrolled away since
        titles = next(line for line in terminal.lines if line.startswith("JOB "))
        assert {"NEXT", "LAST", "RUNS", "NOW"} <= set(titles.split())
        assert ("SCHEDULE" in titles) == (columns >= 120)
        terminal.send("\x03")
        assert terminal.end() == 0
        assert terminal.screen.wrapped == []
        assert terminal.restored
        text = "\n".join(terminal.screen.everything())
        assert re.search(r"^runs +\d+ completed", text, re.MULTILINE)
        assert "decided by: overlap='skip'" in text


def test_a_node_is_killed_and_the_other_takes_over(tmp_path):
    with Terminal("demo", folder=tmp_path, columns=120, rows=50) as terminal:
        terminal.until(lambda: re.search(r"kill -9 +shop-\d is killed while it executes \d+ run", terminal.text))
        terminal.until(lambda: re.search(r"reaped .*its node shop-\d vanished; shop-\d takes it over", terminal.text))
        terminal.until(lambda: re.search(r"recovered .* runs again on shop-\d, \d.* later", terminal.text))
        terminal.until("shop-3 has started")
        terminal.send("\x03")
        assert terminal.end() == 0


def test_the_demo_leaves_no_process_behind(tmp_path):
    for ending in (signal.SIGKILL, signal.SIGTERM):
        process = spawn("demo", "--url", f"sqlite:///{tmp_path}/play.db", folder=tmp_path)
        assert process.stdout is not None
        while "shop-2 has started" not in process.stdout.readline():
            pass
        process.send_signal(ending)
        process.communicate(timeout=60)
        until(lambda: not demo_nodes(tmp_path), "the nodes have ended")


def demo_nodes(folder) -> list[str]:
    """The processes of the nodes on a store in this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_text(errors="replace")
            found += [words] if "duly.cli.demo.node" in words and str(folder) in words else []
    return found


def test_the_demo_on_another_store(tmp_path):
    code, output, _ = run_process("demo", "--duration", "1500ms", "--url", "sqlite:///play.db", folder=tmp_path)
    assert code == 0
    assert (tmp_path / "play.db").exists()
    assert "completed" in output


def test_percentiles():
    values = [float(number) for number in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.9, 0.99, 1.0)] == [50.0, 90.0, 99.0, 100.0]
    assert percentile([7.0], 0.5) == 7.0
    assert percentile([], 0.5) is None


def test_two_nodes_cannot_share_a_store_in_memory():
    assert "cannot share a store in memory" in invoke("demo", "--url", "memory://", code=1).stderr
