"""Foreign exceptions and error answers become ours here, and nowhere else: what may pass is unavailable."""

from __future__ import annotations

import ssl

import httpx2
import msgspec
from msgspec import Struct

from duly.errors import BackendError, BackendUnavailable

# The codes of gRPC, which the gateway passes on.
_INVALID, _DEADLINE, _NOT_FOUND, _DENIED, _EXHAUSTED, _PRECONDITION = 3, 4, 5, 7, 8, 9
_INTERNAL, _UNAVAILABLE, _UNAUTHENTICATED = 13, 14, 16

_SERVERS_FAULT = 500
_STALE_TOKENS = ("invalid auth token", "revision of auth store is old")
_PASSING = {
    _DEADLINE: "did not answer in time",
    _EXHAUSTED: "takes no writes now: compact and defragment it, or raise its quota, and disarm the alarm",
    _UNAVAILABLE: "is not available now",
    _INTERNAL: "failed",
}


class LeaseGone(BackendError):
    """etcd does not know that lease of its own (any more)."""


class TokenStale(BackendError):
    """The member does not know the token that we were given."""


class Refusal(Struct, frozen=True):
    """What the gateway says instead of an answer."""

    code: int = 0
    message: str = ""
    error: str = ""


_refusal = msgspec.json.Decoder(Refusal, strict=False)


def refused(status: int, content: bytes, host: str) -> BackendError:
    """An error answer in Duly's words."""
    try:
        refusal = _refusal.decode(content)
    except msgspec.DecodeError:
        if status < _SERVERS_FAULT:
            return foreign(host)
        refusal = Refusal(_UNAVAILABLE, f"HTTP status {status}")
    return refusal_of(refusal, host)


def foreign(host: str) -> BackendError:
    """Whoever answered is not etcd, or one that is too old."""
    return BackendError(
        f"{host} does not speak as etcd does: 3.4 or newer is needed, with its JSON gateway (on by default) at /v3"
    )


def refusal_of(refusal: Refusal, host: str) -> BackendError:
    """The same, once it was read."""
    text = refusal.message or refusal.error
    if refusal.code in {_UNAUTHENTICATED, _INVALID} and any(stale in text for stale in _STALE_TOKENS):
        return TokenStale(f"{host} does not know our token")
    if refusal.code == _NOT_FOUND and "lease not found" in text:
        return LeaseGone(f"{host} does not know the lease")
    if refusal.code in _PASSING:
        return BackendUnavailable(f"{host} {_PASSING[refusal.code]} ({text})")
    return BackendError(f"{host} {_lasting(refusal.code, text)}")


def _lasting(code: int, text: str) -> str:
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
    """Why a member could not be asked. One whose certificate is not accepted will not be accepted later either."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return BackendError(
                f"the certificate of {host} is not accepted ({cause.verify_message}): give its authority with"
                " ?ssl_ca=FILE"
            )
        cause = cause.__cause__ or cause.__context__
    return BackendUnavailable(f"{host} cannot be reached: {str(error) or type(error).__name__}")
