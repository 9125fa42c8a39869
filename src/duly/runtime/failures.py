"""Exceptions as data: the record of a failed attempt, hook or service, even if the exception's own methods raise."""

from __future__ import annotations

import traceback
from types import TracebackType

from duly.errors import GiveUp, Retry
from duly.model import Failure, sanitize
from duly.runtime.executors.base import RemoteFailure


def failure_of(exc: BaseException) -> Failure:
    """An exception as a record that can be stored."""
    match exc:
        case RemoteFailure():
            return sanitize.failure(exc.type_name, exc.message, exc.traceback)
        case GiveUp():
            return sanitize.failure("GiveUp", reason_of(exc))
        case Retry():
            return sanitize.failure("Retry", sanitize.text_of(exc))
        case _:
            return sanitize.failure(sanitize.type_name_of(exc), sanitize.text_of(exc), traceback_of(exc))


def reason_of(exc: GiveUp) -> str:
    """Why a handler gave up, also where it gave an exception as the reason."""
    reason: object = exc.reason
    said = sanitize.text_of(reason)
    return f"{sanitize.type_name_of(reason)}: {said}" if isinstance(reason, BaseException) else said


def traceback_of(exc: BaseException) -> str:
    """The traceback from the first frame of the user's code on."""
    try:
        return "".join(traceback.format_exception(type(exc), exc, _users_part(exc)))
    except BaseException:  # noqa: BLE001  # an exception that cannot be shown is reported without it
        return ""


def stopped_at(exc: BaseException) -> str:
    """The traceback of a handler that was stopped: where it was then. Empty if none of its frames are known."""
    return "" if _users_frames(exc) is None else traceback_of(exc)


def _users_part(exc: BaseException) -> TracebackType | None:
    """The traceback without the frames through which the runtime called the handler, unless there are no others."""
    return _users_frames(exc) or exc.__traceback__


def _users_frames(exc: BaseException) -> TracebackType | None:
    trace = exc.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).startswith("duly.runtime"):
        trace = trace.tb_next
    return trace
