"""`duly demo`: it lives, it stops by itself or by a signal, and it tells how it went."""

import re
import signal

from tests.cli.cli_support import run_on_terminal, run_process, spawn

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


def test_the_demo_on_a_terminal(tmp_path):
    code, output = run_on_terminal("demo", "--duration", "2", folder=tmp_path, columns=140)
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)
    assert re.search(r"job +schedule +next +last +runs ", plain, re.MULTILINE)
    assert re.search(r"watch_the_shelves +every 2 seconds", plain)
    assert re.search(r"^runs +\d+ completed", plain, re.MULTILINE)


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
