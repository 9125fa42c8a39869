"""`duly export`, `import` and `copy`: backups and moves by the command line, also if a process is killed meanwhile."""

import gzip
import json
import os
import signal
import stat
import subprocess
import sys

import pytest
from tests.cli.cli_support import document, invoke, run_on_terminal, run_process, spawn, until


@pytest.fixture
def backup(ids, tmp_path):
    """An export of a store with a past."""
    invoke("export", "backup.duly", "--logs")
    return tmp_path / "backup.duly"


def lines(path) -> list[dict]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_an_export_is_imported_elsewhere(backup, ids):
    before = document("runs", "--limit", "100")
    result = invoke("import", "backup.duly", "--url", "sqlite:///other.db")
    assert result.stdout.startswith("imported ")
    after = document("runs", "--limit", "100", "--url", "sqlite:///other.db")
    assert {run["id"] for run in after} == {run["id"] for run in before}
    assert len(before) > 2
    jobs = {job["name"]: job["status"] for job in document("jobs", "--url", "sqlite:///other.db")}
    assert jobs == {job["name"]: job["status"] for job in document("jobs")}


def test_an_import_is_in_the_audit_log(backup):
    invoke("import", "backup.duly", "--url", "sqlite:///other.db")
    assert "import" in invoke("audit", "list", "--url", "sqlite:///other.db").output
    invoke("audit", "verify", "--url", "sqlite:///other.db")


def test_only_its_owner_can_read_an_export(backup):
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert not backup.with_name("backup.duly.partial").exists()


def test_tokens_and_logs_are_exported_only_on_request(ids, tmp_path):
    invoke("token", "create", "--role", "viewer")
    for flags, kinds, logs in (((), set(), False), (("--secrets",), {"token"}, False), (("--logs",), set(), True)):
        invoke("export", "some.duly", "--force", *flags)
        found = lines(tmp_path / "some.duly")
        secret = {line["kind"] for line in found if line["type"] == "value"} & {"token", "secret"}
        assert secret == kinds
        assert any(line["type"] == "log" for line in found) is logs


def test_an_export_does_not_replace_a_file_unasked(ids, tmp_path):
    (tmp_path / "backup.duly").write_text("the only copy")
    assert "backup.duly exists" in invoke("export", "backup.duly", code=1).stderr
    assert (tmp_path / "backup.duly").read_text() == "the only copy"


def test_an_export_can_be_piped(ids, tmp_path):
    url = f"sqlite:///{tmp_path}/duly.db"
    exporting = subprocess.run(
        [sys.executable, "-m", "duly", "export", "-", "--url", url], capture_output=True, check=True
    )
    importing = subprocess.run(
        [sys.executable, "-m", "duly", "import", "-", "--url", f"sqlite:///{tmp_path}/piped.db"],
        input=exporting.stdout,
        capture_output=True,
        check=True,
    )
    assert importing.stdout.startswith(b"imported ")


def test_a_store_with_something_in_it_is_left_alone(backup):
    assert "not empty" in invoke("import", "backup.duly", code=1).output


def test_a_damaged_file_is_refused_before_anything_is_loaded(backup, tmp_path):
    (tmp_path / "cut.duly").write_bytes(backup.read_bytes()[:500])
    result = invoke("import", "cut.duly", "--url", "sqlite:///other.db", code=1)
    assert "cut.duly is incomplete" in result.output
    assert not (tmp_path / "other.db").exists()
    assert "cannot be read" in invoke("import", "missing.duly", "--url", "sqlite:///other.db", code=1).output


def test_a_file_that_cannot_be_written_is_an_error(ids):
    assert "cannot be written" in invoke("export", "no/such/folder/backup.duly", code=1).output


def test_a_terminal_shows_the_progress_and_is_tidy_afterwards(ids, tmp_path):
    code, shown = run_on_terminal("export", "backup.duly", folder=tmp_path)
    assert code == 0
    assert shown.splitlines()[-1].startswith("exported ")
    assert all(len(line) <= 80 for part in shown.splitlines() for line in part.split("\r"))


def test_binary_data_is_not_written_to_a_terminal(ids, tmp_path):
    code, shown = run_on_terminal("export", "-", folder=tmp_path)
    assert code == 1
    assert "redirect" in shown


KILLED = """
import asyncio, os, signal, sys
from duly.backends import open_backend
from duly.moving.importing import Reader, _batches, _load, prepare
from duly.ports import Opening

async def main():
    async with open_backend(sys.argv[2], Opening(migrates=False)) as backend:
        reader = Reader(open(sys.argv[1], "rb"), "backup")
        await prepare(backend, "backup")
        await _load(backend, next(_batches(reader.records())), reader.header)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_a_node_does_not_start_on_a_half_imported_store(backup, nodes, tmp_path):
    """The import is killed when it has loaded something; nodes refuse, and a repeat succeeds."""
    url = f"sqlite:///{tmp_path}/half.db"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(backup), url], check=False)
    assert killed.returncode == -signal.SIGKILL
    code, _, errors = run_process("run", "app", "--url", url, folder=tmp_path)
    assert code == 1
    assert "has begun and not ended" in errors
    assert "has begun and not ended" in invoke("jobs", "--url", url, code=1).output
    invoke("import", "backup.duly", "--url", url)
    assert document("jobs", "--url", url)


# --- copy


def test_a_store_moves_and_says_where_to(ids, tmp_path):
    before = {run["id"] for run in document("runs", "--limit", "100")}
    result = invoke("copy", "sqlite:///duly.db", "sqlite:///new.db")
    assert "moved" in result.output
    assert {run["id"] for run in document("runs", "--limit", "100", "--url", "sqlite:///new.db")} == before
    result = invoke("jobs", code=1)
    assert f"was moved to sqlite:///{tmp_path}/new.db" in " ".join(result.output.split())


def test_a_copy_can_be_undone(ids):
    invoke("copy", "sqlite:///duly.db", "sqlite:///new.db")
    assert "works again" in invoke("copy", "--abort", "sqlite:///duly.db").output
    assert document("jobs")


def test_a_copy_that_was_cut_off_after_the_mark_is_finished(ids, monkeypatch):
    from duly.backends.sqlite.backend import SqliteStore

    async def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "end_load", killed)
        invoke("copy", "sqlite:///duly.db", "sqlite:///new.db", code=130)
    assert "has begun and not ended" in invoke("jobs", "--url", "sqlite:///new.db", code=1).output
    assert "had moved already" in invoke("copy", "sqlite:///duly.db", "sqlite:///new.db").output
    assert document("jobs", "--url", "sqlite:///new.db")


@pytest.mark.parametrize(
    "arguments", [("copy", "sqlite:///duly.db"), ("copy", "--abort", "sqlite:///duly.db", "sqlite:///b.db")]
)
def test_a_copy_needs_two_stores_and_an_abort_one(ids, arguments):
    invoke(*arguments, code=2)


def test_a_source_that_does_not_exist_is_not_made(tmp_path):
    assert "there is no file" in invoke("copy", "sqlite:///none.db", "sqlite:///new.db", code=1).output
    assert not (tmp_path / "none.db").exists()


def test_nodes_follow_to_the_new_store_or_stop_with_the_reason(nodes, tmp_path):
    following = nodes.start(DULY_FOLLOW="1")
    stopping = nodes.start()
    nodes.ready(following, stopping)
    target = f"sqlite:///{tmp_path}/new.db"
    code, _, errors = run_process("copy", nodes.url, target, folder=tmp_path)
    assert code == 0, errors
    assert stopping.wait(timeout=60) == 1
    assert "was moved to" in stopping.stderr.read()
    nodes.url = target
    until(lambda: following.pid in nodes.alive(), "it works on the new store")
    ran = run_process("submit", "greet", "name=ada", "--wait", "--url", target, folder=tmp_path)
    assert ran[0] == 0, ran
    assert "hello ada" in ran[1]


@pytest.mark.parametrize("moment", [0.3, 0.8, 1.3])
def test_a_copy_that_is_killed_can_be_repeated(nodes, tmp_path, moment):
    node = nodes.start(DULY_FOLLOW="1")
    nodes.ready(node)
    target = f"sqlite:///{tmp_path}/new.db"
    process = spawn("copy", nodes.url, target, folder=tmp_path)
    try:
        process.communicate(timeout=moment)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    code, _, errors = run_process("copy", nodes.url, target, folder=tmp_path)
    assert code == 0 or "was moved to" in errors, errors
    nodes.url = target
    until(lambda: node.pid in nodes.alive(), "it works on the new store")
    ran = run_process("submit", "greet", "name=ada", "--wait", "--url", target, folder=tmp_path)
    assert ran[0] == 0, ran


def test_a_node_that_starts_on_a_store_that_moved_follows(nodes, tmp_path):
    nodes.ready(first := nodes.start())
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    target = f"sqlite:///{tmp_path}/new.db"
    assert run_process("copy", nodes.url, target, folder=tmp_path)[0] == 0
    late = nodes.start(DULY_FOLLOW="1")
    nodes.url = target
    until(lambda: late.pid in nodes.alive(), "it works on the new store")
    late.send_signal(signal.SIGTERM)
    assert late.wait(timeout=60) == 0
