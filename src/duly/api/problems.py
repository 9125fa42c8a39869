"""Problems: the errors of the API as documents of RFC 9457, with the wrong field and the way out.

`problem_of` maps Duly's errors to statuses. Any other error is a bug: it is logged under an id, and the caller gets
only this id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus

import msgspec
from msgspec import Struct

from duly import errors
from duly.errors import DulyError

CONTENT_TYPE = b"application/problem+json"
_TYPE = "urn:duly:problem:"
_LONGEST = 1000


class FieldProblem(Struct, frozen=True):
    """An error in one part of a request; `pointer` is a JSON pointer into its body."""

    pointer: str
    detail: str


class ProblemDocument(Struct, frozen=True, omit_defaults=True):
    """A problem document of RFC 9457. `type` is stable; `detail` is for people and says what to do."""

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
        self.detail = _short(detail)
        super().__init__(self.detail)
        self.status = status
        self.kind = kind
        self.pointer = None if pointer is None else _short(pointer)
        self.headers = tuple(headers)

    def within(self, what: str, index: int) -> Problem:
        """The same problem in one item of an array."""
        detail = f"{what} {index}: {self.detail}"
        return Problem(self.status, self.kind, detail, pointer=f"/{index}{self.pointer or ''}", headers=self.headers)

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


def _short(text: str) -> str:
    """A message that may quote the caller: shortened, and without characters that JSON cannot hold."""
    plain = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return plain if plain.isascii() else plain.encode("utf-8", "replace").decode()


def problem_of(error: DulyError) -> Problem | None:
    """The problem for an error that the caller can correct; None for any other error."""
    text = str(error)
    match error:
        case errors.BackendUnavailable():
            away = f"the {error.part} cannot be reached now: try again"
            if error.part == "store":
                away += "; with a dedupe_key a submission may be repeated within its unique_for"
            return Problem(503, f"{error.part}-away", away, headers=((b"retry-after", b"1"),))
        case errors.JobNotFound() | errors.RunNotFound():
            return Problem(404, "not-found", text)
        case errors.PayloadTooLarge():
            return Problem(413, "too-large", text, pointer="/payload")
        case errors.PayloadError():
            return Problem(422, "invalid-payload", text, pointer="/payload")
        case errors.InvalidSchedule():
            return Problem(422, "invalid-schedule", text, pointer="/schedule")
        case errors.JobChanged() | errors.SettingChanged() | errors.DuplicateJob() | errors.SchedulerRunning():
            return Problem(409, "conflict", text)
        case errors.ConfigurationError():
            return Problem(422, "invalid", text)
        case _:
            return None


def not_found(what: str, name: str, near: str | None = None) -> Problem:
    """The same problem for what does not exist and for what the caller may not see. `near` is a similar name."""
    way_out = "see `GET /jobs`" if what == "job" else "it never existed, or retention has purged it"
    if near is not None:
        way_out = f"did you mean {near}? See `GET /jobs`"
    return Problem(404, "not-found", f"there is no {what} {name!r}: {way_out}")


@contextmanager
def problems_in(what: str, index: int) -> Iterator[None]:
    """Add the index of an array's item to its problems."""
    try:
        yield
    except Problem as problem:
        raise problem.within(what, index) from problem
    except DulyError as error:
        found = problem_of(error)
        if found is None or found.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        raise found.within(what, index) from error
