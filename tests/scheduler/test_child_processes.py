"""How the end of a process is described, and when it is replaced."""

import pytest

from duly.scheduler.child_processes import exit_text, pause_before_restart
from duly.scheduler.file_changes import WatchedFiles


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "exit code 0"),
        (1, "exit code 1"),
        (128, "exit code 128"),
        (137, "exit code 137 (SIGKILL)"),
        (139, "exit code 139 (SIGSEGV)"),
        (255, "exit code 255"),
        (-9, "killed by SIGKILL"),
        (-11, "killed by SIGSEGV"),
        (-40, "killed by signal 40"),
    ],
)
def test_the_end_of_a_process_in_words(code, text):
    assert exit_text(code) == text


def test_pauses_grow_while_processes_die_soon():
    pauses = [0.0]
    for _ in range(8):
        pauses.append(pause_before_restart(1.0, pauses[-1], steady=2.0))
    assert pauses[1:] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert pause_before_restart(2.5, 5.0, steady=2.0) == 0.0, "one that worked for a while is replaced at once"


async def test_a_change_of_a_watched_file_is_noticed(tmp_path):
    file, other = tmp_path / "app.py", tmp_path / "other.py"
    for each in (file, other):
        each.write_text("one")
    files = WatchedFiles()
    files.add([str(file)])
    files.add([str(file), str(tmp_path / "to_come.py")])
    other.write_text("not watched")
    file.write_text("another")
    assert await files.changed() == [str(file)]
    file.unlink()
    assert await files.changed() == [str(file)]
    (tmp_path / "to_come.py").write_text("new")
    assert await files.changed() == [str(tmp_path / "to_come.py")]


async def test_a_folder_is_watched_without_hidden_folders(tmp_path):
    (tmp_path / ".venv").mkdir()
    hidden, file = tmp_path / ".venv" / "a.py", tmp_path / "b.py"
    for each in (hidden, file):
        each.write_text("one")
    files = WatchedFiles()
    files.add_folder(tmp_path)
    hidden.write_text("longer")
    file.write_text("longer")
    assert await files.changed() == [str(file)]
