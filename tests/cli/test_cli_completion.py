"""Completion: the scripts, and what they are answered with."""

import shutil
import socket
import subprocess
import time

import pytest
from click.shell_completion import ShellComplete
from tests.cli.cli_support import invoke, run_process

from duly.cli import COMMANDS, cli


def completed(*words: str) -> list[str]:
    """What is offered for the last of these words."""
    *before, incomplete = words
    found = ShellComplete(cli, {}, "duly", "_DULY_COMPLETE").get_completions(list(before), incomplete)
    return [item.value for item in found]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell):
    script = invoke("completion", shell).stdout
    assert f"_DULY_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_an_unknown_shell_is_refused():
    assert "'tcsh' is not one of" in invoke("completion", "tcsh", code=2).stderr


def test_commands_and_options():
    assert completed("") == list(COMMANDS)
    assert completed("pa") == ["pause"]
    assert completed("--no") == ["--no-color"]
    assert "--ended-since" in completed("runs", "--")
    assert completed("runs", "--state", "fa") == ["failed"]
    assert completed("no-such-command", "x") == []


def test_names_come_from_the_store(ids):
    assert completed("pause", "") == ["explode", "greet", "invoice", "nightly"]
    assert completed("pause", "n") == ["nightly"]
    assert completed("pause", "nightly", "g") == ["greet"]
    assert completed("submit", "gr") == ["greet"]
    assert completed("pause", "--queue", "") == ["default", "mail"]
    assert completed("show", "in") == ["invoice"]
    assert completed("cancel", "") == [ids["later"], ids["bad"], ids["good"]]
    assert completed("show", ids["bad"][:-1]) == [ids["bad"]]
    assert completed("restore", "") == []
    invoke("remove", "nightly", "--yes")
    assert completed("restore", "") == ["nightly"]
    assert completed("pause", "n") == []


def test_it_is_silent_about_errors(tmp_path, capfd):
    assert completed("pause", "") == []
    assert not (tmp_path / "duly.db").exists(), "looking creates nothing"
    (tmp_path / "duly.db").write_bytes(b"this is no database" * 100)
    for words in (("pause", ""), ("show", "0"), ("pause", "--queue", ""), ("pause", "--url", "nothing://x", "")):
        assert completed(*words) == []
    (tmp_path / "duly.toml").write_text("broken = [")
    assert completed("pause", "") == []
    assert capfd.readouterr() == ("", "")


def test_a_store_that_does_not_answer_is_not_waited_for(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        monkeypatch.setenv("DULY_URL", f"redis://127.0.0.1:{deaf.getsockname()[1]}/0")
        began = time.monotonic()
        assert completed("pause", "") == []
        assert time.monotonic() - began < 3.0


def test_a_process_completes(ids, tmp_path):
    code, output, errors = run_process(
        folder=tmp_path, _DULY_COMPLETE="bash_complete", COMP_WORDS="duly pause n", COMP_CWORD="2"
    )
    assert (code, errors) == (0, "")
    assert "nightly" in output or "plain" in output
