"""The errors of Duly for what etcd or the network answers. A temporary error is `BackendUnavailable`."""

from __future__ import annotations

import ssl

import httpx2
import msgspec
from msgspec import Struct

from duly.backends.tls import certificate_refused
from duly.errors import BackendError, BackendUnavailable

# The codes of gRPC, which the gateway passes on.
_INVALID, _DEADLINE, _NOT_FOUND, _DENIED, _EXHAUSTED, _PRECONDITION = 3, 4, 5, 7, 8, 9
_INTERNAL, _UNAVAILABLE, _UNAUTHENTICATED = 13, 14, 16

_SERVER_ERROR = 500
_STALE_TOKENS = ("invalid auth token", "revision of auth store is old")
_TEMPORARY = {
    _DEADLINE: "did not answer in time",
    _EXHAUSTED: "takes no writes now: compact and defragment it, or raise its quota, and disarm the alarm",
    _UNAVAILABLE: "is not available now",
    _INTERNAL: "failed",
}


class LeaseGone(BackendError):
    """etcd does not know this etcd lease, or no longer does."""


class TokenStale(BackendError):
    """The member does not know our authentication token."""


class ErrorReply(Struct, frozen=True):
    """What the gateway sends in place of an answer."""

    code: int = 0
    message: str = ""
    error: str = ""


_error_reply = msgspec.json.Decoder(ErrorReply, strict=False)


def response_error(status: int, content: bytes, host: str) -> BackendError:
    """The exception for an HTTP response that is not OK."""
    try:
        reply = _error_reply.decode(content)
    except msgspec.DecodeError:
        if status < _SERVER_ERROR:
            return not_etcd(host)
        reply = ErrorReply(_UNAVAILABLE, f"HTTP status {status}")
    return reply_error(reply, host)


def not_etcd(host: str) -> BackendError:
    """The exception for a server that is not etcd, or is too old."""
    return BackendError(
        f"{host} does not speak as etcd does: 3.4 or newer is needed, with its JSON gateway (on by default) at /v3"
    )


def reply_error(reply: ErrorReply, host: str) -> BackendError:
    """The exception for an error reply."""
    text = reply.message or reply.error
    if reply.code in {_UNAUTHENTICATED, _INVALID} and any(stale in text for stale in _STALE_TOKENS):
        return TokenStale(f"{host} does not know our token")
    if reply.code == _NOT_FOUND and "lease not found" in text:
        return LeaseGone(f"{host} does not know the lease")
    if reply.code in _TEMPORARY:
        return BackendUnavailable(f"{host} {_TEMPORARY[reply.code]} ({text})")
    return BackendError(f"{host} {_permanent(reply.code, text)}")


def _permanent(code: int, text: str) -> str:
    if "user name is empty" in text:
        return "wants a user and a password: put them into the URL, etcd://user:password@host"
    if "authentication failed" in text:
        return "does not know this user and password"
    if code == _PRECONDITION and "authentication is not enabled" in text:
        return "has no authentication: take user and password out of the URL, or enable it (etcdctl auth enable)"
    if code == _DENIED:
        return f"does not allow this user what Duly needs: a role that may read and write the prefix duly/ ({text})"
    return f"refused: {text}"


def unreachable(error: httpx2.HTTPError, host: str) -> BackendError:
    """The exception for a member that could not be asked."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return certificate_refused(cause, host)
        cause = cause.__cause__ or cause.__context__
    return BackendUnavailable(f"{host} cannot be reached: {str(error) or type(error).__name__}")
