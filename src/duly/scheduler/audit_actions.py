"""What the audit log keeps about operations on runs, whoever does them: the API and the command line write the same."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from duly.model import Run, RunFilter, RunQuery, iso

_LONGEST_PAYLOAD = 4096  # bytes: of a longer one, the log keeps its length and its hash

_EVERYTHING = RunQuery()


def runs_of(number: int) -> str:
    """The target of an entry about many runs."""
    return f"{number} run" if number == 1 else f"{number} runs"


def redriven(run: Run, payload: bytes | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What a redriven run was before, and what it is now."""
    if payload is None:
        return {"status": run.state.value}, None
    return {"status": run.state.value, "payload": _payload(run.payload)}, {"payload": _payload(payload)}


def _payload(text: bytes) -> Any:
    if len(text) > _LONGEST_PAYLOAD:
        return {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return text.decode(errors="replace")


def chosen_runs(wanted: RunFilter | None, as_of: datetime | None, runs: Sequence[Run]) -> dict[str, Any]:
    """Which runs were changed together: their ids, and the filter that chose them."""
    ids = {"runs": [run.id for run in runs]}
    if wanted is None or as_of is None:
        return ids
    return {"filter": filter_document(wanted), "as_of": iso(as_of), **ids}


def filter_document(wanted: RunFilter) -> dict[str, Any]:
    """A filter as JSON, without what it does not say."""
    tag = {} if wanted.tag is None else {"tag": wanted.tag}
    return {**_said(wanted.query), **tag}


def _said(query: RunQuery) -> dict[str, Any]:
    said = {name: getattr(query, name) for name in RunQuery.__struct_fields__}
    chosen = {name: value for name, value in said.items() if value != getattr(_EVERYTHING, name)}
    excluded = chosen.pop("none_of", ())
    found: dict[str, Any] = msgspec.to_builtins(chosen)
    return {**found, **({"none_of": [_said(each) for each in excluded]} if excluded else {})}
