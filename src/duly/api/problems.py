"""Problems: every error of the API as one document of RFC 9457, with the field at fault and the way out.

`problem_of` is the one place where Duly's errors become statuses. Whatever is not known here is a fault of ours: it is
logged under an id, and the caller learns nothing but that id.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

import msgspec
from msgspec import Struct

from duly.errors import (
    BackendUnavailable,
    ConfigurationError,
    DulyError,
    DuplicateJob,
    InvalidSchedule,
    JobChanged,
    JobNotFound,
    PayloadError,
    PayloadTooLarge,
    RunNotFound,
    SchedulerRunning,
)

CONTENT_TYPE = b"application/problem+json"
_TYPE = "urn:duly:problem:"


class FieldProblem(Struct, frozen=True):
    """What is wrong with one part of a request; `pointer` is a JSON pointer into its body."""

    pointer: str
    detail: str


class ProblemDocument(Struct, frozen=True, omit_defaults=True):
    """An error, as RFC 9457 has it. `type` is stable; `detail` is for people and says the way out."""

    type: str
    title: str
    status: int
    detail: str
    errors: tuple[FieldProblem, ...] = ()


class Problem(Exception):
    """Ends a call with a problem document."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        pointer: str | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.pointer = pointer
        self.headers = tuple(headers)

    def document(self) -> ProblemDocument:
        return ProblemDocument(
            type=f"{_TYPE}{self.kind}",
            title=HTTPStatus(self.status).phrase,
            status=self.status,
            detail=self.detail,
            errors=() if self.pointer is None else (FieldProblem(self.pointer, self.detail),),
        )

    def body(self) -> bytes:
        return msgspec.json.encode(self.document())


def problem_of(error: DulyError) -> Problem | None:
    """The problem that an error of Duly is for a caller; None if it is none of theirs."""
    text = str(error)
    match error:
        case BackendUnavailable():
            again = "with a dedupe_key a submission may be repeated within its unique_for"
            away = f"the store cannot be reached now: try again; {again}"
            return Problem(503, "store-away", away, headers=((b"retry-after", b"1"),))
        case JobNotFound() | RunNotFound():
            return Problem(404, "not-found", text)
        case PayloadTooLarge():
            return Problem(413, "too-large", text, pointer="/payload")
        case PayloadError():
            return Problem(422, "invalid-payload", text, pointer="/payload")
        case InvalidSchedule():
            return Problem(422, "invalid-schedule", text, pointer="/schedule")
        case JobChanged() | DuplicateJob() | SchedulerRunning():
            return Problem(409, "conflict", text)
        case ConfigurationError():
            return Problem(422, "invalid", text)
        case _:
            return None


def not_found(what: str, name: str) -> Problem:
    """The same answer for what never was and for what the caller may not see."""
    way_out = "see `GET /jobs`" if what == "job" else "it never was, or retention has purged it"
    return Problem(404, "not-found", f"there is no {what} {name!r}: {way_out}")
