"""Which confinement a node can apply, and which limit a process has reached."""

import signal

import pytest

from duly import ConfigurationError, Confinement
from duly.model.confinement import confinement_of
from duly.rules.confining import Rights, limit_reached, refusal

ROOT = Rights(linux=True, posix=True, user="root", may_change_user=True, known_user=True)
PLAIN = Rights(linux=True, posix=True, user="ada", may_change_user=False, known_user=True)
MAC = Rights(linux=False, posix=True, user="ada", may_change_user=False, known_user=True)
WINDOWS = Rights(linux=False, posix=False, user="", may_change_user=False, known_user=False)


@pytest.mark.parametrize(
    ("rights", "confine", "words"),
    [
        (ROOT, Confinement(user="nobody", no_new_privileges=True, memory="1G"), None),
        (PLAIN, Confinement(memory="1G", cpu_seconds=1, open_files=64, umask=0o077, private_tmp=True), None),
        (PLAIN, Confinement(user="ada"), None),
        (PLAIN, Confinement(user="nobody"), "runs as 'ada' and cannot change to 'nobody'"),
        (MAC, Confinement(no_new_privileges=True), "needs Linux"),
        (MAC, Confinement(memory="1G"), None),
        (WINDOWS, Confinement(umask=0), "this system cannot confine processes"),
        (Rights(True, True, "root", True, False), Confinement(user="gone"), "there is no user 'gone'"),
    ],
)
def test_what_a_node_cannot_do_is_refused(rights, confine, words):
    why = refusal(confine, rights)
    assert (why is None) if words is None else (words in (why or ""))


@pytest.mark.parametrize(
    ("confine", "code", "said", "words"),
    [
        (None, -signal.SIGXCPU, "", None),
        (Confinement(cpu_seconds=2), -signal.SIGXCPU, "", "cpu_seconds=2"),
        (Confinement(cpu_seconds=2), -signal.SIGKILL, "", "cpu_seconds=2"),
        (Confinement(cpu_seconds=2), 1, "", None),
        (Confinement(memory="64M"), 1, "Traceback …\nMemoryError\n", "memory=64 MiB"),
        (Confinement(memory="64M"), -signal.SIGSEGV, "", "memory=64 MiB"),
        (Confinement(memory="64M"), 1, "bad argument", None),
        (Confinement(open_files=16), 1, "OSError: [Errno 24] Too many open files: 'x'", "open_files=16"),
        (Confinement(open_files=16), 1, "MemoryError", None),
        (Confinement(user="nobody"), -signal.SIGKILL, "MemoryError", None),
    ],
)
def test_the_limit_that_was_reached_is_named(confine, code, said, words):
    found = limit_reached(confine, code, said)
    assert (found is None) if words is None else (found or "").endswith(words)


SIZES = [("512M", 512 << 20), ("2GiB", 2 << 30), (1 << 20, 1 << 20), ("4096K", 4 << 20)]


@pytest.mark.parametrize(("given", "size"), SIZES)
def test_sizes_may_have_units(given, size):
    assert Confinement(memory=given).memory == size


@pytest.mark.parametrize(
    "fields",
    [
        {"memory": "much"},
        {"memory": "-1M"},
        {"memory": 1000},
        {"memory": True},
        {"memory": float("nan")},
        {"memory": "9" * 5000},
        {"memory": "\ud800"},
        {"cpu_seconds": 0},
        {"cpu_seconds": 1.5},
        {"open_files": 2},
        {"umask": 0o1000},
        {"umask": -1},
        {"user": ""},
        {"user": "a b"},
        {"user": "root\0"},
        {"user": 0},
        {"private_tmp": 1},
        {"no_new_privileges": "yes"},
        {"seccomp": True},
    ],
)
def test_invalid_values_are_refused_by_name(fields):
    [name] = fields
    with pytest.raises(ConfigurationError, match=f"confine: .*{name}"):
        confinement_of(fields)


def test_a_confinement_is_written_as_it_was_given():
    confine = Confinement(memory="1M", umask=0o077, private_tmp=True)
    assert str(confine) == "memory=1048576, umask=0o077, private_tmp=True"
