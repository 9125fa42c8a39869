"""`duly top`: keys, the view and the screen as pure functions, and the whole on a real terminal."""

import asyncio
import re
import signal
import time
from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cli.cli_support import ask, document, invoke, run_process
from tests.cli.terminal import WIDTHS, Terminal

from duly import Every, Node, Run, Scheduler
from duly.cli.cells import width_of
from duly.cli.full_screen import Size
from duly.cli.top.keys import KeyDecoder
from duly.cli.top.lists import LISTS
from duly.cli.top.screen import Frame, draw, page_of
from duly.cli.top.snapshot import Snapshot, read
from duly.cli.top.view import Kind, View, press
from duly.model import Counts, Depth, Failure, Progress, State
from duly.testing.servers import redis_server

NOW = datetime(2026, 11, 18, 8, 15, tzinfo=UTC)


# --- keys


@pytest.mark.parametrize(
    ("read", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1b[B", ["up", "down"]),
        (b"\x1bOA", ["up"]),
        (b"\x1b[5~\x1b[6~", ["page up", "page down"]),
        (b"\x1b[Z\t", ["backtab", "tab"]),
        (b"\x1b[1;5C", []),  # Ctrl-Right is no key of ours
        (b"\r", ["enter"]),
        ("é帳".encode(), ["é", "帳"]),
        (b"\xff", ["\ufffd"]),
        (b"\x00\x01", []),
        (b"\x1bx", ["escape", "x"]),
    ],
)
def test_bytes_are_keys(read, keys):
    decoder = KeyDecoder()
    assert decoder.feed(read) == keys
    assert not decoder.waits


def test_a_sequence_may_arrive_in_parts_and_an_escape_alone_is_a_key():
    decoder = KeyDecoder()
    assert decoder.feed(b"\x1b") == []
    assert decoder.feed(b"[") == []
    assert decoder.feed(b"A") == ["up"]
    assert decoder.feed(b"\x1b") == []
    assert decoder.waits
    assert decoder.flush() == ["escape"]
    assert not decoder.waits


@given(st.binary(max_size=200))
def test_no_bytes_confuse_the_decoder(read):
    whole, parts = KeyDecoder(), KeyDecoder()
    expected = whole.feed(read) + whole.flush()
    found = [key for each in read for key in parts.feed(bytes([each]))] + parts.flush()
    assert found == expected


# --- the view


async def a_snapshot() -> Snapshot:
    """A cluster with everything that can be shown, and texts that are wider than they have characters."""
    scheduler = Scheduler("memory://")

    @scheduler.job(Every(hours=1))
    async def tidy_up() -> None: ...

    @scheduler.job(Every(hours=2), name="report_for_all_customers_of_the_region_north")
    async def report() -> None: ...

    async with scheduler:
        found = await read(scheduler)
    run = Run("06604e5b8099e717b21d858519", "pack_the_parcels", "pack", NOW, NOW, node="shop-1", started_at=NOW)
    failure = Failure("ValueError", "帳票の作成に失敗しました 🚚 " * 9)
    ended = {"state": State.FAILED, "failure": failure, "finished_at": NOW, "failures": 1}
    return replace(
        found,
        now=NOW + timedelta(seconds=5),
        running=[
            replace(run, state=State.RUNNING, progress=Progress(3, 8, "帳票")),
            replace(run, id="06604e5b8099e717b21d858520", state=State.RUNNING),
        ],
        failed=[replace(run, id=f"06604e5b8099e717b21d8585{number}", **ended) for number in range(21, 60)],
        counts=Counts(dict.fromkeys(State, 3), {"default": Depth(2, 1, 1, NOW), "mail": Depth(paused=True)}),
        nodes=[Node("shop-1", "host-1", 77, NOW, metrics={"running": 2, "slots": 10}), Node("shop-2", "h", 78, NOW)],
        leader="shop-1",
        late=[0.001, 0.002, 0.4],
    )


@pytest.fixture(scope="module")
def snapshot():
    return asyncio.run(a_snapshot())


def pressed(snapshot, *keys: str, view: View | None = None):
    """The last step of several keys."""
    step = None
    for key in keys:
        step = press(view or View(), key, snapshot, 18)
        view = step.view
    assert step is not None
    return step


def test_keys_choose_a_list(snapshot):
    assert pressed(snapshot, "tab").view.number == 1
    assert pressed(snapshot, "backtab").view.number == len(LISTS) - 1
    assert pressed(snapshot, "4").view.number == 3
    assert pressed(snapshot, "7").view.number == 0
    assert pressed(snapshot, *["right"] * len(LISTS)).view.number == 0


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        (["down", "down", "up"], 1),
        (["k"], 0),
        (["G"], 38),
        (["G", "j"], 38),
        (["end", "page up"], 20),
        (["page down", "page down", "page down"], 38),
        (["G", "home"], 0),
    ],
)
def test_keys_choose_a_line(snapshot, keys, place):
    assert pressed(snapshot, "4", *keys).view.chosen[3].place == place


def test_the_chosen_line_stays_chosen_when_others_come_and_go(snapshot):
    view = pressed(snapshot, "4", "down", "down").view
    fewer = replace(snapshot, failed=snapshot.failed[1:])
    step = pressed(fewer, "e", view=view)
    assert step.action is not None
    assert step.action.item.run == snapshot.failed[2].id
    gone = replace(snapshot, failed=snapshot.failed[:1])
    step = pressed(gone, "e", view=view)
    assert step.action is not None
    assert step.action.item.run == snapshot.failed[0].id


@pytest.mark.parametrize(
    ("number", "key", "kind", "words"),
    [
        ("1", "p", Kind.PAUSE, "pause report_for_all_customers_of_the_region_north"),
        ("1", "t", Kind.TRIGGER, "trigger report_for_all_customers_of_the_region_north"),
        ("2", "c", Kind.CANCEL, "cancel run 06604e5b8099e717b21d858519 of pack_the_parcels"),
        ("4", "r", Kind.REDRIVE, "redrive run 06604e5b8099e717b21d858521 of pack_the_parcels"),
        ("5", "p", Kind.PAUSE, "pause queue default"),
    ],
)
def test_what_changes_something_is_confirmed_first(snapshot, number, key, kind, words):
    asked = pressed(snapshot, number, key)
    assert asked.action is None
    assert asked.view.question is not None
    assert asked.view.question.words == words
    confirmed = pressed(snapshot, "y", view=asked.view)
    assert confirmed.action is not None
    assert confirmed.action.kind is kind
    for no in ("n", "escape", "enter", "q", "x"):
        refused = pressed(snapshot, no, view=asked.view)
        assert (refused.action, refused.ends, refused.view.question) == (None, False, None)


def test_a_paused_queue_is_resumed(snapshot):
    asked = pressed(snapshot, "5", "down", "p")
    assert asked.view.question is not None
    assert asked.view.question.words == "resume queue mail"


@pytest.mark.parametrize(("number", "key"), [("1", "c"), ("2", "p"), ("2", "r"), ("5", "t"), ("6", "e"), ("6", "p")])
def test_what_is_not_possible_is_said(snapshot, number, key):
    step = pressed(snapshot, number, key)
    assert step.action is None
    assert step.view.question is None
    assert step.view.message


def test_help_is_shown_and_closed(snapshot):
    shown = pressed(snapshot, "?")
    assert shown.view.text is not None
    assert pressed(snapshot, "escape", view=shown.view).view.text is None
    assert pressed(snapshot, "q", view=shown.view).ends is False
    assert pressed(snapshot, "q").ends


KEYS = [*"123456ygGjkeptcr?hqn", "up", "down", "tab", "page down", "end", "escape", "enter"]


def test_no_keys_lead_astray(snapshot):
    empty = replace(snapshot, jobs=[], running=[], failed=[], nodes=[], upcoming=[])

    @settings(deadline=None, max_examples=30)
    @given(st.lists(st.sampled_from(KEYS), max_size=20))
    def check(keys):
        view = View()
        for key in keys:
            for data in (snapshot, empty):
                view = press(view, key, data, 18).view
                draw(view, Frame("sqlite:///duly.db", data), Size(80, 24), colours=True)

    check()


# --- the screen


@pytest.mark.parametrize("columns", [*WIDTHS, 20, 40, 60])
@pytest.mark.parametrize("rows", [24, 6, 50, 2])
def test_the_screen_fits_the_terminal(snapshot, columns, rows):
    for number in range(len(LISTS)):
        for view in (View(number=number), pressed(snapshot, str(number + 1), "?").view):
            lines = draw(view, Frame("sqlite:////var/lib/duly/duly.db", snapshot), Size(columns, rows), colours=True)
            assert len(lines) <= rows
            assert all(width_of(click.unstyle(line)) <= columns for line in lines)


def test_the_screen_at_80_columns(snapshot):
    frame = Frame("sqlite:///duly.db", snapshot)
    title, summary, tabs, titles, *rows = map(click.unstyle, draw(View(number=1), frame, Size(80, 24), colours=True))
    assert title.startswith("duly top  sqlite:///duly.db")
    assert title.endswith("2026-11-18 08:15:05Z")
    assert summary.startswith("running 3  queued 3  late p50 2 ms p99 400 ms max 400 ms  nodes 2, shop-1 leads")
    assert "2 Running 2" in tabs
    assert titles.split() == ["ID", "JOB", "PROGRESS", "FOR", "ATTEMPT", "LATE", "NODE"]
    assert re.match(r"1d858519  pack_the_parcels  ████░░░░░░ 38% 帳票  5 s +1  0 ms  shop-1", rows[0])
    assert rows[-1].startswith("e explain  p pause/resume")


def test_what_is_not_up_to_date_says_so(snapshot):
    frame = Frame("sqlite:///duly.db", snapshot, trouble="the store does not answer")
    assert "not up to date: the store does not answer" in draw(View(), frame, Size(80, 24), colours=False)[0]
    empty = draw(View(), Frame("sqlite:///duly.db"), Size(80, 24), colours=False)
    assert any("reading" in line for line in empty)


def test_page_is_never_empty():
    assert page_of(Size(80, 1)) == 1


# --- on a terminal


@pytest.mark.parametrize("columns", WIDTHS)
def test_top_on_a_terminal(ids, tmp_path, columns):
    with Terminal("top", folder=tmp_path, columns=columns) as terminal:
        terminal.until("4 Failed")
        terminal.until("nightly")
        assert terminal.lines[-1].startswith("e explain")
        terminal.send("4")
        terminal.until("ValueError")
        terminal.send("e")
        terminal.until("explode at")
        terminal.send("\x1b")
        terminal.until("e explain")
        terminal.send("q")
        assert terminal.end() == 0
        assert terminal.screen.wrapped == []
        assert terminal.restored


def test_top_changes_what_is_confirmed(ids, tmp_path):
    with Terminal("top", folder=tmp_path) as terminal:
        terminal.until("nightly")
        terminal.send("\x1b[F")  # the last job
        terminal.send("p")
        terminal.until("Pause nightly? (y/n)")
        terminal.send("n")
        terminal.until("nothing was done")
        terminal.send("py")
        terminal.until("nightly is paused")
        terminal.until(lambda: re.search(r"^nightly +paused", terminal.text, re.MULTILINE))
        terminal.send("py")
        terminal.until("nightly is resumed")
        terminal.send("t")
        terminal.until("Trigger nightly? (y/n)")
        terminal.send("y")
        terminal.until("was submitted")
        terminal.send("4r")
        terminal.until("Redrive run")
        terminal.send("y")
        terminal.until("waits to be run again")
        terminal.send("3")
        terminal.until("AT (UTC)")
        terminal.send("c")
        terminal.until("Cancel run")
        terminal.send("y")
        terminal.until("is cancelled")
        terminal.send("q")
        assert terminal.end() == 0
    actions = [each["deed"]["action"] for each in document("audit", "list")]
    assert actions == ["pause", "resume", "trigger", "redrive", "cancel"]


def test_top_follows_the_size_of_the_terminal(ids, tmp_path):
    with Terminal("top", folder=tmp_path, columns=160, rows=50) as terminal:
        terminal.until("SCHEDULE")
        for columns, rows in ((80, 24), (40, 10), (120, 30)):
            terminal.resize(columns, rows)
            terminal.until(
                lambda: terminal.lines[0].startswith("duly top") and terminal.lines[-1].startswith("e explain")
            )
            assert len(terminal.lines) == rows
        terminal.send("\x03")
        assert terminal.end() == 0
        assert terminal.restored


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_restores_the_terminal(ids, tmp_path, ending):
    with Terminal("top", folder=tmp_path) as terminal:
        terminal.until("nightly")
        terminal.process.send_signal(ending)
        assert terminal.end() == (0 if ending == signal.SIGINT else 128 + ending)
        assert terminal.restored


def test_an_error_restores_the_terminal(tmp_path):
    with Terminal("top", folder=tmp_path) as terminal:
        assert terminal.end() == 1
        assert "there is no file" in terminal.text
        assert terminal.restored


def test_a_slow_store_delays_no_key(tmp_path):
    with redis_server() as server:
        ask(server.url, lambda scheduler: scheduler.submit("mail"))
        with Terminal("top", "--url", server.url, folder=tmp_path) as terminal:
            terminal.until("1 Jobs")
            server.pause()
            began = time.monotonic()
            terminal.send("?")
            terminal.until("choose a list")
            terminal.send("\x1b")
            terminal.until(lambda: "choose a list" not in terminal.text)
            terminal.send("6")
            terminal.until("no node is alive")
            assert time.monotonic() - began < 5
            terminal.until("not up to date")
            server.resume()
            terminal.until(lambda: "not up to date" not in terminal.text)
            server.kill()
            terminal.until("not up to date")
            terminal.send("q")
            assert terminal.end() == 0
            assert terminal.restored


def test_without_a_terminal_there_is_a_message(ids, tmp_path):
    code, output, errors = run_process("top", folder=tmp_path)
    assert (code, output) == (1, "")
    assert errors.startswith("Error: duly top needs a terminal: use duly jobs")
    assert "needs a terminal" in invoke("top", code=1).stderr


def test_a_terminal_without_a_cursor_gets_the_message(ids, tmp_path):
    for words in (("top",), ("jobs", "--watch")):
        with Terminal(*words, folder=tmp_path, TERM="dumb") as terminal:
            assert terminal.end() != 0
            assert "needs a terminal" in terminal.text
            assert b"\x1b[?1049h" not in terminal.written
