"""Traces: how a run continues the trace of its submitter, in the headers that W3C Trace Context defines."""

from __future__ import annotations

import re
from collections.abc import Mapping

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_LONGEST_STATE = 512


def trace_headers(traceparent: str | None, tracestate: str | None = None) -> dict[str, str] | None:
    """The headers of a run that continues this trace. A malformed one is ignored, as the standard requires."""
    if traceparent is None or trace_id({TRACEPARENT: traceparent}) is None:
        return None
    if not tracestate or len(tracestate) > _LONGEST_STATE:
        return {TRACEPARENT: traceparent}
    return {TRACEPARENT: traceparent, TRACESTATE: tracestate}


def trace_id(headers: Mapping[str, str] | None) -> str | None:
    """The trace that these headers belong to, None if there is none."""
    found = _TRACEPARENT.fullmatch(headers.get(TRACEPARENT, "")) if headers else None
    if found is None or not found[1].strip("0") or not found[2].strip("0"):
        return None
    return found[1]
