"""Tokens: who may call the API. 256 random bits, shown once; the store keeps a hash of them.

`duly_<id>_<secret>`: the id finds the record, the secret is compared in constant time. A verified token is trusted for
one second, so that a revocation is felt within that time everywhere.
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
TRUSTED_FOR = 1.0

_PREFIX = "duly"
_MOST_REMEMBERED = 10_000
_ID = re.compile(r"[0-9a-f]{12}")


class Token(Struct, frozen=True):
    """A token as the store keeps it: nothing in it lets anybody in."""

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
    """The hash under which a secret is kept. It has 256 bits of its own: a slow hash would add nothing."""
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
    """A new token, and the text that lets its holder in: it is not kept and cannot be shown again."""
    if expires_at is not None and expires_at <= now:
        raise ConfigurationError(f"expires_at={expires_at.isoformat()} is in the past: such a token lets nobody in")
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
        raise ConfigurationError(f"a token of the id {token.id} exists already: try again")
    return token, f"{_PREFIX}_{token.id}_{secret}"


def _read(item: Item) -> Token:
    """A token as it is stored; one that cannot be read lets nobody in, and is listed as such."""
    try:
        return msgspec.json.decode(item.value, type=Token)
    except msgspec.MsgspecError:
        return Token(item.key, "?", TokenRole.VIEWER, digest="", created_at=EPOCH)


async def tokens(store: Store) -> list[Token]:
    """All tokens, the oldest first."""
    found = [_read(item) for item in await store.items(KIND)]
    return sorted(found, key=lambda token: (token.created_at, token.id))


async def revoke(store: Store, token_id: str, now: datetime) -> Token:
    """Let nobody in with this token any more; what is revoked already stays as it is."""
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


class _Known(Struct, frozen=True):
    """What was found out about a text that somebody presented; None: it lets nobody in."""

    principal: Principal | None
    until: float


class Authenticator:
    """Tells who calls. Asks the store about each token at most once a second, however many calls come with it."""

    def __init__(self, backend: Callable[[], Awaitable[Backend]], monotonic: Callable[[], float]) -> None:
        self._backend = backend
        self._monotonic = monotonic
        self._known: dict[bytes, _Known] = {}
        self._asking: dict[bytes, asyncio.Task[Principal | None]] = {}

    async def principal(self, presented: bytes) -> Principal | None:
        """The holder of a token, None if it is none or no longer one."""
        key = hashlib.sha256(presented).digest()
        known = self._known.get(key)
        if known is not None and self._monotonic() < known.until:
            return known.principal
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.get_running_loop().create_task(self._ask(key, presented))
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        return await shielded(asking)

    async def _ask(self, key: bytes, presented: bytes) -> Principal | None:
        until = self._monotonic() + TRUSTED_FOR
        backend = await self._backend()
        token = await verify(backend.store, presented, backend.clock.now())
        principal = None if token is None else token.principal()
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        self._known[key] = _Known(principal, until)
        return principal


async def verify(store: Store, presented: bytes, now: datetime) -> Token | None:
    """The token that a text stands for, if it is active and the secret is right."""
    try:
        prefix, token_id, secret = presented.decode("ascii").split("_", 2)
    except ValueError:
        return None
    item = await store.get(KIND, token_id) if prefix == _PREFIX and _ID.fullmatch(token_id) else None
    token = _NOBODY if item is None else _read(item)
    right = hmac.compare_digest(token.digest, digest_of(secret))
    return token if right and token.status(now) == "active" else None


# Compared with where there is no such token: it takes as long as with a wrong secret.
_NOBODY = Token("", "nobody", TokenRole.VIEWER, digest_of(secrets.token_urlsafe(32)), EPOCH, EPOCH)
