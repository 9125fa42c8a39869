"""Foreign exceptions and error replies become ours here, and nowhere else: what may pass is unavailable."""

from __future__ import annotations

import re

from duly.errors import BackendError, BackendUnavailable

# The first word of an error reply, and what to do about it.
_PASSING = {
    "LOADING": "is still loading its data",
    "READONLY": "is a replica now and takes no writes",
    "CLUSTERDOWN": "belongs to a cluster that is down",
    "MASTERDOWN": "has lost its master",
    "BUSY": "is busy with a script that does not end",
    "TRYAGAIN": "is moving these keys to another node",
    "OOM": "has no memory left: raise its maxmemory, or keep finished runs for a shorter time",
    "MISCONF": "cannot write to its disk and refuses changes until it can",
    "NOREPLICAS": "has too few replicas to write to (min-replicas-to-write)",
    "UNKILLABLE": "is busy with a script that does not end",
    "MOVED": "belongs to a cluster in which these keys moved",
    "ASK": "belongs to a cluster in which these keys are moving",
    "UNBLOCKED": "has changed its role",
}
_LASTING = {
    "NOAUTH": "wants a password: put it into the URL, redis://user:password@host",
    "WRONGPASS": "does not know this user and password",
    "NOPERM": "does not allow this user what Duly needs: EVALSHA, SCRIPT, PUBLISH, SUBSCRIBE, and its keys",
    "NOPROTO": "speaks another protocol",
}
# A script passes on what a command in it was refused for; older servers wrap it into a text of their own.
_WRAPPED = re.compile(r"(?:^|[\s:])-(" + "|".join(_PASSING) + r")\b")
_MOVED = re.compile(r"MOVED \d+ (?P<host>\S*):(?P<port>\d+)")
_CROWDED = "max number of clients"


def kind_of(text: str) -> str:
    """The word that says what kind of error a reply is."""
    word = text.partition(" ")[0]
    if word in _PASSING or word in _LASTING:
        return word
    wrapped = _WRAPPED.search(text)
    return wrapped[1] if wrapped else word


def moved_to(text: str) -> tuple[str, int] | None:
    """The address that a MOVED reply names; an empty host means the one that answered."""
    match = _MOVED.match(text)
    return (match["host"], int(match["port"])) if match else None


def refused(text: str, place: str) -> BackendError:
    """An error reply in Duly's words."""
    kind = kind_of(text)
    if kind in _PASSING:
        return BackendUnavailable(f"{place} {_PASSING[kind]} ({text})")
    if kind in _LASTING:
        return BackendError(f"{place} {_LASTING[kind]} ({text})")
    if _CROWDED in text:
        return BackendUnavailable(f"{place} has as many clients as it allows: raise its maxclients")
    return BackendError(f"{place} refused: {text}")


def unreachable(error: BaseException, place: str) -> BackendUnavailable:
    """Why a connection could not be made or kept."""
    return BackendUnavailable(f"{place} cannot be reached: {str(error) or type(error).__name__}")
