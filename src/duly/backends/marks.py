"""The mark of a store that is not in use: as text, and as the error that its sessions raise."""

from __future__ import annotations

import msgspec

from duly.errors import BackendError, BackendUnavailable, ImportUnfinished, StoreMoved
from duly.model.transfer import MarkKind, StoreMark
from duly.rules.restoring import refusal

_decode = msgspec.json.Decoder(StoreMark).decode


def mark_text(mark: StoreMark) -> str:
    return msgspec.json.encode(mark).decode()


def read_mark(text: str | bytes) -> StoreMark | None:
    """The mark in a text; None if it is not one."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return None


def refused(mark: StoreMark, url: str) -> BackendError:
    """What a session of a store with this mark raises."""
    text = refusal(mark, url)
    match mark.kind:
        case MarkKind.IMPORTING:
            return ImportUnfinished(text)
        case MarkKind.CLOSED:
            return BackendUnavailable(text)
        case MarkKind.MOVED:
            return StoreMoved(text, mark.address)


def not_empty(url: str, found: str) -> BackendError:
    """The answer to an import into a store that contains something."""
    return BackendError(
        f"{url} is not empty, it contains a {found}: import into a new database or file, or another namespace"
    )


def not_importing(url: str) -> BackendError:
    """The answer to a load without an import."""
    return BackendError(f"no import into {url} has begun, so nothing can be loaded")
