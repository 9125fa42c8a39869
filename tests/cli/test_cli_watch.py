"""`--watch`: a list that is shown again and again, on a real terminal."""

import signal

import pytest
from tests.cli.cli_support import ask, invoke
from tests.cli.terminal import Terminal

from duly import Every, Job
from duly.testing.servers import redis_server


@pytest.mark.parametrize("words", [("jobs",), ("runs",), ("next", "nightly"), ("audit", "list"), ("token", "list")])
def test_lists_can_be_watched(ids, tmp_path, words):
    invoke("pause", "invoice")
    with Terminal(*words, "--watch", folder=tmp_path) as terminal:
        terminal.until("every 2 s: duly")
        assert terminal.screen.wrapped == []
        terminal.send("\x03")
        assert terminal.end() == 0
        assert terminal.restored


def test_changes_appear_without_clearing_the_screen(ids, tmp_path):
    with Terminal("jobs", "--watch", "0.3", folder=tmp_path) as terminal:
        terminal.until("nightly")
        first = len(terminal.written)
        ask(
            "sqlite:///duly.db",
            lambda scheduler: scheduler.register(Job(handler="x", name="newcomer", schedule=Every(hours=1))),
        )
        terminal.until("newcomer")
        assert b"\x1b[2J" not in terminal.written[first:]
        terminal.send("\x03")
        assert terminal.end() == 0
        assert any("newcomer" in line for line in terminal.screen.everything())  # the last state stays readable


def test_it_follows_the_size_of_the_terminal(ids, tmp_path):
    with Terminal("runs", "--watch", "30", folder=tmp_path, columns=80) as terminal:
        terminal.until("left out: ")
        terminal.resize(160, 30)
        terminal.until("NODE / WHY")
        terminal.until(lambda: "left out: " not in terminal.text)
        terminal.resize(60, 10)
        terminal.until("left out: ")
        assert terminal.screen.wrapped == []


def test_a_list_that_is_longer_than_the_screen_says_so(ids, tmp_path):
    with Terminal("config", "list", "--watch", folder=tmp_path, rows=8) as terminal:
        terminal.until("more lines")
        assert terminal.lines[0].startswith("every 2 s: duly config list")


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_restores_the_terminal(ids, tmp_path, ending):
    with Terminal("jobs", "--watch", folder=tmp_path) as terminal:
        terminal.until("nightly")
        terminal.process.send_signal(ending)
        assert terminal.end() == 128 + ending
        assert terminal.restored


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(ids, tmp_path):
    """Without a shell as its parent the process is not stopped: it gives the terminal back, and goes on at once."""
    with Terminal("jobs", "--watch", "0.3", folder=tmp_path) as terminal:
        terminal.until("nightly")
        terminal.send("\x1a")
        terminal.until(lambda: terminal.written.count(b"\x1b[?1049h") == 2)
        assert terminal.written.count(b"\x1b[?1049l") == 1
        terminal.until("nightly")
        terminal.send("\x03")
        assert terminal.end() == 0
        assert terminal.restored


def test_it_works_again_when_the_store_comes_back(tmp_path):
    with redis_server() as server:
        ask(server.url, lambda scheduler: scheduler.register(Job(handler="x", name="tidy_up", schedule=Every(hours=1))))
        with Terminal("jobs", "--watch", "0.3", "--url", server.url, folder=tmp_path) as terminal:
            terminal.until("tidy_up")
            server.kill()
            terminal.until("not up to date")
            assert "tidy_up" in terminal.text
            server.restart()
            terminal.until(lambda: "not up to date" not in terminal.text)
            terminal.send("\x03")
            assert terminal.end() == 0


def test_an_error_at_the_beginning_is_an_error(tmp_path):
    with Terminal("jobs", "--watch", folder=tmp_path) as terminal:
        assert terminal.end() == 1
        assert "there is no file" in terminal.text
        assert terminal.restored
