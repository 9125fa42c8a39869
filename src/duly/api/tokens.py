"""The tokens of the API: 256 random bits, shown once; the store keeps only their hash.

A token is `duly_<id>_<secret>`: the id finds the record, the secret is compared in constant time. A verified token is
cached for one second, so that every process notices a revocation within this time.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from duly.api.permissions import Principal, TokenRole
from duly.errors import ConfigurationError
from duly.model import EPOCH, Item
from duly.ports import Backend, Store
from duly.ports.waiting import shielded
from duly.rules.rate_limits import Rate

KIND = "token"
CACHED_FOR = 1.0

_PREFIX = "duly"
_MAX_CACHED = 10_000
_ID = re.compile(r"[0-9a-f]{12}")


class Token(Struct, frozen=True):
    """A token as the store keeps it, without its secret."""

    id: str
    name: str
    role: TokenRole
    digest: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    queues: tuple[str, ...] | None = None
    handlers: tuple[str, ...] | None = None
    rate: Rate | None = None

    def status(self, now: datetime) -> str:
        if not self.digest:
            return "unreadable"
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"

    def principal(self) -> Principal:
        return Principal(
            name=f"{self.name} ({self.id})",
            role=self.role,
            queues=None if self.queues is None else frozenset(self.queues),
            handlers=None if self.handlers is None else frozenset(self.handlers),
            token_id=self.id,
            rate=self.rate,
        )


def digest_of(secret: str) -> str:
    """The hash of a secret. The secret has 256 random bits, so a slow hash would add nothing."""
    return hashlib.sha256(secret.encode()).hexdigest()


async def create(
    store: Store,
    now: datetime,
    name: str,
    role: TokenRole,
    *,
    expires_at: datetime | None = None,
    queues: Sequence[str] = (),
    handlers: Sequence[str] = (),
    rate: Rate | None = None,
) -> tuple[Token, str]:
    """Create a token; returns its record and its text, which is not stored and cannot be shown again."""
    if expires_at is not None and expires_at <= now:
        raise ConfigurationError(f"expires_at={expires_at.isoformat()} is in the past: choose a later time")
    secret = secrets.token_urlsafe(32)
    token = Token(
        id=secrets.token_hex(6),
        name=name,
        role=role,
        digest=digest_of(secret),
        created_at=now,
        expires_at=expires_at,
        queues=tuple(queues) or None,
        handlers=tuple(handlers) or None,
        rate=rate,
    )
    if await store.put(KIND, token.id, msgspec.json.encode(token), expect=0) is None:
        raise ConfigurationError(f"a token with the id {token.id} exists already: try again")
    return token, f"{_PREFIX}_{token.id}_{secret}"


def _read(item: Item) -> Token:
    """A stored token. One that cannot be read is invalid, and is listed as unreadable."""
    try:
        return msgspec.json.decode(item.value, type=Token)
    except msgspec.MsgspecError:
        return Token(item.key, "?", TokenRole.VIEWER, digest="", created_at=EPOCH)


async def tokens(store: Store) -> list[Token]:
    """All tokens, the oldest first."""
    found = [_read(item) for item in await store.items(KIND)]
    return sorted(found, key=lambda token: (token.created_at, token.id))


async def revoke(store: Store, token_id: str, now: datetime) -> Token:
    """Revoke a token. One that is revoked already is left unchanged."""
    while True:
        item = await store.get(KIND, token_id)
        if item is None:
            raise ConfigurationError(f"there is no token {token_id!r}: see `duly token list`")
        token = _read(item)
        if token.revoked_at is not None:
            return token
        revoked = replace(token, revoked_at=now)
        if await store.put(KIND, token_id, msgspec.json.encode(revoked), expect=item.version) is not None:
            return revoked


class _Cached(Struct, frozen=True):
    """The result of a verification; None if the token is invalid."""

    principal: Principal | None
    until: float


class Authenticator:
    """Identifies callers. Reads each token from the store at most once a second."""

    def __init__(self, backend: Callable[[], Awaitable[Backend]], monotonic: Callable[[], float]) -> None:
        self._backend = backend
        self._monotonic = monotonic
        self._cached: dict[bytes, _Cached] = {}
        self._verifying: dict[bytes, asyncio.Task[Principal | None]] = {}

    async def principal(self, presented: bytes) -> Principal | None:
        """The caller with this token, None if it is invalid."""
        key = hashlib.sha256(presented).digest()
        cached = self._cached.get(key)
        if cached is not None and self._monotonic() < cached.until:
            return cached.principal
        verifying = self._verifying.get(key)
        if verifying is None:
            verifying = self._verifying[key] = asyncio.get_running_loop().create_task(self._verify(key, presented))
            verifying.add_done_callback(lambda _: self._verifying.pop(key, None))
        return await shielded(verifying)

    async def _verify(self, key: bytes, presented: bytes) -> Principal | None:
        until = self._monotonic() + CACHED_FOR
        backend = await self._backend()
        token = await verify(backend.store, presented, backend.clock.now())
        principal = None if token is None else token.principal()
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[key] = _Cached(principal, until)
        return principal


async def verify(store: Store, presented: bytes, now: datetime) -> Token | None:
    """The token with this text, if it is active and the secret is right."""
    try:
        prefix, token_id, secret = presented.decode("ascii").split("_", 2)
    except ValueError:
        return None
    item = await store.get(KIND, token_id) if prefix == _PREFIX and _ID.fullmatch(token_id) else None
    token = _NO_TOKEN if item is None else _read(item)
    right = hmac.compare_digest(token.digest, digest_of(secret))
    return token if right and token.status(now) == "active" else None


# Compared with if there is no such token, so that it takes as long as with a wrong secret.
_NO_TOKEN = Token("", "none", TokenRole.VIEWER, digest_of(secrets.token_urlsafe(32)), EPOCH, EPOCH)
