"""Confining: whether a node can confine a process as asked, and which limit a process has reached."""

from __future__ import annotations

import signal

from msgspec import Struct

from duly.model.confinement import Confinement
from duly.rules.sizes import in_words

# How programs in common languages report that memory or descriptors ran out.
_NO_MEMORY = ("MemoryError", "Cannot allocate memory", "bad_alloc", "out of memory", "OutOfMemoryError", "ENOMEM")
_NO_FILES = ("Too many open files", "EMFILE", "No file descriptors available")
_OF_MEMORY = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)


class Rights(Struct, frozen=True):
    """What the system and the user of a node allow. `known_user`: the user that is asked for exists here."""

    linux: bool
    posix: bool
    user: str
    may_change_user: bool
    known_user: bool


def refusal(confine: Confinement, rights: Rights) -> str | None:
    """Why a node with these rights cannot confine a process so; None if it can."""
    if not rights.posix:
        return "this system cannot confine processes; leave out confine"
    if confine.no_new_privileges and not rights.linux:
        return "no_new_privileges needs Linux; leave it out"
    if confine.user is not None and not rights.known_user:
        return f"there is no user {confine.user!r} on this machine"
    if confine.user is not None and confine.user != rights.user and not rights.may_change_user:
        way_out = "run it as root, or leave out user"
        return f"the node runs as {rights.user!r} and cannot change to {confine.user!r}: {way_out}"
    return None


def limit_reached(confine: Confinement | None, code: int | None, said: str) -> str | None:
    """Which limit a process has probably reached, from its exit code and what it said; None if none is known."""
    if confine is None:
        return None
    if confine.cpu_seconds is not None and code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"it reached its limit cpu_seconds={confine.cpu_seconds}"
    if confine.memory is not None and (code in _OF_MEMORY or any(text in said for text in _NO_MEMORY)):
        return f"it reached its limit memory={in_words(int(confine.memory))}"
    if confine.open_files is not None and any(text in said for text in _NO_FILES):
        return f"it reached its limit open_files={confine.open_files}"
    return None
